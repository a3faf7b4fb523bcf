//! The addresses that the node is reached by: those of `--node-ip`, or what is found out, as upstream does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crablet_host::interfaces::{self, AddressChanges};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::node_facts::{self, LiveFacts};

/// What `--cloud-provider` says where a cloud's controllers know the node's addresses.
pub const EXTERNAL: &str = "external";
/// How long it is waited for more changes before they are looked at: a pod's network is several of them.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
/// How often addresses are looked for that could not be found.
const LOOKS_EVERY: Duration = Duration::from_secs(10);

/// What `--node-ip` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeIps {
    /// One, or one of each family. Alone, the unspecified address of a family says which one is preferred.
    pub given: Vec<IpAddr>,
    /// Those that are no addresses; nobody minds.
    pub not_understood: Vec<String>,
}

/// Why `--node-ip` cannot be used, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeIps {
    #[error("must contain either a single IP or a dual-stack pair of IPs")]
    NoPair,
    #[error("dual-stack not supported in this configuration")]
    NoDualStack,
    #[error("dual-stack node IP cannot include '0.0.0.0' or '::'")]
    Unspecified,
}

/// Why an address cannot be the node's, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    #[error("nodeIP can't be loopback address")]
    Loopback,
    #[error("nodeIP can't be a multicast address")]
    Multicast,
    #[error("nodeIP can't be a link-local unicast address")]
    LinkLocal,
    #[error("nodeIP can't be an all zeros address")]
    Unspecified,
    #[error("node IP: \"{0}\" not found in the host's network interfaces")]
    Elsewhere(IpAddr),
}

/// Why it is not known what the node is reached by, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAddresses {
    #[error("failed to validate nodeIP: {0}")]
    First(NotOurs),
    #[error("failed to validate secondaryNodeIP: {0}")]
    Second(NotOurs),
    #[error("can't get ip address of node {0}")]
    Unknown(String),
}

impl NodeIps {
    pub fn parse(text: &str, cloud_provider: &str) -> Result<NodeIps, BadNodeIps> {
        let mut ips = NodeIps::default();
        for word in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
            match parse_sloppily(word) {
                Some(ip) => ips.given.push(ip),
                None => ips.not_understood.push(word.to_owned()),
            }
        }
        match &*ips.given {
            [] | [_] => Ok(ips),
            [one, other] if one.is_ipv6() != other.is_ipv6() => match cloud_provider {
                "" | EXTERNAL if one.is_unspecified() || other.is_unspecified() => {
                    Err(BadNodeIps::Unspecified)
                }
                "" | EXTERNAL => Ok(ips),
                _ => Err(BadNodeIps::NoDualStack),
            },
            _ => Err(BadNodeIps::NoPair),
        }
    }

    /// Those that are addresses of a machine.
    pub fn specified(&self) -> impl Iterator<Item = IpAddr> {
        self.given.iter().copied().filter(|ip| !ip.is_unspecified())
    }
}

/// An address as Go reads it where it minds little: `010.0.0.1` is `10.0.0.1`.
fn parse_sloppily(word: &str) -> Option<IpAddr> {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let word = match word.contains(':') {
        true => word.to_owned(),
        false => word.split('.').map(plain).collect::<Vec<_>>().join("."),
    };
    word.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// What is found out about a machine.
#[derive(Debug, Clone, Default)]
struct Machine {
    /// The addresses of its interfaces.
    interfaces: Vec<IpAddr>,
    /// What the node's name resolves to.
    resolved: Vec<IpAddr>,
    /// From which addresses it would reach others, IPv4 first.
    outward: Vec<IpAddr>,
}

impl Machine {
    fn validate(&self, ip: IpAddr) -> Result<(), NotOurs> {
        let is_link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        match ip {
            ip if ip.is_loopback() => Err(NotOurs::Loopback),
            ip if ip.is_multicast() => Err(NotOurs::Multicast),
            _ if is_link_local => Err(NotOurs::LinkLocal),
            ip if ip.is_unspecified() => Err(NotOurs::Unspecified),
            ip if !self.interfaces.contains(&ip) => Err(NotOurs::Elsewhere(ip)),
            _ => Ok(()),
        }
    }

    fn addresses(&self, ips: &NodeIps, name: &str) -> Result<Vec<IpAddr>, NoAddresses> {
        let specified: Vec<IpAddr> = ips.specified().collect();
        for (ip, why) in specified.iter().zip([NoAddresses::First as fn(_) -> _, NoAddresses::Second]) {
            self.validate(*ip).map_err(why)?;
        }
        if !specified.is_empty() {
            return Ok(specified);
        }
        if let Some(ip) = parse_sloppily(name) {
            return Ok(vec![ip]);
        }
        let prefers_ipv6 = ips.given.first().is_some_and(IpAddr::is_ipv6);
        let best = |all: &[IpAddr]| {
            let preferred = all.iter().find(|ip| ip.is_ipv6() == prefers_ipv6);
            preferred.or(all.first()).copied()
        };
        let usable: Vec<IpAddr> =
            self.resolved.iter().copied().filter(|ip| self.validate(*ip).is_ok()).collect();
        let found = best(&usable).or_else(|| best(&self.outward));
        found.map(|ip| vec![ip]).ok_or_else(|| NoAddresses::Unknown(name.to_owned()))
    }
}

/// The node's addresses, by what `--node-ip` says.
pub struct NodeAddresses {
    pub ips: NodeIps,
    /// The node's name.
    pub name: String,
    /// Whether somebody else tells what they are, to the API server, unless some were given.
    pub is_external: bool,
}

impl NodeAddresses {
    /// The addresses as they are now. None where somebody else will tell.
    pub async fn look(&self) -> Result<Vec<IpAddr>, NoAddresses> {
        if self.is_external && self.ips.given.is_empty() {
            return Ok(Vec::new());
        }
        let interfaces = interfaces::addresses().unwrap_or_else(|error| {
            warn!(%error, "Cannot tell which addresses the machine has");
            Vec::new()
        });
        let mut machine = Machine { interfaces, ..Machine::default() };
        if self.ips.specified().next().is_none() && parse_sloppily(&self.name).is_none() {
            let resolved = tokio::net::lookup_host((self.name.as_str(), 0)).await;
            machine.resolved = resolved.into_iter().flatten().map(|address| address.ip()).collect();
            machine.outward = outward_addresses();
        }
        machine.addresses(&self.ips, &self.name)
    }

    /// Keeps what is known of them up to date, for ever. What cannot be told any more stays as it was.
    pub async fn keep(self, facts: LiveFacts, mut last: Result<Vec<IpAddr>, NoAddresses>) {
        let mut changes = match AddressChanges::watch() {
            Ok(changes) => Some(changes),
            Err(error) => {
                warn!(%error, "The node's addresses are not followed, but looked at now and then");
                None
            }
        };
        loop {
            match &mut changes {
                Some(followed) if last.is_ok() => {
                    if let Err(error) = followed.next().await {
                        warn!(%error, "The node's addresses are not followed any more, but looked at now and then");
                        changes = None;
                    }
                    sleep(SETTLES_WITHIN).await;
                }
                Some(_) | None => sleep(LOOKS_EVERY).await,
            }
            let now = self.look().await;
            if now == last {
                continue;
            }
            match &now {
                Ok(ips) => {
                    info!(?ips, "The node's addresses have changed");
                    let addresses = node_facts::node_addresses(&self.name, ips);
                    facts.change(|node| node.status.addresses = addresses);
                }
                Err(error) => warn!(%error, "It is not known any more what the node is reached by"),
            }
            last = now;
        }
    }
}

/// From which addresses the machine would reach others. No packet is sent to find out: connecting a datagram socket only
/// asks the kernel for a route.
fn outward_addresses() -> Vec<IpAddr> {
    // For documentation: nobody is there.
    let far_away = [
        IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    ];
    let towards = |to: IpAddr| {
        let any = match to {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(SocketAddr::from((to, 9))).ok()?;
        socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
    };
    far_away.into_iter().filter_map(towards).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ips(words: &[&str]) -> Vec<IpAddr> {
        words.iter().map(|word| ip(word)).collect()
    }

    #[test]
    fn a_node_ip_is_one_address_or_one_of_each_family() {
        for (text, cloud, expected) in [
            ("", "", Ok("")),
            ("10.0.0.1", "", Ok("10.0.0.1")),
            (" 010.0.00.1 , ", "", Ok("10.0.0.1")),
            ("::ffff:10.0.0.1", "", Ok("10.0.0.1")),
            ("0.0.0.0", "", Ok("0.0.0.0")),
            ("::", "aws", Ok("::")),
            ("10.0.0.1,fd00::1", "", Ok("10.0.0.1 fd00::1")),
            ("fd00::1, 10.0.0.1, here", "external", Ok("fd00::1 10.0.0.1")),
            ("here,there", "", Ok("")),
            ("10.0.0.1,fd00::1", "aws", Err("dual-stack not supported in this configuration")),
            ("10.0.0.1,::", "", Err("dual-stack node IP cannot include '0.0.0.0' or '::'")),
            ("10.0.0.1,10.0.0.2", "", Err("must contain either a single IP or a dual-stack pair of IPs")),
            (
                "10.0.0.1,fd00::1,fd00::2",
                "",
                Err("must contain either a single IP or a dual-stack pair of IPs"),
            ),
        ] {
            let parsed = NodeIps::parse(text, cloud).map_err(|error| error.to_string());
            let given =
                parsed.map(|ips| ips.given.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(given.as_deref().map_err(String::as_str), expected, "{text}");
        }
        assert_eq!(NodeIps::parse("here, 10.0.0.1", "").unwrap().not_understood, ["here"]);
    }

    #[test]
    fn what_the_node_is_reached_by_is_given_or_found_and_is_an_address_of_the_machine() {
        let machine = Machine {
            interfaces: ips(&["127.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1", "169.254.1.1", "fe80::1"]),
            resolved: ips(&["127.0.1.1", "192.0.2.9", "fd00::1"]),
            outward: ips(&["10.0.0.2", "fd00::1"]),
        };
        let elsewhere = Machine { resolved: ips(&["192.0.2.9"]), ..machine.clone() };
        let nowhere = Machine::default();
        for (machine, given, name, expected) in [
            (&machine, "10.0.0.1", "n", Ok("10.0.0.1")),
            (&machine, "fd00::1,10.0.0.1", "n", Ok("fd00::1 10.0.0.1")),
            (&machine, "127.0.0.1", "n", Err("failed to validate nodeIP: nodeIP can't be loopback address")),
            (
                &machine,
                "224.0.0.1",
                "n",
                Err("failed to validate nodeIP: nodeIP can't be a multicast address"),
            ),
            (
                &machine,
                "169.254.1.1",
                "n",
                Err("failed to validate nodeIP: nodeIP can't be a link-local unicast address"),
            ),
            (
                &machine,
                "10.0.0.1,fe80::1",
                "n",
                Err("failed to validate secondaryNodeIP: nodeIP can't be a link-local unicast address"),
            ),
            (
                &machine,
                "192.0.2.1",
                "n",
                Err(
                    "failed to validate nodeIP: node IP: \"192.0.2.1\" not found in the host's network interfaces",
                ),
            ),
            (&machine, "", "192.0.2.7", Ok("192.0.2.7")),
            (&machine, "", "n", Ok("fd00::1")),
            (&elsewhere, "", "n", Ok("10.0.0.2")),
            (&elsewhere, "0.0.0.0", "n", Ok("10.0.0.2")),
            (&elsewhere, "::", "n", Ok("fd00::1")),
            (&nowhere, "", "n", Err("can't get ip address of node n")),
        ] {
            let found = machine.addresses(&NodeIps::parse(given, "").unwrap(), name);
            let found = found
                .map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{given} {name}");
        }
        assert_eq!(nowhere.validate(ip("::")), Err(NotOurs::Unspecified));
    }
}
