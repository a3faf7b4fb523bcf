//! What there is to say about a translation that went well, but not quite as its pod asked.

/// An event to record, always a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub about: About,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Pod,
    Node,
}
