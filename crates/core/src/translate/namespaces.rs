//! Which namespaces a pod's containers live in.

use crablet_api::core::Pod;
use crablet_cri_api::v1;

use super::go_quote;

/// What is known of user namespaces for a pod, when it is translated.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum UserNamespaces {
    /// The runtime, or the handler that runs the pod, cannot make them.
    #[default]
    Unsupported,
    /// The runtime tells which handlers it has, and the one that runs the pod is not among them.
    UnknownHandler,
    /// They can be made, but there are no users for the pod, for this reason.
    NoUsers(String),
    /// They can be made, and this is which users and groups of the node the pod's are.
    Mapped {
        /// The users.
        uids: Vec<v1::IdMapping>,
        /// The groups.
        gids: Vec<v1::IdMapping>,
    },
}

/// Why a pod cannot have the users that it asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserNamespaceError {
    /// The feature is off.
    #[error("the feature gate \"UserNamespacesSupport\" is disabled: can't set spec.HostUsers")]
    Disabled,
    /// The runtime cannot make user namespaces.
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    Runtime,
    /// The handler cannot make user namespaces.
    #[error("can't set `spec.hostUsers: false`, RuntimeClass handler {} does not support user namespaces", go_quote(.0))]
    Handler(String),
    /// The runtime does not have the handler.
    #[error("{}: the handler {} is not known", UserNamespaceError::unsupported(.0), go_quote(.0))]
    UnknownHandler(String),
    /// There are no users for it.
    #[error("create user namespace: {0}")]
    NoUsers(String),
}

impl UserNamespaceError {
    fn unsupported(runtime_handler: &str) -> UserNamespaceError {
        match runtime_handler {
            "" => UserNamespaceError::Runtime,
            handler => UserNamespaceError::Handler(handler.to_owned()),
        }
    }
}

impl UserNamespaces {
    /// Why a pod cannot have users of its own under one of the handlers that a runtime tells of; an old one tells of
    /// none. Only where it can is it given some.
    pub fn refused_by(handlers: &[v1::RuntimeHandler], runtime_handler: &str) -> Option<UserNamespaces> {
        let handler = handlers.iter().find(|handler| handler.name == runtime_handler);
        let supported = handler.and_then(|handler| handler.features).is_some_and(|can| can.user_namespaces);
        match (handlers.is_empty(), handler) {
            (false, None) => Some(UserNamespaces::UnknownHandler),
            (_, _) => (!supported).then_some(UserNamespaces::Unsupported),
        }
    }

    /// What is known of a pod that these users were given to. Upstream maps groups as it maps users.
    pub fn mapped(ids: v1::IdMapping) -> UserNamespaces {
        UserNamespaces::Mapped { uids: vec![ids], gids: vec![ids] }
    }
}

/// Whether a pod asks for a user namespace of its own, so that its users must be mapped.
pub fn wants_user_namespace(pod: &Pod) -> bool {
    pod.spec.host_users == Some(false)
}

/// The network that a pod's containers are in: one for the pod, or the node's.
pub fn network_namespace(pod: &Pod) -> v1::NamespaceMode {
    if pod.spec.host_network { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod }
}

/// Which namespaces a pod's containers live in.
pub(super) fn of_pod(
    pod: &Pod,
    runtime_handler: &str,
    users: &UserNamespaces,
    enabled: bool,
) -> Result<v1::NamespaceOption, UserNamespaceError> {
    let spec = &pod.spec;
    let pid = if spec.host_pid {
        v1::NamespaceMode::Node
    } else if spec.share_process_namespace == Some(true) {
        v1::NamespaceMode::Pod
    } else {
        v1::NamespaceMode::Container
    };
    let ipc = if spec.host_ipc { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
    Ok(v1::NamespaceOption {
        network: network_namespace(pod) as i32,
        pid: pid as i32,
        ipc: ipc as i32,
        target_id: String::new(),
        userns_options: user_namespace(pod, runtime_handler, users, enabled)?,
    })
}

fn user_namespace(
    pod: &Pod,
    runtime_handler: &str,
    users: &UserNamespaces,
    enabled: bool,
) -> Result<Option<v1::UserNamespace>, UserNamespaceError> {
    let of_node =
        || v1::UserNamespace { mode: v1::NamespaceMode::Node as i32, uids: Vec::new(), gids: Vec::new() };
    match (pod.spec.host_users, enabled) {
        (None, false) => Ok(None),
        (Some(_), false) => Err(UserNamespaceError::Disabled),
        (None | Some(true), true) => Ok(Some(of_node())),
        (Some(false), true) => match users {
            UserNamespaces::Mapped { uids, gids } => Ok(Some(v1::UserNamespace {
                mode: v1::NamespaceMode::Pod as i32,
                uids: uids.clone(),
                gids: gids.clone(),
            })),
            UserNamespaces::Unsupported => Err(UserNamespaceError::unsupported(runtime_handler)),
            UserNamespaces::UnknownHandler => {
                Err(UserNamespaceError::UnknownHandler(runtime_handler.to_owned()))
            }
            UserNamespaces::NoUsers(reason) => Err(UserNamespaceError::NoUsers(reason.clone())),
        },
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn namespaces(spec: &str, users: &UserNamespaces, enabled: bool) -> Result<v1::NamespaceOption, String> {
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"));
        of_pod(&pod, "", users, enabled).map_err(|error| error.to_string())
    }

    #[test]
    fn processes_are_alone_unless_asked_and_the_rest_is_the_pods() {
        use v1::NamespaceMode::{Container, Node, Pod};
        for (spec, network, pid, ipc) in [
            ("{}", Pod, Container, Pod),
            ("{shareProcessNamespace: true}", Pod, Pod, Pod),
            ("{shareProcessNamespace: false}", Pod, Container, Pod),
            ("{hostPID: true, shareProcessNamespace: true}", Pod, Node, Pod),
            ("{hostIPC: true, hostNetwork: true}", Node, Container, Node),
        ] {
            let options = namespaces(spec, &UserNamespaces::Unsupported, true).unwrap();
            assert_eq!((options.network(), options.pid(), options.ipc()), (network, pid, ipc), "{spec}");
        }
    }

    #[test]
    fn users_are_the_nodes_unless_the_pod_asks_for_its_own() {
        let mapping = v1::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
        let mapped = UserNamespaces::Mapped { uids: vec![mapping], gids: vec![mapping] };
        let users = |spec: &str, users: &UserNamespaces, enabled| {
            namespaces(spec, users, enabled).map(|options| options.userns_options)
        };
        assert_eq!(users("{}", &mapped, true).unwrap().unwrap().mode(), v1::NamespaceMode::Node);
        assert_eq!(
            users("{hostUsers: true}", &mapped, true).unwrap().unwrap().mode(),
            v1::NamespaceMode::Node
        );
        let own = users("{hostUsers: false}", &mapped, true).unwrap().unwrap();
        assert_eq!((own.mode(), own.uids.as_slice()), (v1::NamespaceMode::Pod, [mapping].as_slice()));
        assert_eq!(users("{}", &mapped, false).unwrap(), None);
        assert_eq!(
            users("{hostUsers: true}", &mapped, false).unwrap_err(),
            "the feature gate \"UserNamespacesSupport\" is disabled: can't set spec.HostUsers"
        );
        assert_eq!(
            users("{hostUsers: false}", &UserNamespaces::Unsupported, true).unwrap_err(),
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        );
        let pod = pod_yaml("metadata: {name: p}\nspec: {hostUsers: false}");
        assert!(wants_user_namespace(&pod));
        for spec in ["{}", "{hostUsers: true}"] {
            assert!(!wants_user_namespace(&pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"))));
        }
        assert_eq!(
            of_pod(&pod, "kata", &UserNamespaces::Unsupported, true).unwrap_err().to_string(),
            "can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does not support user namespaces"
        );
    }
    #[test]
    fn a_handler_must_say_that_it_can_make_them_before_a_pod_is_given_users() {
        let handler = |name: &str, user_namespaces| v1::RuntimeHandler {
            name: name.to_owned(),
            features: Some(v1::RuntimeHandlerFeatures {
                user_namespaces,
                ..v1::RuntimeHandlerFeatures::default()
            }),
        };
        let silent = v1::RuntimeHandler { name: "silent".to_owned(), features: None };
        let handlers = [handler("", true), handler("kata", false), silent];
        let ids = v1::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
        let pod = pod_yaml("metadata: {name: p}\nspec: {hostUsers: false}");
        let said = |handlers: &[v1::RuntimeHandler], name: &str, given: Result<v1::IdMapping, String>| {
            let users = UserNamespaces::refused_by(handlers, name)
                .unwrap_or_else(|| given.map_or_else(UserNamespaces::NoUsers, UserNamespaces::mapped));
            match of_pod(&pod, name, &users, true) {
                Ok(namespaces) => format!("{} from", namespaces.userns_options.unwrap().uids[0].host_id),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(said(&handlers, "", Ok(ids)), "65536 from");
        assert_eq!(said(&handlers, "", Err("none left".into())), "create user namespace: none left");
        let unsupported = |handler: &str| {
            format!(
                "can't set `spec.hostUsers: false`, RuntimeClass handler \"{handler}\" does not support user namespaces"
            )
        };
        for name in ["kata", "silent"] {
            assert_eq!(said(&handlers, name, Ok(ids)), unsupported(name));
        }
        assert_eq!(said(&[], "kata", Ok(ids)), unsupported("kata"));
        assert_eq!(
            said(&handlers, "runsc", Ok(ids)),
            format!("{}: the handler \"runsc\" is not known", unsupported("runsc"))
        );
        assert_eq!(
            said(&handlers[1..], "", Ok(ids)),
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces: the handler \"\" is not known"
        );
    }
}
