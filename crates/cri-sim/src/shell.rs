//! What containers run whose image has no [`Program`](super::Program) of its own: a small part of busybox, so that one
//! test runs on the simulator and on a real runtime.
//!
//! - Programs: `sh -c`, `sleep`, `true`, `false`, `echo` (`-n`), `printf`, `cat`, `env`, `touch`, `rm`, `test` and `[`
//!   (`-e`, `-f`, `-n`, `-z`, `=`, `!=`), `tail /dev/zero` (which uses all the memory it can get), and `/pause`.
//! - In `sh`: those, `:`, `exit`, `trap`, `kill`, `wait`, `break`, `exec`, `while … do … done`, `until`, `if … then … else … fi`;
//!   `;`, `&&`, `||`, `&` (for `sleep`), line ends; quotes, `$NAME`, `${NAME}`, `$?` and `NAME=value`; `>`, `>>`, `>&2`,
//!   `2>` and `2>&1`.
//! - Anything else: `sh: x: not found` and 127, as busybox has it for a program that is not there; a syntax error (2)
//!   for what the parser does not know, such as pipes.
//!
//! As in Linux, the first process of a PID namespace that has no handler for a signal does not get it: with a PID
//! namespace of its own, `sleep 1000` ends only by SIGKILL. As in busybox, a trap runs when the command in the
//! foreground has ended; `wait` ends at once.

pub(crate) mod applets;
pub(crate) mod machine;
pub(crate) mod parse;
mod signal;

pub(crate) use machine::{Host, Machine, Stream};
pub(crate) use signal::Signal;
