//! Kernel parameters of a pod: which it may set.

use std::borrow::Cow;

use crablet_api::core::Pod;

use super::go_quote;

/// Parameters that have an effect on their own pod alone, with the first kernel for which that is so.
const SAFE: &[(&str, (u32, u32))] = &[
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// Parameters of the IPC namespace; `net.` and `fs.mqueue.` are known by their beginnings.
const IPC: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Which kernel parameters pods may set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SysctlAllowlist {
    exact: Vec<(String, Namespace)>,
    prefixes: Vec<(String, Namespace)>,
}

/// Why a pattern of kernel parameters cannot be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SysctlPatternError {
    /// It is not a pattern.
    #[error(
        "sysctl {} must have at most 253 characters and match regex \
         ([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]", go_quote(.0)
    )]
    Malformed(String),
    /// It would have an effect on the whole node.
    #[error("the sysctls {} are not known to be namespaced", go_quote(.0))]
    NotNamespaced(String),
}

/// A pod asks for a kernel parameter that it may not set. Its reason in a pod's status is
/// [`ForbiddenSysctl::REASON`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenSysctl {
    /// It is not on the list.
    #[error("forbidden sysctl: {} not allowlisted", go_quote(.0))]
    NotAllowed(String),
    /// It would be set for the whole node, whose namespace the pod shares.
    #[error("forbidden sysctl: {} not allowed with host {namespace} enabled", go_quote(name))]
    HostNamespace {
        /// The parameter.
        name: String,
        /// The namespace it belongs to.
        namespace: &'static str,
    },
}

impl ForbiddenSysctl {
    /// Why the pod is rejected, in one word.
    pub const REASON: &'static str = "SysctlForbidden";
}

impl SysctlAllowlist {
    /// The parameters that are safe with that kernel (major and minor version), and those that an administrator
    /// allows beside them. Of a kernel that is not known, only what was safe ever since is taken.
    pub fn new(
        kernel: Option<(u32, u32)>,
        allowed_unsafe: &[impl AsRef<str>],
    ) -> Result<SysctlAllowlist, SysctlPatternError> {
        let mut list = SysctlAllowlist::default();
        let kernel = kernel.unwrap_or((0, 0));
        for (name, since) in SAFE {
            if kernel >= *since {
                list.add(name)?;
            }
        }
        for pattern in allowed_unsafe {
            let pattern = pattern.as_ref();
            if !is_pattern(pattern) {
                return Err(SysctlPatternError::Malformed(pattern.to_owned()));
            }
            list.add(pattern)?;
        }
        Ok(list)
    }

    /// Whether a pod may set what it asks for.
    pub fn admit(&self, pod: &Pod) -> Result<(), ForbiddenSysctl> {
        let Some(context) = &pod.spec.security_context else { return Ok(()) };
        context.sysctls.iter().try_for_each(|sysctl| self.check(&sysctl.name, pod))
    }

    fn check(&self, name: &str, pod: &Pod) -> Result<(), ForbiddenSysctl> {
        let name = normalized(name);
        let found = (self.exact.iter().find(|(known, _)| *known == name))
            .or_else(|| self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix.as_str())));
        let shared = match found {
            None => return Err(ForbiddenSysctl::NotAllowed(name.into_owned())),
            Some((_, Namespace::Ipc)) => pod.spec.host_ipc,
            Some((_, Namespace::Net)) => pod.spec.host_network,
        };
        match found {
            Some((_, namespace)) if shared => {
                Err(ForbiddenSysctl::HostNamespace { name: name.into_owned(), namespace: namespace.as_str() })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn add(&mut self, pattern: &str) -> Result<(), SysctlPatternError> {
        let pattern = normalized(pattern);
        let (name, list) = match pattern.split_once('*') {
            Some((prefix, _)) => (prefix, &mut self.prefixes),
            None => (pattern.as_ref(), &mut self.exact),
        };
        match Namespace::of(name) {
            Some(namespace) => {
                list.push((name.to_owned(), namespace));
                Ok(())
            }
            None => Err(SysctlPatternError::NotNamespaced(name.to_owned())),
        }
    }
}

/// A parameter's name with dots between its parts. Slashes may be written for dots, and dots for slashes then.
pub fn normalized(name: &str) -> Cow<'_, str> {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes()[first] == b'/' => Cow::Owned(
            name.chars()
                .map(|character| match character {
                    '.' => '/',
                    '/' => '.',
                    other => other,
                })
                .collect(),
        ),
        Some(_) | None => Cow::Borrowed(name),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl Namespace {
    fn of(name: &str) -> Option<Namespace> {
        if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
            Some(Namespace::Ipc)
        } else if name.starts_with("net.") {
            Some(Namespace::Net)
        } else {
            None
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Namespace::Ipc => "IPC",
            Namespace::Net => "Net",
        }
    }
}

/// Parts of lower-case letters, digits, `-` and `_` with dots or slashes between them; the last may end in `*`.
fn is_pattern(pattern: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_edge(byte) || matches!(byte, b'-' | b'_');
    let mut parts = pattern.split(['.', '/']).map(str::as_bytes).rev();
    let last_fits = match parts.next() {
        Some([only]) => is_edge(*only) || *only == b'*',
        Some([first, inner @ .., last]) => {
            is_edge(*first) && inner.iter().all(|byte| is_inner(*byte)) && (is_edge(*last) || *last == b'*')
        }
        Some([]) | None => false,
    };
    pattern.len() <= 253
        && last_fits
        && parts.all(|part| match part {
            [only] => is_edge(*only),
            [first, inner @ .., last] => {
                is_edge(*first) && is_edge(*last) && inner.iter().all(|byte| is_inner(*byte))
            }
            [] => false,
        })
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    const NONE: [&str; 0] = [];

    fn admitted(list: &SysctlAllowlist, name: &str, spec: &str) -> String {
        let pod = pod_yaml(&format!(
            "metadata: {{name: p}}\nspec: {{securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}, {spec}}}"
        ));
        list.admit(&pod).map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn safe_parameters_are_allowed_and_others_are_not() {
        let list = SysctlAllowlist::new(Some((5, 10)), &NONE).unwrap();
        assert_eq!(admitted(&list, "net.ipv4.tcp_syncookies", ""), "ok");
        assert_eq!(admitted(&list, "net/ipv4/tcp_syncookies", ""), "ok");
        assert_eq!(admitted(&list, "net.ipv4.tcp_rmem", ""), "ok");
        assert_eq!(
            admitted(&list, "kernel.msgmax", ""),
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted"
        );
        let old = SysctlAllowlist::new(Some((4, 14)), &NONE).unwrap();
        assert_eq!(
            admitted(&old, "net.ipv4.tcp_rmem", ""),
            "forbidden sysctl: \"net.ipv4.tcp_rmem\" not allowlisted"
        );
        assert_eq!(admitted(&old, "net.ipv4.tcp_fin_timeout", ""), "ok");
        let unknown = SysctlAllowlist::new(None, &NONE).unwrap();
        assert_eq!(admitted(&unknown, "net.ipv4.tcp_syncookies", ""), "ok");
        assert_ne!(admitted(&unknown, "net.ipv4.tcp_keepalive_time", ""), "ok");
        assert_eq!(ForbiddenSysctl::REASON, "SysctlForbidden");
    }

    #[test]
    fn a_pod_that_shares_the_nodes_namespace_may_not_set_its_parameters() {
        let list = SysctlAllowlist::new(Some((5, 10)), &["kernel.msg*"]).unwrap();
        assert_eq!(
            admitted(&list, "net.ipv4.tcp_syncookies", "hostNetwork: true"),
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"
        );
        assert_eq!(
            admitted(&list, "kernel.msgmax", "hostIPC: true"),
            "forbidden sysctl: \"kernel.msgmax\" not allowed with host IPC enabled"
        );
        assert_eq!(admitted(&list, "kernel.msgmax", "hostNetwork: true"), "ok");
    }

    #[test]
    fn patterns_of_an_administrator_are_checked() {
        let error = |pattern: &str| {
            SysctlAllowlist::new(None, &[pattern]).map_or_else(|error| error.to_string(), |_| "ok".to_owned())
        };
        let longest = format!("net.{}", "a".repeat(249));
        for pattern in ["kernel.shm*", "net.core.somaxconn", "net/core/*", "fs.mqueue.*", "net.ipv4.a-b_c*"]
            .into_iter()
            .chain(["net.a", "net.a.b", "net.4.a_b.c", "kernel.sem", &longest])
        {
            assert_eq!(error(pattern), "ok", "{pattern}");
        }
        let too_long = format!("{longest}a");
        for pattern in ["", "net.", "Net.x", "net.*.x", "net.-a", "net.a-", "net.**"].into_iter().chain([
            "net.A",
            "net.A.b",
            "net.-.b",
            "net._a.b",
            "net.a_.b",
            "net.a!b.c",
            "net.a!b",
            "net..a",
            &too_long,
        ]) {
            assert!(error(pattern).starts_with("sysctl \""), "{pattern}: {}", error(pattern));
        }
        for (pattern, name) in
            [("kernel.*", "kernel."), ("vm.swappiness", "vm.swappiness"), ("*", ""), ("net*", "net")]
        {
            assert_eq!(error(pattern), format!("the sysctls \"{name}\" are not known to be namespaced"));
        }
    }

    #[test]
    fn slashes_and_dots_change_places() {
        assert_eq!(normalized("net/ipv4/conf/eno2.100/rp_filter"), "net.ipv4.conf.eno2/100.rp_filter");
        assert_eq!(normalized("net.ipv4.conf.eno2/100.rp_filter"), "net.ipv4.conf.eno2/100.rp_filter");
        assert_eq!(normalized(""), "");
    }
}
