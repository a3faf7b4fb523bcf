//! What somebody needs a right to who asks for a path.

use axum::http::Method;

/// The first parts of the paths that there are. Of any other nobody is asked whether it may be seen.
const ROOTS: &[&str] = &[
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];

/// What is asked for: one of these subresources of the node is enough.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The first part of the path.
    pub(crate) root: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) subresources: &'static [&'static str],
}

impl Attributes {
    /// None where there is nothing.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Attributes> {
        let first = path.strip_prefix('/')?.split('/').next()?;
        let root = *ROOTS.iter().find(|root| **root == first)?;
        let subresources: &[&str] = match root {
            "pods" | "runningpods" => &["pods", "proxy"],
            "healthz" => &["healthz", "proxy"],
            "configz" => &["configz", "proxy"],
            "flagz" => &["configz"],
            "stats" => &["stats"],
            "metrics" => &["metrics"],
            "logs" => &["log"],
            "checkpoint" => &["checkpoint"],
            "statusz" => &["statusz"],
            _ => &["proxy"],
        };
        Some(Attributes { root, verb: verb(method), subresources })
    }
}

/// Methods that have no verb ask for a right that nobody names.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, expected: Option<(&'static str, &'static [&'static str])>) {
        let found = Attributes::of(method, path).map(|found| (found.verb, found.subresources));
        assert_eq!(found, expected, "{method} {path}");
    }

    #[test]
    fn the_first_part_of_a_path_tells_which_right_it_takes() {
        check(&Method::GET, "/pods", Some(("get", &["pods", "proxy"])));
        check(&Method::GET, "/pods/x", Some(("get", &["pods", "proxy"])));
        check(&Method::GET, "/metrics/cadvisor", Some(("get", &["metrics"])));
        check(&Method::POST, "/exec/a/b/c", Some(("create", &["proxy"])));
        check(&Method::HEAD, "/healthz", Some(("", &["healthz", "proxy"])));
        for path in ["/", "", "/podsx", "/metricsx", "/nothing", "pods", "//pods", "/Pods"] {
            check(&Method::GET, path, None);
        }
    }
}
