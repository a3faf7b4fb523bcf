//! What containers do, said by the name of their image.

use std::time::Duration;

use crablet_cri_sim::{Image, Program};

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs until it is asked to stop.
    Forever,
    /// Runs until it is killed.
    Stubborn,
    /// Ends by itself with a code, after some seconds.
    Exits {
        code: i32,
        /// The seconds.
        after: u64,
    },
    /// Never runs: there is no such image.
    Missing,
}

impl Behaviour {
    /// By the name of an image.
    pub fn of(image: &str) -> Behaviour {
        let name = image.split(':').next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        let mut words = name.split('-');
        match words.next() {
            Some("forever" | "pulled") => Behaviour::Forever,
            Some("stubborn") => Behaviour::Stubborn,
            Some("exits") => {
                let mut number = || words.next().and_then(|word| word.parse::<u8>().ok()).unwrap_or_default();
                Behaviour::Exits { code: i32::from(number()), after: u64::from(number()) }
            }
            _ => Behaviour::Missing,
        }
    }

    fn program(self) -> Program {
        match self {
            Behaviour::Forever | Behaviour::Missing => Program::run_forever(),
            Behaviour::Stubborn => Program::run_forever().ignoring_term(),
            Behaviour::Exits { code, after } => Program::exit_after(Duration::from_secs(after), code),
        }
    }
}

/// The images that are there.
pub const PRESENT: &[&str] = &[
    "sim/forever:1",
    "sim/forever:2",
    "sim/stubborn:1",
    "sim/stubborn:2",
    "sim/exits-0-0:1",
    "sim/exits-0-3:1",
    "sim/exits-0-60:1",
    "sim/exits-1-0:1",
    "sim/exits-1-3:1",
    "sim/exits-1-40:1",
];
/// The image that can be pulled.
pub const PULLED: &str = "sim/pulled:1";
/// The image that cannot.
pub const MISSING: &str = "sim/missing:1";

/// An image with its behaviour.
pub fn image(name: &str) -> Image {
    Image::new(name).entrypoint(["/program"]).program(Behaviour::of(name).program())
}
