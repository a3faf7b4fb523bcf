//! The promises of the design, as they can be seen from outside.
//!
//! - [`calls`]: what the agent asks of the runtime, before it is done: who is stopped, with how much time, in which
//!   order, and who is started.
//! - [`state`]: what the runtime runs and what the agent shows, after every step of the agent.
//! - [`end`]: what must be there when all is quiet, and what must not.

mod calls;
mod end;
mod state;

pub use calls::{Doing, check_call};
pub use end::{check_gone, check_settled};
pub use state::check_state;
