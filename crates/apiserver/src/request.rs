//! What is asked: a path and a query, taken apart.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::resources::{Resource, Subresource};
use crate::status::Refusal;
use crate::who::User;

/// A request as it came in, with who sent it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Without the query; not decoded.
    pub path: String,
    /// Not decoded.
    pub query: String,
    pub accept: String,
    pub content_type: String,
    pub user: User,
    pub body: Vec<u8>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub resource: &'static Resource,
    /// Empty for all namespaces, and for what has none.
    pub namespace: String,
    /// Empty for the whole collection.
    pub name: String,
    pub subresource: Option<Subresource>,
    /// What follows the subresource in a path: where a proxy leads.
    pub rest: String,
}

/// What is wanted of a target, in the API's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

impl Target {
    /// What a path under `/api` or `/apis` leads to; none if nothing is there.
    pub fn of(path: &str) -> Option<Target> {
        let parts: Vec<String> = path.trim_start_matches('/').splitn(9, '/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        // `/api/v1/watch/…` is long deprecated, and nobody here uses it.
        let find = |plural: &str| Resource::find(group, version, plural);
        let (resource, namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if find(plural).is_some_and(Resource::is_namespaced) =>
            {
                (find(plural)?, *namespace, rest)
            }
            [plural, rest @ ..] => (find(plural)?, "", rest),
            [] => return None,
        };
        let (name, subresource, rest) = match rest {
            [] | [""] => ("", None, String::new()),
            [name] => (*name, None, String::new()),
            [name, subresource, rest @ ..] => {
                let known = resource.subresources.iter().find(|known| known.name() == *subresource)?;
                (*name, Some(*known), rest.join("/"))
            }
        };
        // An object of a namespaced kind is only found within its namespace.
        if resource.is_namespaced() && namespace.is_empty() && !name.is_empty() {
            return None;
        }
        // The namespaces' own objects are in no namespace; admission and rights see them in themselves.
        Some(Target { resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource, rest })
    }

    /// What a method means for it.
    pub fn verb(&self, method: &Method, options: &Query) -> Result<Verb, Refusal> {
        let verb = match (method.as_str(), self.name.is_empty()) {
            ("GET" | "HEAD", true) if options.flag("watch") => Verb::Watch,
            ("GET" | "HEAD", true) => Verb::List,
            ("GET" | "HEAD", false) => Verb::Get,
            ("POST", true) => Verb::Create,
            ("POST", false) if self.subresource.is_some() => Verb::Create,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", true) => Verb::DeleteCollection,
            ("DELETE", false) => Verb::Delete,
            _ => return Err(Refusal::no_such_method()),
        };
        let verbs = match self.subresource {
            Some(subresource) => subresource.verbs(),
            None => self.resource.verbs(),
        };
        // Of all namespaces at once, objects can only be read.
        let is_of_all = self.resource.is_namespaced() && self.namespace.is_empty();
        if is_of_all && !verbs.contains(&Verb::List) {
            return Err(Refusal::no_such_path());
        }
        let is_there = verbs.contains(&verb) && (!is_of_all || matches!(verb, Verb::List | Verb::Watch));
        match is_there {
            true => Ok(verb),
            false => Err(Refusal::no_such_method()),
        }
    }
}

/// A query, decoded. Of a parameter that is given twice, the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: &str) -> Query {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(&key.replace('+', " ")), decoded(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A parameter that is a number; none if it is empty or not there.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }

    /// All values of a parameter that may be given more than once.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// As upstream reads truth: anything but `false` and `0`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<String> {
        let Target { resource, namespace, name, subresource, rest } = Target::of(path)?;
        let subresource = subresource.map(Subresource::name).unwrap_or_default();
        Some(format!("{} {namespace:?} {name:?} {subresource:?} {rest:?}", resource.qualified_name()))
    }

    #[test]
    fn paths_lead_where_upstreams_do() {
        for (path, expected) in [
            ("/api/v1/pods", Some(r#"pods "" "" "" """#)),
            ("/api/v1/namespaces/default/pods/web", Some(r#"pods "default" "web" "" """#)),
            ("/api/v1/namespaces/default/pods/web/log", Some(r#"pods "default" "web" "log" """#)),
            ("/api/v1/namespaces/default", Some(r#"namespaces "" "default" "" """#)),
            ("/api/v1/namespaces/default/status", Some(r#"namespaces "" "default" "status" """#)),
            ("/api/v1/nodes/n1/proxy/stats/summary", Some(r#"nodes "" "n1" "proxy" "stats/summary""#)),
            (
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
                Some(r#"leases.coordination.k8s.io "kube-node-lease" "n1" "" """#),
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                Some(r#"clusterroles.rbac.authorization.k8s.io "" "system:node" "" """#),
            ),
            ("/api/v1/pods/web", None),
            ("/api/v1/namespaces/default/nodes", None),
            ("/api/v1/namespaces/default/pods/web/scale", None),
            ("/apis/apps/v1/deployments", None),
            ("/api/v2/pods", None),
            ("/healthz", None),
        ] {
            assert_eq!(target(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn methods_that_a_path_does_not_have_are_not_allowed() {
        for (method, path, expected) in [
            ("GET", "/api/v1/pods", Some(Verb::List)),
            ("POST", "/api/v1/pods", None),
            ("DELETE", "/api/v1/pods", None),
            ("DELETE", "/api/v1/namespaces/a/pods", Some(Verb::DeleteCollection)),
            ("DELETE", "/api/v1/namespaces", None),
            ("DELETE", "/api/v1/nodes", Some(Verb::DeleteCollection)),
            ("POST", "/api/v1/nodes/n1", None),
            ("POST", "/api/v1/nodes/n1/proxy/run", Some(Verb::Create)),
            ("PATCH", "/api/v1/nodes", None),
            ("GET", "/api/v1/namespaces/a/bindings", None),
            ("POST", "/api/v1/namespaces/a/bindings", Some(Verb::Create)),
            ("GET", "/api/v1/namespaces/a/pods/p/eviction", None),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", Some(Verb::Create)),
            ("POST", "/api/v1/namespaces/a/pods/p/status", None),
            ("DELETE", "/api/v1/namespaces/a/pods/p/status", None),
            ("POST", "/api/v1/namespaces/a/pods/p/log", None),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let verb = Target::of(path).unwrap().verb(&method, &Query::default());
            assert_eq!(verb, expected.ok_or_else(Refusal::no_such_method), "{method} {path}");
        }
        let bindings = Target::of("/api/v1/bindings").unwrap();
        assert_eq!(bindings.verb(&Method::POST, &Query::default()), Err(Refusal::no_such_path()));
    }

    #[test]
    fn a_query_is_decoded() {
        let query = Query::parse(
            "labelSelector=a%3Db%2Cc&watch=true&x=1+2&command=a&command=b&allowWatchBookmarks=false",
        );
        assert_eq!(query.text("labelSelector"), "a=b,c");
        assert_eq!(query.text("x"), "1 2");
        assert!(query.flag("watch") && !query.flag("allowWatchBookmarks") && !query.flag("none"));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["a", "b"]);
    }
}
