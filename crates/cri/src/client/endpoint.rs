//! Which socket is meant.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

/// What the kernel keeps room for in a socket's address, less the final zero.
const LONGEST_PATH: usize = 107;

/// A unix socket that a runtime listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// As it is written in configurations and errors.
    pub(crate) name: Arc<str>,
    path: PathBuf,
}

impl Endpoint {
    /// `unix:///path`, or a bare absolute path, as upstream accepts it too.
    pub(crate) fn parse(text: &str) -> Result<Endpoint> {
        let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(Error::BadEndpoint { endpoint: text.to_owned() });
        }
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(Error::PathTooLong { path: path.to_owned(), limit: LONGEST_PATH });
        }
        Ok(Endpoint { name: format!("unix://{}", path.display()).into(), path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_its_socket_with_or_without_the_scheme() {
        for text in ["unix:///run/x.sock", "/run/x.sock"] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.path(), Path::new("/run/x.sock"));
            assert_eq!(&*endpoint.name, "unix:///run/x.sock");
        }
    }

    #[test]
    fn what_names_no_unix_socket_is_refused() {
        for text in
            ["", "unix://", "unix:///", "run/x.sock", "unix://run/x.sock", "tcp://1.2.3.4:5", "http://x"]
        {
            let error = Endpoint::parse(text).unwrap_err();
            assert!(matches!(error, Error::BadEndpoint { .. }), "{text}: {error}");
            assert!(error.to_string().contains("unix:///path/to/socket"), "{error}");
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let error = Endpoint::parse(&format!("unix:///{}", "x".repeat(120))).unwrap_err();
        assert!(error.to_string().contains("longer than the 107 bytes"), "{error}");
    }
}
