//! Signals, as far as containers are stopped with them.

/// A signal that ends a program which does not handle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    Hangup,
    Interrupt,
    Quit,
    Kill,
    User1,
    User2,
    Terminate,
}

const NAMES: [(Signal, &str, i32); 7] = [
    (Signal::Hangup, "HUP", 1),
    (Signal::Interrupt, "INT", 2),
    (Signal::Quit, "QUIT", 3),
    (Signal::Kill, "KILL", 9),
    (Signal::User1, "USR1", 10),
    (Signal::User2, "USR2", 12),
    (Signal::Terminate, "TERM", 15),
];

impl Signal {
    /// Reads `TERM`, `SIGTERM` or `15`.
    pub(crate) fn parse(text: &str) -> Option<Signal> {
        let text = text.strip_prefix("SIG").unwrap_or(text);
        NAMES
            .into_iter()
            .find(|(_, name, number)| *name == text || text.parse() == Ok(*number))
            .map(|(signal, ..)| signal)
    }

    /// What a process exits with that the signal ends.
    pub(crate) fn exit_code(self) -> i32 {
        NAMES.into_iter().find(|(signal, ..)| *signal == self).map_or(128, |(.., number)| 128 + number)
    }
}
