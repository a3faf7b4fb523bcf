//! Why a runtime cannot be reached, in words that tell what to do.

use std::error::Error;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use h2::Reason;
use tonic::Status;

type Cause<'a> = &'a (dyn Error + 'static);

/// Why a call got no answer of a runtime.
pub(crate) enum Diagnosis {
    /// Nobody is there, or nobody any more.
    Unreachable(String),
    /// Somebody is there who does not speak HTTP/2.
    NotHttp2,
    /// A runtime is there that ended this call without an answer, or with one that cannot be read.
    NoAnswer(String),
}

/// Why the call got no answer, if that is what happened. A status with a source was made on our side of the
/// connection.
pub(crate) fn diagnose(status: &Status, socket: Option<&Path>) -> Option<Diagnosis> {
    let transport = status.source()?;
    if let Some(io) = find::<io::Error>(transport) {
        return Some(Diagnosis::Unreachable(in_words(io, socket)));
    }
    if let Some(error) = find::<h2::Error>(transport) {
        match error.reason() {
            // Somebody who stops, or takes no more calls.
            Some(Reason::NO_ERROR | Reason::CANCEL | Reason::REFUSED_STREAM) => {}
            // What is too long gives the one or the other, by how much too long it is and by who notices first.
            Some(Reason::ENHANCE_YOUR_CALM) => return Some(Diagnosis::NoAnswer(no_answer(error))),
            Some(_) if error.is_reset() => return Some(Diagnosis::NoAnswer(no_answer(error))),
            Some(_) if error.is_library() && error.is_go_away() => return Some(Diagnosis::NotHttp2),
            Some(_) | None => {}
        }
    }
    let innermost = chain(transport).last().unwrap_or(transport);
    Some(Diagnosis::Unreachable(format!("the connection failed: {innermost}")))
}

fn no_answer(error: &h2::Error) -> String {
    format!("the runtime's answer cannot be read; an error of more than a megabyte is too long ({error})")
}

fn in_words(io: &io::Error, socket: Option<&Path>) -> String {
    match (io.kind(), socket) {
        (io::ErrorKind::NotFound, Some(_)) => {
            "there is no such socket; is the runtime running, and is this where it listens \
             (--container-runtime-endpoint, or containerRuntimeEndpoint in the configuration)?"
                .to_owned()
        }
        (io::ErrorKind::ConnectionRefused, Some(path)) if !is_socket(path) => {
            "the path is not a socket; set --container-runtime-endpoint to the socket of the runtime"
                .to_owned()
        }
        (io::ErrorKind::ConnectionRefused, Some(_)) => {
            "nobody listens on the socket; start the runtime".to_owned()
        }
        (io::ErrorKind::PermissionDenied, Some(_)) => {
            "permission to open the socket is denied; run as root, or as a user who may open it".to_owned()
        }
        _ => format!("the connection failed: {io}"),
    }
}

fn find<'a, T: Error + 'static>(error: Cause<'a>) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref::<T>())
}

fn chain<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
