//! Acting as somebody else: `kubectl --as`.
//!
//! Upstream tries several ways, from the narrowest on, and takes the first that is allowed: as the node that a service
//! account's pod is on, as any node, as a service account, as another user; and at last the old way, which one right
//! opens for everything.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::attributes::{Attributes, ObjectAttributes};
use super::rbac::service_account;
use crate::state::State;
use crate::status::Refusal;
use crate::who::{MASTERS, NODE_PREFIX, NODES, User};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// What a token bound to a node says of it.
const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";

/// Whom a request's headers want to be; none if they do not say.
pub fn wanted(headers: &HeaderMap) -> Result<Option<User>, Refusal> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
            extra.entry(key).or_default().push(text(value));
        }
    }
    let user = User {
        name: one("impersonate-user"),
        uid: one("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        extra,
    };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user == User::default() {
        return Ok(None);
    }
    Err(Refusal::bad_request(format!("requested {} without impersonating a user name", go_form(&user))))
}

/// Who acts when somebody wants to be another, if they may for this request.
pub(crate) fn impersonate(
    state: &State,
    attributes: &Attributes<'_>,
    wanted: &User,
) -> Result<User, Refusal> {
    let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
    let node = node_name(&wanted.name);
    let account = service_account(&wanted.name);
    let own_node = || {
        let extra = attributes.user.extra.get(NODE_NAME_EXTRA).map(Vec::as_slice);
        service_account(&attributes.user.name).is_some()
            && matches!((extra, node), (Some([own]), Some(node)) if own == node)
    };
    let ways = [
        ("associated-node", only_name && own_node()),
        ("arbitrary-node", only_name && node.is_some()),
        ("serviceaccount", only_name && account.is_some()),
        ("user-info", node.is_none() && account.is_none()),
    ];
    let mut first = None;
    for (mode, _) in ways.into_iter().filter(|(_, applies)| *applies) {
        match (Way { state, attributes, wanted, mode }).try_it() {
            Ok(user) => return Ok(user),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    let old = Way { state, attributes, wanted, mode: "" };
    old.try_it().map_err(|refusal| first.unwrap_or(refusal))
}

struct Way<'w> {
    state: &'w State,
    attributes: &'w Attributes<'w>,
    wanted: &'w User,
    /// Empty for the old one.
    mode: &'w str,
}

impl Way<'_> {
    fn is_old(&self) -> bool {
        self.mode.is_empty()
    }

    fn try_it(&self) -> Result<User, Refusal> {
        if !self.is_old() {
            let mut on = self.attributes.clone();
            on.verb = format!("impersonate-on:{}:{}", self.mode, on.verb);
            self.require(&on)?;
        }
        let mut user = self.wanted.clone();
        self.require_name(&mut user)?;
        if !user.uid.is_empty() {
            self.require_object(AUTHENTICATION, "uids", "", &user.uid)?;
        }
        self.require_groups()?;
        for (key, values) in &user.extra {
            for value in values {
                self.require_object(AUTHENTICATION, "userextras", key, value)?;
            }
        }
        let is_in = |group: &str| user.groups.iter().any(|own| own == group);
        if user.name == "system:anonymous" {
            if !is_in(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !is_in(UNAUTHENTICATED) && !is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(user)
    }

    fn require_name(&self, user: &mut User) -> Result<(), Refusal> {
        let group = if self.is_old() { "" } else { AUTHENTICATION };
        if let Some((namespace, name)) = service_account(&self.wanted.name) {
            if user.groups.is_empty() {
                user.groups =
                    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
            let object = ObjectAttributes::new(group, "serviceaccounts", namespace, name);
            return self.require(&self.asking(object));
        }
        match node_name(&self.wanted.name) {
            Some(node) if !self.is_old() => {
                user.groups = vec![NODES.to_owned()];
                let name = if self.mode == "associated-node" { "*" } else { node };
                self.require_object(group, "nodes", "", name)
            }
            _ => self.require_object(group, "users", "", &self.wanted.name),
        }
    }

    fn require_groups(&self) -> Result<(), Refusal> {
        let group = if self.is_old() { "" } else { AUTHENTICATION };
        if !self.is_old() {
            for (forbidden, why) in [
                ("", "impersonating the empty string group is not allowed"),
                (MASTERS, "impersonating the system:masters group is not allowed"),
            ] {
                if self.wanted.groups.iter().any(|wanted| wanted == forbidden) {
                    let object = ObjectAttributes::new(group, "groups", "", forbidden);
                    return Err(self.asking(object).denial(why));
                }
            }
        }
        self.wanted.groups.iter().try_for_each(|wanted| self.require_object(group, "groups", "", wanted))
    }

    fn require_object(
        &self,
        group: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> Result<(), Refusal> {
        let object = ObjectAttributes::new(group, resource, "", name);
        self.require(&self.asking(ObjectAttributes { subresource: subresource.to_owned(), ..object }))
    }

    fn asking(&self, object: ObjectAttributes) -> Attributes<'_> {
        let verb =
            if self.is_old() { "impersonate".to_owned() } else { format!("impersonate:{}", self.mode) };
        Attributes::new(&self.attributes.user, &verb, object)
    }

    fn require(&self, attributes: &Attributes<'_>) -> Result<(), Refusal> {
        let decision = super::authorize(self.state, attributes);
        if decision.allowed { Ok(()) } else { Err(attributes.denial(&decision.reason)) }
    }
}

fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE_PREFIX)?;
    crablet_api::dns1123_subdomain_errors(name).is_empty().then_some(name)
}

/// As Go prints it.
fn go_form(user: &User) -> String {
    let list = |list: &[String]| {
        let list: Vec<String> = list.iter().map(|one| format!("{one:?}")).collect();
        format!("[]string{{{}}}", list.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = match extra.as_slice() {
        [] => "map[string][]string(nil)".to_owned(),
        extra => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.name, user.uid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resources::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn state(rules: Value) -> State {
        let mut state = State::default();
        state.put(&CLUSTER_ROLES, json!({"metadata": {"name": "own"}, "rules": rules}));
        state.put(
            &CLUSTER_ROLE_BINDINGS,
            json!({
                "metadata": {"name": "own"},
                "subjects": [{"kind": "User", "name": "jane"}],
                "roleRef": {"kind": "ClusterRole", "name": "own"},
            }),
        );
        state
    }

    fn become_(
        rules: Value,
        user: &User,
        pairs: &[(&'static str, &str)],
    ) -> Result<(String, Vec<String>), String> {
        let wanted = wanted(&headers(pairs)).map_err(|refusal| refusal.message)?.expect("somebody is wanted");
        let attributes = Attributes::new(user, "list", ObjectAttributes::new("", "pods", "ns", ""));
        let became = impersonate(&state(rules), &attributes, &wanted);
        became.map(|user| (user.name, user.groups)).map_err(|refusal| refusal.message)
    }

    fn groups(name: &str, groups: &[&str]) -> Result<(String, Vec<String>), String> {
        Ok((name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect()))
    }

    #[test]
    fn an_admin_may_be_anybody() {
        let admin = User::new("admin", &[MASTERS]);
        let of = |pairs: &[(&'static str, &str)]| become_(json!([]), &admin, pairs);
        assert_eq!(of(&[("impersonate-user", "joe")]), groups("joe", &[AUTHENTICATED]));
        assert_eq!(
            of(&[("impersonate-user", "joe"), ("impersonate-group", "a"), ("impersonate-group", "b")]),
            groups("joe", &["a", "b", AUTHENTICATED])
        );
        assert_eq!(
            of(&[("impersonate-user", "joe"), ("impersonate-group", MASTERS)]),
            groups("joe", &[MASTERS, AUTHENTICATED])
        );
        assert_eq!(
            of(&[("impersonate-user", "system:anonymous")]),
            groups("system:anonymous", &[UNAUTHENTICATED])
        );
        assert_eq!(
            of(&[("impersonate-user", "system:node:n1")]),
            groups("system:node:n1", &[NODES, AUTHENTICATED])
        );
        let account = "system:serviceaccount:ns:robot";
        assert_eq!(
            of(&[("impersonate-user", account)]),
            groups(account, &["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED])
        );
    }

    #[test]
    fn others_may_be_whom_their_roles_say() {
        let jane = User::new("jane", &[]);
        let old = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["joe"]}]);
        assert_eq!(
            become_(old.clone(), &jane, &[("impersonate-user", "joe")]),
            groups("joe", &[AUTHENTICATED])
        );
        assert_eq!(
            become_(old, &jane, &[("impersonate-user", "jim")]),
            Err(r#"pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns""#.to_owned())
        );
        let narrow = json!([
            {"verbs": ["impersonate:user-info"], "apiGroups": [AUTHENTICATION], "resources": ["users"]},
            {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        assert_eq!(
            become_(narrow.clone(), &jane, &[("impersonate-user", "joe")]),
            groups("joe", &[AUTHENTICATED])
        );
        assert_eq!(
            become_(narrow, &jane, &[("impersonate-user", "joe"), ("impersonate-group", "g")]),
            Err(r#"groups.authentication.k8s.io "g" is forbidden: User "jane" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope"#.to_owned())
        );
    }

    #[test]
    fn groups_without_a_user_are_refused() {
        assert_eq!(wanted(&headers(&[])), Ok(None));
        assert_eq!(
            wanted(&headers(&[("impersonate-group", "g")])).unwrap_err().message,
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#
        );
        let extra = headers(&[("impersonate-user", "joe"), ("impersonate-extra-acme.com%2fproject", "x")]);
        let joe = wanted(&extra).unwrap().unwrap();
        assert_eq!(joe.extra, BTreeMap::from([("acme.com/project".to_owned(), vec!["x".to_owned()])]));
    }
}
