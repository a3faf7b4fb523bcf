//! Whether the host's ports that a pod wants are free.

use crablet_api::core::{ContainerPort, Pod, Protocol};

use crate::restart::is_sidecar;

const ANY_ADDRESS: &str = "0.0.0.0";

/// Whether another pod has one of the ports that a pod wants.
pub(super) fn conflict(pod: &Pod, others: &[&Pod]) -> bool {
    host_ports(pod).any(|wanted| others.iter().any(|other| host_ports(other).any(|used| clash(wanted, used))))
}

/// Ports of init containers that end before the others run are free again by then.
pub fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| is_sidecar(container));
    let ports = sidecars.chain(&pod.spec.containers).flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0)
}

/// Whether two ports cannot both be had.
pub fn clash(wanted: &ContainerPort, used: &ContainerPort) -> bool {
    let (one, other) = (address(wanted), address(used));
    wanted.host_port == used.host_port
        && protocol(wanted) == protocol(used)
        && (one == ANY_ADDRESS || other == ANY_ADDRESS || one == other)
}

fn address(port: &ContainerPort) -> &str {
    if port.host_ip.is_empty() { ANY_ADDRESS } else { &port.host_ip }
}

fn protocol(port: &ContainerPort) -> &Protocol {
    port.protocol.as_ref().unwrap_or(&Protocol::Tcp)
}
