//! The simulated runtime, as a client sees it.

mod answers;
mod events;
mod faults;
mod life;
mod scale;
mod served;
mod support;
