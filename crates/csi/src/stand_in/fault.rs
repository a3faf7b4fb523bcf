//! What goes wrong, when told to.

use std::time::Duration;

use tonic::{Code, Status};

use super::Inner;

/// Trouble with a method.
#[derive(Debug, Clone)]
pub struct Fault {
    pub trouble: Trouble,
    pub moment: Moment,
    /// How many calls it befalls; all if not given.
    pub times: Option<usize>,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// It answers with an error.
    Fail { code: Code, message: String },
    /// It never answers.
    Hang,
    /// It answers late.
    Delay(Duration),
    /// It dies. Its sockets stay.
    Die,
}

/// Whether what was asked for happens nonetheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    BeforeEffect,
    AfterEffect,
}

impl Fault {
    /// The next so many calls fail and do nothing.
    pub fn fail(code: Code, message: &str, times: usize) -> Fault {
        let trouble = Trouble::Fail { code, message: message.to_owned() };
        Fault { trouble, moment: Moment::BeforeEffect, times: Some(times) }
    }

    /// Every call fails and does nothing.
    pub fn always_fail(code: Code, message: &str) -> Fault {
        Fault { times: None, ..Fault::fail(code, message, 0) }
    }

    /// The next call does nothing, for ever.
    pub fn hang() -> Fault {
        Fault { trouble: Trouble::Hang, moment: Moment::BeforeEffect, times: Some(1) }
    }

    /// The next call takes effect and is answered late.
    pub fn late(by: Duration) -> Fault {
        Fault { trouble: Trouble::Delay(by), moment: Moment::AfterEffect, times: Some(1) }
    }

    /// The driver dies of the next call, which has taken effect or has not.
    pub fn die(moment: Moment) -> Fault {
        Fault { trouble: Trouble::Die, moment, times: Some(1) }
    }
}

/// A fault and where it is to happen.
pub(super) struct Plan {
    pub(super) method: String,
    pub(super) fault: Fault,
}

impl Inner {
    /// The trouble with the next call of a method.
    pub(super) fn next_fault(&self, method: &str) -> Option<Fault> {
        let mut plans = self.plans();
        let plan = plans.iter_mut().find(|plan| plan.method == method && plan.fault.times != Some(0))?;
        if let Some(times) = &mut plan.fault.times {
            *times -= 1;
        }
        Some(plan.fault.clone())
    }

    pub(super) async fn suffer(&self, trouble: &Trouble) -> Result<(), Status> {
        match trouble {
            Trouble::Fail { code, message } => Err(Status::new(*code, message)),
            Trouble::Hang => std::future::pending().await,
            Trouble::Delay(by) => {
                tokio::time::sleep(*by).await;
                Ok(())
            }
            Trouble::Die => {
                self.kill();
                std::future::pending().await
            }
        }
    }
}
