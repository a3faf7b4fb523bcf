//! What a request is about, as those see it who decide whether it may be.

use std::borrow::Cow;

use crablet_api::selector::{FieldSelector, FieldTerm};
use percent_encoding::percent_decode_str;

use crate::request::{Query, Request};
use crate::status::Refusal;
use crate::who::User;

#[derive(Clone, Debug)]
pub struct Attributes<'u> {
    pub user: Cow<'u, User>,
    pub verb: String,
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Object(ObjectAttributes),
    /// A path that is no object's.
    Path(String),
}

/// Empty is what was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// What the field selector of a list or watch asks for.
    pub fields: Vec<FieldTerm>,
}

impl ObjectAttributes {
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectAttributes {
        ObjectAttributes {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ObjectAttributes::default()
        }
    }

    /// `pods`, `pods/log`
    pub fn combined_resource(&self) -> Cow<'_, str> {
        match self.subresource.as_str() {
            "" => Cow::Borrowed(&self.resource),
            subresource => Cow::Owned(format!("{}/{subresource}", self.resource)),
        }
    }

    /// Whether only objects are asked for whose field has a value.
    pub fn selects(&self, field: &str, value: &str) -> bool {
        self.fields.iter().any(|term| term.equal && *term.field == *field && *term.value == *value)
    }
}

impl<'u> Attributes<'u> {
    pub fn new(user: &'u User, verb: &str, object: ObjectAttributes) -> Attributes<'u> {
        Attributes { user: Cow::Borrowed(user), verb: verb.to_owned(), about: About::Object(object) }
    }

    /// What a request is about. Paths of kinds that are not served count as well: who may not look does not learn that
    /// there is nothing.
    pub fn of(request: &'u Request, query: &Query) -> Attributes<'u> {
        let user = Cow::Borrowed(&request.user);
        let method = request.method.as_str();
        let Some((mut verb, mut object)) = parse_path(&request.path, method) else {
            let path = percent_decode_str(&request.path).decode_utf8_lossy().into_owned();
            return Attributes { user, verb: method.to_ascii_lowercase(), about: About::Path(path) };
        };
        if object.name.is_empty() && verb == "get" {
            verb = if query.flag("watch") { "watch" } else { "list" };
        }
        if object.name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        if matches!(verb, "list" | "watch" | "deletecollection")
            && let Ok(selector) = query.text("fieldSelector").parse::<FieldSelector>()
        {
            object.fields = selector.0.to_vec();
            let named = object.fields.iter().find(|term| term.equal && &*term.field == "metadata.name");
            if let Some(named) = named
                && verb != "deletecollection"
                && is_path_segment(&named.value)
            {
                object.name = named.value.to_string();
            }
        }
        Attributes { user, verb: verb.to_owned(), about: About::Object(object) }
    }

    pub(crate) fn object(&self) -> Option<&ObjectAttributes> {
        match &self.about {
            About::Object(object) => Some(object),
            About::Path(_) => None,
        }
    }

    /// What the user is told who may not do this.
    pub fn denial(&self, reason: &str) -> Refusal {
        let name = &self.user.name;
        let what = match &self.about {
            About::Path(path) => format!("User {name:?} cannot {} path {path:?}", self.verb),
            About::Object(object) => {
                let scope = match object.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let resource = object.combined_resource();
                let verb = &self.verb;
                let group = &object.group;
                format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
            }
        };
        // Nothing that a browser would take for HTML.
        let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let why = if reason.is_empty() { what } else { format!("{what}: {reason}") };
        match &self.about {
            About::Object(object) => {
                Refusal::forbidden_named(&object.group, &object.resource, &object.name, why)
            }
            About::Path(_) => Refusal::forbidden_named("", "", "", why),
        }
    }
}

/// The verb and object of a path under `/api` or `/apis`; none if it is shorter than an object's.
fn parse_path(path: &str, method: &str) -> Option<(&'static str, ObjectAttributes)> {
    let parts = path.trim_matches('/').split('/');
    let parts: Vec<String> =
        parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, mut rest) = match parts.as_slice() {
        ["api", _version, rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let mut verb = match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    if let ["watch", after @ ..] = rest {
        (verb, rest) = ("watch", after);
    }
    let mut namespace = "";
    match rest {
        ["namespaces", own, "status" | "finalize", ..] | ["namespaces", own] => namespace = own,
        ["namespaces", own, after @ ..] => (namespace, rest) = (own, after),
        _ => {}
    }
    let (resource, name, subresource) = match rest {
        [] => return None,
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, _, ..] if verb == "watch" => (*resource, *name, ""),
        [resource, name, subresource, ..] => (*resource, *name, *subresource),
    };
    let object = ObjectAttributes {
        subresource: subresource.to_owned(),
        ..ObjectAttributes::new(group, resource, namespace, name)
    };
    Some((verb, object))
}

fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn attributes(method: Method, path: &str, query: &str) -> String {
        let request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            accept: String::new(),
            content_type: String::new(),
            user: User::new("x", &[]),
            body: Vec::new(),
        };
        let attributes = Attributes::of(&request, &Query::parse(query));
        match &attributes.about {
            About::Path(path) => format!("{} {path}", attributes.verb),
            About::Object(object) => format!(
                "{} {:?} {} {:?} {:?}",
                attributes.verb,
                object.group,
                object.combined_resource(),
                object.namespace,
                object.name
            ),
        }
    }

    #[test]
    fn requests_are_about_what_upstream_says() {
        let get = |path| attributes(Method::GET, path, "");
        assert_eq!(get("/healthz"), "get /healthz");
        assert_eq!(get("/api/v1"), "get /api/v1");
        assert_eq!(get("/apis/apps/v1"), "get /apis/apps/v1");
        assert_eq!(get("/api/v1/pods"), r#"list "" pods "" """#);
        assert_eq!(get("/apis/apps/v1/deployments"), r#"list "apps" deployments "" """#);
        assert_eq!(get("/api/v1/namespaces"), r#"list "" namespaces "" """#);
        assert_eq!(get("/api/v1/namespaces/a"), r#"get "" namespaces "a" "a""#);
        assert_eq!(get("/api/v1/namespaces/a/status"), r#"get "" namespaces/status "a" "a""#);
        assert_eq!(get("/api/v1/namespaces/a/pods"), r#"list "" pods "a" """#);
        assert_eq!(get("/api/v1/namespaces/a/pods/p/log"), r#"get "" pods/log "a" "p""#);
        assert_eq!(get("/api/v1/watch/namespaces/a/pods"), r#"watch "" pods "a" """#);
        assert_eq!(get("/api/v1/nodes/n/proxy/stats/summary"), r#"get "" nodes/proxy "" "n""#);
        let with = |method, query| attributes(method, "/api/v1/namespaces/a/pods", query);
        assert_eq!(with(Method::GET, "watch=1"), r#"watch "" pods "a" """#);
        assert_eq!(with(Method::GET, "fieldSelector=metadata.name%3Dp"), r#"list "" pods "a" "p""#);
        assert_eq!(with(Method::DELETE, ""), r#"deletecollection "" pods "a" """#);
        assert_eq!(with(Method::POST, ""), r#"create "" pods "a" """#);
        assert_eq!(attributes(Method::POST, "/version", ""), "post /version");
    }

    #[test]
    fn denials_are_in_upstreams_words() {
        let user = User::new("jane", &[]);
        let pods = ObjectAttributes::new("", "pods", "default", "");
        assert_eq!(
            Attributes::new(&user, "list", pods).denial("").message,
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default""#
        );
        let lease = ObjectAttributes::new("coordination.k8s.io", "leases", "", "n");
        let lease = ObjectAttributes { subresource: "status".to_owned(), ..lease };
        assert_eq!(
            Attributes::new(&user, "get", lease).denial("because").message,
            r#"leases.coordination.k8s.io "n" is forbidden: User "jane" cannot get resource "leases/status" in API group "coordination.k8s.io" at the cluster scope: because"#
        );
        let path = Attributes {
            user: Cow::Borrowed(&user),
            verb: "get".to_owned(),
            about: About::Path("/<x>".to_owned()),
        };
        assert_eq!(path.denial("").message, r#"forbidden: User "jane" cannot get path "/&lt;x&gt;""#);
    }
}
