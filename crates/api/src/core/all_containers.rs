//! The containers of a pod, and their statuses, whichever list they are in.

use super::{Container, ContainerStatus, PodSpec, PodStatus};

impl PodSpec {
    /// Its init containers, and then the regular ones: all that it is made of.
    pub fn init_and_regular_containers(&self) -> impl Iterator<Item = &Container> + Clone {
        self.init_containers.iter().chain(&self.containers)
    }

    /// The same, to be written to.
    pub fn init_and_regular_containers_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        self.init_containers.iter_mut().chain(&mut self.containers)
    }

    /// The same, and then those that were added to look into it.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> + Clone {
        let ephemeral = self.ephemeral_containers.iter().map(|ephemeral| &ephemeral.container);
        self.init_and_regular_containers().chain(ephemeral)
    }

    /// Its init container or regular container of a name.
    pub fn find_container(&self, name: &str) -> Option<&Container> {
        self.init_and_regular_containers().find(|container| *container.name == *name)
    }
}

impl PodStatus {
    /// The statuses of its init containers, and then of the regular ones.
    pub fn init_and_regular_statuses(&self) -> impl Iterator<Item = &ContainerStatus> + Clone {
        self.init_container_statuses.iter().chain(&self.container_statuses)
    }

    /// The statuses of all its containers.
    pub fn all_statuses(&self) -> impl Iterator<Item = &ContainerStatus> + Clone {
        self.init_and_regular_statuses().chain(&self.ephemeral_container_statuses)
    }

    /// The status of its init container or regular container of a name.
    pub fn find_container_status(&self, name: &str) -> Option<&ContainerStatus> {
        self.init_and_regular_statuses().find(|status| *status.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::pod_yaml;

    #[test]
    fn containers_are_found_in_whichever_list_they_are() {
        let pod = pod_yaml(
            "spec: {initContainers: [{name: i}], containers: [{name: c}], ephemeralContainers: [{name: e}]}\n\
             status: {initContainerStatuses: [{name: i}], containerStatuses: [{name: c}]}",
        );
        let all: Vec<&str> = pod.spec.all_containers().map(|container| &*container.name).collect();
        assert_eq!(all, ["i", "c", "e"]);
        let found = |name: &str| {
            (pod.spec.find_container(name).is_some(), pod.status.find_container_status(name).is_some())
        };
        assert_eq!([found("i"), found("c"), found("e")], [(true, true), (true, true), (false, false)]);
    }
}
