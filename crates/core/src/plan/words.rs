//! Plans in words, for people who ask why a pod is where it is.

use std::fmt::{Display, Formatter, Result};

use super::{Role, WaitingFor, WhyEnd, WhyNewSandbox};

impl Display for WhyNewSandbox {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            WhyNewSandbox::Missing => "it has none",
            WhyNewSandbox::SeveralReady => "several are ready, and only one may be",
            WhyNewSandbox::NotReady => "the one it had is not ready any more",
            WhyNewSandbox::OtherNetwork => "the one it has is in the wrong network",
            WhyNewSandbox::NoAddress => "the one it has has no IP address",
        })
    }
}

impl Display for WhyEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            WhyEnd::ContainersDone => f.write_str("no container runs and none is to be started again"),
            WhyEnd::InitContainerFailed { name } => {
                write!(f, "init container {name} failed and is not to be started again")
            }
            WhyEnd::SandboxLost => f.write_str("its sandbox is gone and its restart policy is Never"),
            WhyEnd::DeadlineExceeded => f.write_str("it was active for longer than its deadline allows"),
        }
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Role::Ephemeral => "ephemeral container",
            Role::Init => "init container",
            Role::Main => "container",
        })
    }
}

impl Display for WaitingFor {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            WaitingFor::Sandbox { why } => write!(f, "a new sandbox: {why}"),
            WaitingFor::InitContainer { name } => write!(f, "init container {name} to end"),
            WaitingFor::SidecarStartup { name } => {
                write!(f, "the startup probe of sidecar {name} to succeed")
            }
            WaitingFor::BackOff { role, name, until, .. } => {
                write!(f, "the back-off of {role} {name}, which failed, to be over at {until:.0}")
            }
            WaitingFor::RestartOfAll => f.write_str("all containers to be removed, to begin again"),
        }
    }
}
