//! Text that is nobody's business.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A token, a password or the like. Its `Debug` says that it is there, and not what.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// The text itself, for who has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.into())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_empty() { "\"\"" } else { "<hidden>" })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        Box::deserialize(deserializer).map(Secret)
    }
}
