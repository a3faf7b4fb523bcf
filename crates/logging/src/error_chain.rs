//! An error with its causes on one line.

use std::error::Error;
use std::fmt;

/// Displays an error and its causes as `outer: inner: innermost`.
///
/// Some errors already include their cause in their own message. Such a cause is not printed again.
///
/// ```
/// # let failure = std::io::Error::other("disk on fire");
/// tracing::error!(err = %crablet_logging::ErrorChain(&failure), "Could not write the checkpoint");
/// ```
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut message = self.0.to_string();
        formatter.write_str(&message)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let inner = error.to_string();
            if !message.contains(&inner) {
                write!(formatter, ": {inner}")?;
            }
            message = inner;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Link {
        message: &'static str,
        #[source]
        cause: Option<Box<Link>>,
    }

    fn chain(messages: &[&'static str]) -> Link {
        let (message, rest) = messages.split_first().unwrap();
        let cause = (!rest.is_empty()).then(|| Box::new(chain(rest)));
        Link { message, cause }
    }

    #[test]
    fn every_cause_is_printed_once() {
        let error = chain(&["start pod", "create sandbox", "connection refused"]);
        assert_eq!(ErrorChain(&error).to_string(), "start pod: create sandbox: connection refused");
    }

    #[test]
    fn a_cause_its_parent_already_names_is_not_repeated() {
        let error = chain(&[
            "start pod: create sandbox",
            "create sandbox",
            "rpc: connection refused",
            "connection refused",
        ]);
        assert_eq!(ErrorChain(&error).to_string(), "start pod: create sandbox: rpc: connection refused");
    }

    #[test]
    fn an_error_without_a_cause_prints_as_itself() {
        assert_eq!(ErrorChain(&chain(&["alone"])).to_string(), "alone");
    }
}
