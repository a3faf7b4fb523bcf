//! The addresses of a pod and its node.

use std::net::IpAddr;

use crablet_api::core::{HostIP, PodIP, PodStatus};

use super::StatusInput;

/// The addresses of a pod in order: the first one of the node's primary family, then the first one of the other. A
/// runtime may list any number, in any order.
pub fn pod_ips<T: AsRef<str>>(reported: &[T], prefers_ipv6: bool) -> Vec<IpAddr> {
    let parsed: Vec<IpAddr> = reported.iter().filter_map(|ip| ip.as_ref().parse().ok()).collect();
    let first = |ipv6: bool| parsed.iter().find(move |ip| ip.is_ipv6() == ipv6);
    first(prefers_ipv6).into_iter().chain(first(!prefers_ipv6)).copied().collect()
}

pub(super) fn fill(input: &StatusInput, status: &mut PodStatus) {
    let node = input.node;
    let mut ips = observed_ips(input);
    if let [primary, ..] = node.host_ips.as_slice() {
        let host_ip = |ip: &IpAddr| HostIP { ip: ip.to_string().into() };
        status.host_ip = primary.to_string().into();
        status.host_ips = node.host_ips.iter().take(2).map(host_ip).collect();
        if input.pod.spec.host_network {
            add_host_ips(&mut ips, &node.host_ips);
        }
    }
    status.pod_ips = ips.iter().map(|ip| PodIP { ip: ip.to_string().into() }).collect();
    status.pod_ip = status.pod_ips.first().map(|first| first.ip.clone()).unwrap_or_default();
}

/// A pod whose sandboxes are all gone or stopped keeps the addresses it had.
fn observed_ips(input: &StatusInput) -> Vec<IpAddr> {
    let prefers_ipv6 = input.node.prefers_ipv6;
    let reported = input.observed.active_sandbox().map(|sandbox| sandbox.ips.as_slice()).unwrap_or_default();
    if reported.is_empty() && !input.observed.has_ready_sandbox() {
        let before: Vec<&str> = input.previous.pod_ips.iter().map(|ip| ip.ip.as_str()).collect();
        return pod_ips(&before, prefers_ipv6);
    }
    pod_ips(reported, prefers_ipv6)
}

/// A pod in the host's network has the host's addresses. Once set they stay, but for a second one that comes to be.
fn add_host_ips(ips: &mut Vec<IpAddr>, host_ips: &[IpAddr]) {
    if ips.is_empty() {
        ips.extend(host_ips.first());
    }
    if let ([only], [_, second]) = (ips.as_slice(), host_ips)
        && only.is_ipv6() != second.is_ipv6()
    {
        ips.push(*second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_family_is_kept_the_nodes_family_first() {
        let reported = ["fd00::2", "10.0.0.1", "10.0.0.2", "nonsense", "fd00::3"];
        let texts = |prefers| pod_ips(&reported, prefers).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(false), ["10.0.0.1", "fd00::2"]);
        assert_eq!(texts(true), ["fd00::2", "10.0.0.1"]);
        assert_eq!(pod_ips(&["10.0.0.1"], true).len(), 1);
    }

    #[test]
    fn a_host_that_gets_a_second_family_gives_it_to_its_pods() {
        let (four, six): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        for (before, expected) in
            [(vec![], vec![four, six]), (vec![four], vec![four, six]), (vec![six], vec![six])]
        {
            let mut ips = before.clone();
            add_host_ips(&mut ips, &[four, six]);
            assert_eq!(ips, expected, "{before:?}");
        }
    }
}
