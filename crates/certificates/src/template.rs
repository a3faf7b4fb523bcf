//! What is asked for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crablet_api::certificates::KeyUsage;
use crablet_api::core::{NodeAddress, NodeAddressType};
use crablet_x509::{AlternativeName, CertificateError, CertificateRequest, KeyPair, Subject};

/// Who signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    KubeApiserverClientKubelet,
    KubeletServing,
}

impl Signer {
    pub fn name(self) -> &'static str {
        match self {
            Signer::KubeApiserverClientKubelet => "kubernetes.io/kube-apiserver-client-kubelet",
            Signer::KubeletServing => "kubernetes.io/kubelet-serving",
        }
    }

    /// What the key is used for. RSA keys would encipher others as well; ours is not one.
    pub fn usages(self) -> [KeyUsage; 2] {
        match self {
            Signer::KubeApiserverClientKubelet => [KeyUsage::DigitalSignature, KeyUsage::ClientAuth],
            Signer::KubeletServing => [KeyUsage::DigitalSignature, KeyUsage::ServerAuth],
        }
    }
}

/// What a certificate is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: Vec<AlternativeName>,
}

impl Template {
    /// A node, as the API server knows it.
    pub fn of_node(name: &str) -> Template {
        Template {
            common_name: format!("system:node:{name}"),
            organizations: vec!["system:nodes".to_owned()],
            names: Vec::new(),
        }
    }

    /// A node that serves at its addresses. None if there are none to speak of: without an IP address nobody is asked,
    /// unless the gate `AllowDNSOnlyNodeCSR` says so.
    pub fn serving(node: &str, addresses: &[NodeAddress], allow_dns_only: bool) -> Option<Template> {
        let (mut names, mut ips) = (BTreeSet::new(), BTreeSet::new());
        for address in addresses.iter().filter(|address| !address.address.is_empty()) {
            let ip = || address.address.parse::<IpAddr>().ok();
            match &address.r#type {
                NodeAddressType::Hostname => match ip() {
                    Some(ip) => drop(ips.insert(ip.to_string())),
                    None => drop(names.insert(address.address.to_string())),
                },
                NodeAddressType::InternalIp | NodeAddressType::ExternalIp => {
                    ips.extend(ip().map(|ip| ip.to_string()))
                }
                NodeAddressType::InternalDns | NodeAddressType::ExternalDns => {
                    names.insert(address.address.to_string());
                }
                NodeAddressType::Other(_) => {}
            }
        }
        let is_enough = !ips.is_empty() || (allow_dns_only && !names.is_empty());
        if !is_enough {
            return None;
        }
        let names = names.into_iter().map(AlternativeName::Dns);
        let ips = ips.iter().filter_map(|ip| ip.parse().ok()).map(AlternativeName::Ip);
        Some(Template { names: names.chain(ips).collect(), ..Template::of_node(node) })
    }

    /// The request, in PEM.
    pub(crate) fn request(&self, key: &KeyPair) -> Result<String, CertificateError> {
        let groups: Vec<&str> = self.organizations.iter().map(String::as_str).collect();
        CertificateRequest::make(key, Subject { name: &self.common_name, groups: &groups }, &self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serving_certificate_is_for_the_nodes_addresses_in_a_steady_order() {
        use NodeAddressType::{ExternalDns, ExternalIp, Hostname, InternalIp};
        let serving = |addresses: &[(NodeAddressType, &str)], allow_dns_only| {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|(kind, address)| NodeAddress { r#type: kind.clone(), address: (*address).into() })
                .collect();
            Template::serving("n", &addresses, allow_dns_only).map(|template| template.names)
        };
        let names = |names: &[&str]| Some(names.iter().map(|name| AlternativeName::of(name)).collect());
        for (addresses, allow_dns_only, expected) in [
            (&[][..], true, None),
            (&[(Hostname, "n")], false, None),
            (&[(Hostname, "n")], true, names(&["n"])),
            (&[(InternalIp, "junk"), (Hostname, "")], true, None),
            (&[(Hostname, "192.0.2.9")], false, names(&["192.0.2.9"])),
            (
                &[
                    (InternalIp, "192.0.2.2"),
                    (ExternalDns, "b"),
                    (ExternalIp, "192.0.2.10"),
                    (Hostname, "a"),
                    (Hostname, "a"),
                ],
                false,
                names(&["a", "b", "192.0.2.10", "192.0.2.2"]),
            ),
        ] {
            assert_eq!(serving(addresses, allow_dns_only), expected, "{addresses:?}");
        }
    }
}
