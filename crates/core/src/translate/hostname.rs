//! What a pod is called: its host name and its domain.

use crablet_api::core::Pod;
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors};

use super::go_quote;

/// What fits into a host name beside the byte that ends it.
const HOSTNAME_MAX: usize = 63;
/// What fits into the kernel's field for a node name.
const FQDN_MAX: usize = 64;

/// What a pod is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// Its name within its domain.
    pub host: String,
    /// Its domain; empty where it has none.
    pub domain: String,
}

/// Why a pod cannot be called anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    /// The name that overrides all others is none.
    #[error("pod HostnameOverride {} is not a valid DNS subdomain: {}", go_quote(name), errors.join(";"))]
    Override {
        name: String,
        /// What is wrong with it.
        errors: Vec<String>,
    },
    /// The host name is none.
    #[error("pod Hostname {} is not a valid DNS label: {}", go_quote(name), errors.join(";"))]
    Hostname {
        name: String,
        /// What is wrong with it.
        errors: Vec<String>,
    },
    /// The subdomain is none.
    #[error("pod Subdomain {} is not a valid DNS label: {}", go_quote(name), errors.join(";"))]
    Subdomain {
        name: String,
        /// What is wrong with it.
        errors: Vec<String>,
    },
    /// Nothing is left of the name when it is cut to its length.
    #[error("hostname for pod {} was invalid: {}", go_quote(pod), go_quote(name))]
    Empty { pod: String, name: String },
    /// The host name and the domain together are too long.
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({FQDN_MAX} \
         characters is the max, {} characters requested)", fqdn.len()
    )]
    TooLong {
        /// The two together.
        fqdn: String,
    },
}

impl HostName {
    /// What a pod is called.
    pub fn of_pod(
        pod: &Pod,
        cluster_domain: &str,
        override_enabled: bool,
    ) -> Result<HostName, HostNameError> {
        let spec = &pod.spec;
        if let Some(name) = spec.hostname_override.as_ref().filter(|_| override_enabled) {
            let errors = dns1123_subdomain_errors(name);
            if !errors.is_empty() {
                return Err(HostNameError::Override { name: name.to_string(), errors });
            }
            return Ok(HostName { host: shortened(pod, name)?, domain: String::new() });
        }
        let name = if spec.hostname.is_empty() { &pod.metadata.name } else { &spec.hostname };
        if !spec.hostname.is_empty() {
            let errors = dns1123_label_errors(name);
            if !errors.is_empty() {
                return Err(HostNameError::Hostname { name: name.to_string(), errors });
            }
        }
        let host = shortened(pod, name)?;
        if spec.subdomain.is_empty() {
            return Ok(HostName { host, domain: String::new() });
        }
        let errors = dns1123_label_errors(&spec.subdomain);
        if !errors.is_empty() {
            return Err(HostNameError::Subdomain { name: spec.subdomain.to_string(), errors });
        }
        let domain = format!("{}.{}.svc.{cluster_domain}", spec.subdomain, pod.metadata.namespace);
        Ok(HostName { host, domain })
    }

    /// What the kernel is told: the host name alone, or with its domain where the pod asks for that.
    pub fn for_kernel(self, set_hostname_as_fqdn: bool) -> Result<String, HostNameError> {
        if !set_hostname_as_fqdn || self.domain.is_empty() {
            return Ok(self.host);
        }
        let fqdn = format!("{}.{}", self.host, self.domain);
        match fqdn.len() > FQDN_MAX {
            true => Err(HostNameError::TooLong { fqdn }),
            false => Ok(fqdn),
        }
    }
}

fn shortened(pod: &Pod, name: &str) -> Result<String, HostNameError> {
    let Some(start) = name.get(..HOSTNAME_MAX.min(name.len())) else {
        return Err(HostNameError::Empty { pod: pod.metadata.name.to_string(), name: name.to_owned() });
    };
    if start.len() == name.len() {
        return Ok(start.to_owned());
    }
    match start.trim_end_matches(['-', '.']) {
        "" => Err(HostNameError::Empty { pod: pod.metadata.name.to_string(), name: name.to_owned() }),
        start => Ok(start.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod;
    use proptest::prelude::*;

    use super::*;

    fn made(name: &str, change: impl FnOnce(&mut Pod)) -> Result<(String, String), String> {
        let mut pod = pod(name).namespace("ns").build();
        change(&mut pod);
        HostName::of_pod(&pod, "cluster.local", true)
            .map(|name| (name.host, name.domain))
            .map_err(|error| error.to_string())
    }

    fn host(name: &str, change: impl FnOnce(&mut Pod)) -> String {
        made(name, change).unwrap().0
    }

    #[test]
    fn a_pod_is_called_by_its_name_or_as_it_asks() {
        assert_eq!(made("web", |_| {}).unwrap(), ("web".to_owned(), String::new()));
        assert_eq!(host("web", |pod| pod.spec.hostname = "h".into()), "h");
        let sub = made("web", |pod| pod.spec.subdomain = "sub".into()).unwrap();
        assert_eq!(sub, ("web".to_owned(), "sub.ns.svc.cluster.local".to_owned()));
        let overridden = made("web", |pod| {
            pod.spec.hostname = "h".into();
            pod.spec.subdomain = "sub".into();
            pod.spec.hostname_override = Some("a.b".into());
        });
        assert_eq!(overridden.unwrap(), ("a.b".to_owned(), String::new()));
    }

    #[test]
    fn an_override_counts_only_where_its_feature_is_on() {
        let mut pod = pod("web").build();
        pod.spec.hostname_override = Some("a.b".into());
        assert_eq!(HostName::of_pod(&pod, "", false).unwrap().host, "web");
    }

    #[test]
    fn long_names_are_cut_and_end_in_a_letter() {
        assert_eq!(host(&"a".repeat(63), |_| {}), "a".repeat(63));
        assert_eq!(host(&"a".repeat(64), |_| {}), "a".repeat(63));
        assert_eq!(host(&format!("{}.-.{}", "a".repeat(60), "b".repeat(9)), |_| {}), "a".repeat(60));
        let error = made(&".".repeat(64), |_| {}).unwrap_err();
        assert!(error.starts_with("hostname for pod \"....") && error.contains("was invalid: \"..."));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        let error = made("web", |pod| pod.spec.hostname = "A.b".into()).unwrap_err();
        assert!(
            error.starts_with("pod Hostname \"A.b\" is not a valid DNS label: a lowercase RFC 1123"),
            "{error}"
        );
        let error = made("web", |pod| pod.spec.subdomain = "a.b".into()).unwrap_err();
        assert!(error.starts_with("pod Subdomain \"a.b\" is not a valid DNS label: "), "{error}");
        let error = made("web", |pod| pod.spec.hostname_override = Some("_".into())).unwrap_err();
        assert!(error.starts_with("pod HostnameOverride \"_\" is not a valid DNS subdomain: "), "{error}");
    }

    #[test]
    fn a_full_name_of_64_characters_fits() {
        let name = |host: usize| HostName { host: "a".repeat(host), domain: "b".repeat(40) };
        assert_eq!(name(23).for_kernel(true).unwrap().len(), 64);
        assert_eq!(name(24).for_kernel(false).unwrap(), "a".repeat(24));
        assert_eq!(
            name(24).for_kernel(true).unwrap_err().to_string(),
            format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {}.{} is too long (64 \
                 characters is the max, 65 characters requested)",
                "a".repeat(24),
                "b".repeat(40)
            )
        );
    }

    proptest! {
        #[test]
        fn a_host_name_is_the_beginning_of_what_was_asked_for(name in "[a-z]([-a-z.]{0,80}[a-z])?") {
            let host = host(&name, |_| {});
            prop_assert!(name.starts_with(&host) && host.len() <= HOSTNAME_MAX);
            prop_assert!(host.ends_with(|last: char| last.is_ascii_lowercase()));
        }
    }
}
