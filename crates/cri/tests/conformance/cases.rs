//! The list of cases.

mod concurrent;
mod containers;
mod exec;
mod exits;
mod filters;
mod hints;
mod images;
mod logs;
mod node;
mod pulls;
mod restarts;
mod sandboxes;

use std::pin::Pin;

use expect_test::Expect;

use crate::world::World;

/// A container that runs until it is killed: it is the first process of its namespace, and handles no signal.
const FOREVER: &str = "exec sleep 100000";
/// A container that says when it listens, and ends well when it is asked to.
const UNTIL_ASKED: &str = "trap 'echo asked; exit 0' TERM; echo ready; sleep 100000 & wait";

/// Something that holds on every runtime.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// Whether it needs a runtime of its own, because it kills it.
    pub kills_the_runtime: bool,
    pub run: for<'a> fn(&'a World) -> Pin<Box<dyn Future<Output = Expect> + Send + 'a>>,
}

/// All cases.
pub fn all() -> Vec<Case> {
    [
        sandboxes::cases(),
        containers::cases(),
        exits::cases(),
        exec::cases(),
        filters::cases(),
        logs::cases(),
        images::cases(),
        pulls::cases(),
        node::cases(),
        hints::cases(),
        concurrent::cases(),
        restarts::cases(),
    ]
    .concat()
}

/// The cases of a module.
macro_rules! cases {
    (kills_the_runtime = $kills:literal; $($name:ident),* $(,)?) => {
        pub fn cases() -> Vec<$crate::cases::Case> {
            vec![$($crate::cases::Case {
                name: stringify!($name),
                kills_the_runtime: $kills,
                run: |world| Box::pin($name(world)),
            }),*]
        }
    };
    ($($name:ident),* $(,)?) => {
        cases!(kills_the_runtime = false; $($name),*);
    };
}
use cases;
