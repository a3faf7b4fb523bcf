//! What exactly a container is asked by a probe or a hook: the command, the address, the request.

use std::borrow::Cow;
use std::fmt::Write as _;

use crablet_api::IntOrString;
use crablet_api::core::{Container, HTTPGetAction, Probe, ProbeHandler, URIScheme};

use crate::translate::expand;

/// The version that requests say they come from.
const VERSION: &str = "1.36";
/// Headers that a request has by itself.
const OWN_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "trailer"];

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A command in the container.
    Exec(Vec<String>),
    /// A request.
    Http(HttpTarget),
    /// A connection.
    Tcp(Address),
    /// A call of the gRPC health service.
    Grpc {
        /// Where.
        address: Address,
        /// Which service is asked about; empty for the whole server.
        service: String,
    },
}

/// Where something listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// An IP address or a name. Where it is empty, this machine.
    pub host: String,
    pub port: u16,
}

/// A GET request.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// Whether it goes through TLS. Nobody's certificate is checked.
    pub secure: bool,
    /// Where it goes.
    pub address: Address,
    /// The path and the query.
    pub path: String,
    pub host_header: String,
    /// The other headers, in their order.
    pub headers: Vec<(String, String)>,
}

/// What a redirect asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// Another request to the same host.
    Follow(Box<HttpTarget>),
    /// A request to somebody else, which is not made.
    Elsewhere,
}

/// Why nothing can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// No port of the container has this name, and it is no number either.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    UnknownPort(String),
    /// No port has this number.
    #[error("invalid port number: {0}")]
    InvalidPort(i64),
    /// The probe does not say how to ask.
    #[error("missing probe handler for {0}")]
    NoHandler(String),
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Probe,
    /// A hook.
    Lifecycle,
}

/// What a probe asks a container of a pod with this address.
pub fn target(probe: &Probe, container: &Container, pod_ip: &str) -> Result<Target, NoTarget> {
    match probe.handler.one() {
        Some(ProbeHandler::Exec(exec)) => {
            Ok(Target::Exec(exec.command.iter().map(|word| expand_static(word, container)).collect()))
        }
        Some(ProbeHandler::HttpGet(get)) => {
            Ok(Target::Http(http_target(get, container, pod_ip, Purpose::Probe)?))
        }
        Some(ProbeHandler::TcpSocket(socket)) => {
            Ok(Target::Tcp(address(&socket.host, pod_ip, &socket.port, container)?))
        }
        Some(ProbeHandler::Grpc(grpc)) => Ok(Target::Grpc {
            address: address("", pod_ip, &IntOrString::Int(grpc.port), container)?,
            service: grpc.service.as_deref().unwrap_or_default().to_owned(),
        }),
        None => Err(NoTarget::NoHandler(container.name.to_string())),
    }
}

/// The request that a probe or a hook makes.
pub fn http_target(
    get: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
    purpose: Purpose,
) -> Result<HttpTarget, NoTarget> {
    let address = address(&get.host, pod_ip, &get.port, container)?;
    let named = |name: &str| {
        get.http_headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value.as_str())
    };
    let kept = get.http_headers.iter().filter(|header| {
        let (name, is_empty) = (header.name.to_ascii_lowercase(), header.value.is_empty());
        // One that is empty says that there is to be none.
        !OWN_HEADERS.contains(&&*name) && !(is_empty && (name == "accept" || name == "user-agent"))
    });
    let mut headers: Vec<_> =
        kept.map(|header| (header.name.to_string(), header.value.to_string())).collect();
    if named("user-agent").is_none() {
        let purpose = match purpose {
            Purpose::Probe => "probe",
            Purpose::Lifecycle => "lifecycle",
        };
        headers.push(("User-Agent".into(), format!("kube-{purpose}/{VERSION}")));
    }
    if named("accept").is_none() {
        headers.push(("Accept".into(), "*/*".into()));
    }
    Ok(HttpTarget {
        secure: get.scheme == Some(URIScheme::Https),
        path: request_path(&get.path),
        host_header: match named("host").filter(|host| !host.is_empty()) {
            Some(host) => host.to_owned(),
            None => address.in_url(),
        },
        headers,
        address,
    })
}

fn address(host: &str, pod_ip: &str, port: &IntOrString, container: &Container) -> Result<Address, NoTarget> {
    let host = if host.is_empty() { pod_ip } else { host };
    Ok(Address { host: host.to_owned(), port: port_number(port, container)? })
}

/// A port by its number, by its name, or by a number that is written as text.
fn port_number(port: &IntOrString, container: &Container) -> Result<u16, NoTarget> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => match container.ports.iter().find(|port| port.name == *name) {
            Some(port) => i64::from(port.container_port),
            None => name.parse().map_err(|_| NoTarget::UnknownPort(name.to_string()))?,
        },
    };
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or(NoTarget::InvalidPort(number))
}

/// A word of a command, with the variables replaced whose values the container spells out.
fn expand_static(word: &str, container: &Container) -> String {
    let bytes = expand(word, |name, out| match container.env.iter().rev().find(|env| *env.name == *name) {
        Some(env) => {
            out.extend_from_slice(env.value.as_bytes());
            true
        }
        None => false,
    });
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl Address {
    /// As a URL has it: an IPv6 address stands in brackets.
    pub fn in_url(&self) -> String {
        let Address { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl HttpTarget {
    /// The URL, as messages have it.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address.in_url(), self.path)
    }

    /// What a redirect to `location` asks for. Only what is on the same host is asked: a container must not be able to
    /// make the node ask somebody else.
    pub fn redirect(&self, location: &str) -> Redirect {
        let location = location.split('#').next().unwrap_or_default();
        let (scheme, rest) = match location.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme.to_ascii_lowercase()), Some(rest)),
            Some(_) | None => (None, location.strip_prefix("//")),
        };
        let secure = match scheme.as_deref() {
            None => self.secure,
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Redirect::Elsewhere,
        };
        let mut next = HttpTarget { secure, ..self.clone() };
        match rest {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                let Some(address) = parse_authority(authority, secure) else { return Redirect::Elsewhere };
                if address.host != self.address.host {
                    return Redirect::Elsewhere;
                }
                next.path = request_path(path);
                next.host_header = authority.rsplit('@').next().unwrap_or_default().to_owned();
                next.address = address;
            }
            None => next.path = request_path(&self.relative(location)),
        }
        Redirect::Follow(Box::new(next))
    }

    fn relative(&self, location: &str) -> String {
        let current = self.path.split('?').next().unwrap_or_default();
        if location.is_empty() {
            return self.path.clone();
        }
        if location.starts_with('?') {
            return format!("{current}{location}");
        }
        let (path, query) = location.split_at(location.find('?').unwrap_or(location.len()));
        let whole = match path.starts_with('/') {
            true => Cow::Borrowed(path),
            false => {
                Cow::Owned(format!("{}/{path}", current.rsplit_once('/').map_or("", |(folder, _)| folder)))
            }
        };
        let mut parts: Vec<&str> = Vec::new();
        let mut segments = whole.split('/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            match segment {
                "." | ".." => {
                    if segment == ".." {
                        parts.pop();
                    }
                    if is_last {
                        parts.push("");
                    }
                }
                segment => parts.push(segment),
            }
        }
        format!("/{}{query}", parts.join("/"))
    }
}

impl std::fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A header may hold a password.
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpTarget").field("url", &self.url()).field("headers", &names).finish()
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

fn parse_authority(authority: &str, secure: bool) -> Option<Address> {
    let authority = authority.rsplit('@').next()?;
    let default = if secure { 443 } else { 80 };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None => default,
        };
        return Some(Address { host: host.to_owned(), port });
    }
    match authority.split_once(':') {
        Some((host, "")) => Some(Address { host: host.to_owned(), port: default }),
        Some((host, port)) => Some(Address { host: host.to_owned(), port: port.parse().ok()? }),
        None => Some(Address { host: authority.to_owned(), port: default }),
    }
}

/// The path and the query of a request, from what a manifest has: whatever else a URL may have is left out, and what
/// may not stand in a request is escaped.
fn request_path(text: &str) -> String {
    let text = text.split('#').next().unwrap_or_default();
    let after_host = match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => Some(rest),
        Some(_) | None => text.strip_prefix("//"),
    };
    let text = match after_host {
        Some(rest) => rest.find(['/', '?']).map_or("", |at| &rest[at..]),
        None => text,
    };
    let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
    let mut out = String::with_capacity(text.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    if has_bad_escape(path) {
        // Then it is taken as it is, the question mark too.
        escape(text, "%?", &mut out);
    } else {
        escape(path, "", &mut out);
        escape(query, "", &mut out);
    }
    out
}

fn has_bad_escape(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes();
        digits.len() < 2 || !digits[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

fn escape(text: &str, also: &str, out: &mut String) {
    for byte in text.bytes() {
        let letter = char::from(byte);
        let is_allowed = letter.is_ascii_graphic() && !"\"<>\\^`{|}".contains(letter);
        if is_allowed && !also.contains(letter) {
            out.push(letter);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::core::Pod;
    use crablet_api::testing::pod_yaml;
    use crablet_api::{FeatureGates, default_pod};

    fn pod(container: &str) -> Pod {
        let mut pod = pod_yaml(&format!("spec: {{containers: [{{name: c, image: i, {container}}}]}}"));
        default_pod(&mut pod, &FeatureGates::default());
        pod
    }

    fn ask(probe: &str) -> Result<Target, NoTarget> {
        let pod = pod(&format!(
            "livenessProbe: {probe}, ports: [{{name: web, containerPort: 8080}}, {{name: '81', containerPort: 82}}], \
             env: [{{name: A, value: one}}, {{name: S, valueFrom: {{secretKeyRef: {{name: s, key: k}}}}}}]"
        ));
        let container = &pod.spec.containers[0];
        target(container.liveness_probe.as_deref().unwrap(), container, "10.0.0.7")
    }

    fn tcp(host: &str, port: u16) -> Result<Target, NoTarget> {
        Ok(Target::Tcp(Address { host: host.into(), port }))
    }

    #[test]
    fn a_port_is_a_number_a_name_or_a_number_as_text() {
        for (port, expected) in [
            ("80", tcp("10.0.0.7", 80)),
            ("web", tcp("10.0.0.7", 8080)),
            ("'443'", tcp("10.0.0.7", 443)),
            ("'81'", tcp("10.0.0.7", 82)),
            ("other", Err(NoTarget::UnknownPort("other".into()))),
            ("70000", Err(NoTarget::InvalidPort(70000))),
            ("-1", Err(NoTarget::InvalidPort(-1))),
            ("0", Err(NoTarget::InvalidPort(0))),
        ] {
            assert_eq!(ask(&format!("{{tcpSocket: {{port: {port}}}}}")), expected, "{port}");
        }
        assert_eq!(ask("{tcpSocket: {port: web, host: db.local}}"), tcp("db.local", 8080));
        let words = NoTarget::UnknownPort("x".into()).to_string();
        assert_eq!(words, "strconv.Atoi: parsing \"x\": invalid syntax");
    }

    #[test]
    fn a_command_has_the_variables_replaced_that_the_container_spells_out() {
        let command = ask("{exec: {command: [sh, '$(A)-$(B)-$$(A)', '[$(S)]']}}");
        assert_eq!(command, Ok(Target::Exec(vec!["sh".into(), "one-$(B)-$(A)".into(), "[]".into()])));
    }

    #[test]
    fn a_grpc_probe_asks_the_pod_about_a_service() {
        let address = || Address { host: "10.0.0.7".into(), port: 90 };
        assert_eq!(
            ask("{grpc: {port: 90, service: shop}}"),
            Ok(Target::Grpc { address: address(), service: "shop".into() })
        );
        assert_eq!(
            ask("{grpc: {port: 90}}"),
            Ok(Target::Grpc { address: address(), service: String::new() })
        );
    }

    fn get(action: &str, pod_ip: &str) -> HttpTarget {
        let pod = pod(&format!("livenessProbe: {{httpGet: {{port: 80, {action}}}}}"));
        let container = &pod.spec.containers[0];
        match target(container.liveness_probe.as_deref().unwrap(), container, pod_ip) {
            Ok(Target::Http(http)) => http,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_url_is_made_from_what_the_manifest_has() {
        for (action, expected) in [
            ("", "http://10.0.0.7:80/"),
            ("path: /a/b?c=d&e", "http://10.0.0.7:80/a/b?c=d&e"),
            ("path: a", "http://10.0.0.7:80/a"),
            ("path: '/a#b'", "http://10.0.0.7:80/a"),
            ("path: '/a b'", "http://10.0.0.7:80/a%20b"),
            ("path: '/ä'", "http://10.0.0.7:80/%C3%A4"),
            ("path: '/%41%2F'", "http://10.0.0.7:80/%41%2F"),
            ("path: '/100%?x'", "http://10.0.0.7:80/100%25%3Fx"),
            ("path: 'http://elsewhere:99/a?b'", "http://10.0.0.7:80/a?b"),
            ("path: '//elsewhere/a'", "http://10.0.0.7:80/a"),
            ("path: '//elsewhere'", "http://10.0.0.7:80/"),
            ("path: '/a?to=http://elsewhere/b'", "http://10.0.0.7:80/a?to=http://elsewhere/b"),
            ("path: '://elsewhere/a'", "http://10.0.0.7:80/://elsewhere/a"),
            ("path: '/a%2'", "http://10.0.0.7:80/a%252"),
            ("path: '/a%2xb?c'", "http://10.0.0.7:80/a%252xb%3Fc"),
            ("path: '/a{b}?c=<%zz>'", "http://10.0.0.7:80/a%7Bb%7D?c=%3C%zz%3E"),
            ("scheme: HTTPS, path: /s", "https://10.0.0.7:80/s"),
            ("host: name.local", "http://name.local:80/"),
            ("host: '::1'", "http://[::1]:80/"),
        ] {
            assert_eq!(get(action, "10.0.0.7").url(), expected, "{action}");
        }
        assert_eq!(get("", "").url(), "http://:80/");
    }

    #[test]
    fn a_request_has_the_headers_of_the_manifest_and_a_few_of_its_own() {
        let headers = |list: &str| {
            let target = get(&format!("httpHeaders: [{list}]"), "fd00::7");
            let mut all = vec![format!("Host={}", target.host_header)];
            all.extend(target.headers.iter().map(|(name, value)| format!("{name}={value}")));
            all.join(" ")
        };
        for (list, expected) in [
            ("", "Host=[fd00::7]:80 User-Agent=kube-probe/1.36 Accept=*/*"),
            (
                "{name: Host, value: shop.example}, {name: X-A, value: '1'}, {name: x-a, value: '2'}",
                "Host=shop.example X-A=1 x-a=2 User-Agent=kube-probe/1.36 Accept=*/*",
            ),
            (
                "{name: user-agent, value: me}, {name: accept, value: text/plain}",
                "Host=[fd00::7]:80 user-agent=me accept=text/plain",
            ),
            ("{name: User-Agent, value: ''}, {name: Accept, value: ''}", "Host=[fd00::7]:80"),
            ("{name: Content-Length, value: '7'}", "Host=[fd00::7]:80 User-Agent=kube-probe/1.36 Accept=*/*"),
        ] {
            assert_eq!(headers(list), expected);
        }
    }

    #[test]
    fn a_hook_says_that_it_is_one() {
        let pod = pod("lifecycle: {preStop: {httpGet: {port: 80}}}");
        let container = &pod.spec.containers[0];
        let get = HTTPGetAction { port: 80.into(), ..HTTPGetAction::default() };
        let target = http_target(&get, container, "10.0.0.7", Purpose::Lifecycle).unwrap();
        assert_eq!(target.headers[0], ("User-Agent".into(), "kube-lifecycle/1.36".into()));
    }

    #[test]
    fn a_redirect_is_followed_on_the_same_host_alone() {
        let from = get("path: '/a/b?c', httpHeaders: [{name: Host, value: shop}]", "10.0.0.7");
        let follow = |location: &str| match from.redirect(location) {
            Redirect::Follow(next) => format!("{} {}", next.url(), next.host_header),
            Redirect::Elsewhere => "elsewhere".into(),
        };
        for (location, expected) in [
            ("/x?y#z", "http://10.0.0.7:80/x?y shop"),
            ("x", "http://10.0.0.7:80/a/x shop"),
            ("../x", "http://10.0.0.7:80/x shop"),
            ("./", "http://10.0.0.7:80/a/ shop"),
            ("?d", "http://10.0.0.7:80/a/b?d shop"),
            ("https://10.0.0.7:8443/s", "https://10.0.0.7:8443/s 10.0.0.7:8443"),
            ("https://10.0.0.7", "https://10.0.0.7:443/ 10.0.0.7"),
            ("//10.0.0.7:81/s", "http://10.0.0.7:81/s 10.0.0.7:81"),
            ("http://10.0.0.8/", "elsewhere"),
            ("//evil/", "elsewhere"),
            ("http://10.0.0.7@evil/", "elsewhere"),
            ("ftp://10.0.0.7/", "elsewhere"),
            ("http://10.0.0.7:port/", "elsewhere"),
            ("", "http://10.0.0.7:80/a/b?c shop"),
            ("..", "http://10.0.0.7:80/ shop"),
            ("x/../y?z=/..", "http://10.0.0.7:80/a/y?z=/.. shop"),
            ("../../../x", "http://10.0.0.7:80/x shop"),
            ("HTTP://10.0.0.7:/", "http://10.0.0.7:80/ 10.0.0.7:"),
            ("http://me@10.0.0.7/x", "http://10.0.0.7:80/x 10.0.0.7"),
            ("http://10.0.0.7?x", "http://10.0.0.7:80/?x 10.0.0.7"),
            ("/x?to=http://evil/", "http://10.0.0.7:80/x?to=http://evil/ shop"),
        ] {
            assert_eq!(follow(location), expected, "{location}");
        }
        let from = get("", "fd00::7");
        for (location, expected) in [
            ("http://[fd00::7]/x", Some("http://[fd00::7]:80/x")),
            ("http://[fd00::7]:81/x", Some("http://[fd00::7]:81/x")),
            ("https://[fd00::7]/x", Some("https://[fd00::7]:443/x")),
            ("http://[fd00::8]/x", None),
            ("http://[fd00::7/x", None),
            ("http://[fd00::7]:port/x", None),
        ] {
            let found = match from.redirect(location) {
                Redirect::Follow(next) => Some(next.url()),
                Redirect::Elsewhere => None,
            };
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn the_values_of_headers_are_not_shown() {
        let target = get("httpHeaders: [{name: Authorization, value: hunter2}]", "10.0.0.7");
        let shown = format!("{target:?}");
        assert!(shown.contains("http://10.0.0.7:80/") && shown.contains("Authorization"), "{shown}");
        assert!(!shown.contains("hunter2"));
    }
}
