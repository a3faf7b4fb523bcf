//! The promises of the design, as they can be seen from outside.
//!
//! - [`calls`]: what the agent asks of the runtime, before it is done: who is stopped, with how much time, in which
//!   order, and who is started.
//! - [`state`]: what the runtime runs and what the agent shows, after every step of the agent.
//! - [`allocations`]: what is allocated to pods, and whether they have it.
//! - [`server`]: what an API server shows, where there is one.
//! - [`storage`]: where volumes of CSI drivers are mounted. What drivers are asked for they check themselves.
//! - [`eviction`]: which pods a node that runs short of something ends.
//! - [`shutdown`]: which pods end when the machine is about to be shut down.
//! - [`end`]: what must be there when all is quiet, and what must not.

mod allocations;
mod calls;
mod end;
mod eviction;
mod server;
mod shutdown;
mod state;
mod storage;

pub use allocations::{check_allocated, check_resized};
pub use calls::{Doing, check_call};
pub use end::{check_gone, check_settled};
pub use eviction::{note_ranking, those_who_go};
pub use server::{check_none_shown, check_shown, older};
pub use shutdown::{note_no_shutdown, note_shutdown, periods};
pub use state::check_state;
pub use storage::{check_mounted, check_published, check_touched, check_unmounted};
