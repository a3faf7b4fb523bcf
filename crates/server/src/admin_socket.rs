//! The socket on which the agent is administered.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// Listens on a unix socket that only the user who runs this can open, at no moment anyone else.
///
/// What a killed agent left behind is replaced. A socket that is being served is left alone, and so is anything
/// that is not a socket.
pub async fn bind_admin_socket(path: &Path) -> Result<UnixListener, BindError> {
    refuse_if_in_use(path).await?;
    // A socket appears with the permissions that the umask leaves it. So it is made in a folder that nobody else
    // can enter, closed, and only then moved to where it can be seen; the move also replaces a stale one.
    let folder = PrivateFolder::create_beside(path)
        .map_err(|source| BindError::at("make a folder beside", path, source))?;
    let hidden = folder.0.join("s");
    let listener = UnixListener::bind(&hidden).map_err(|source| BindError::at("listen on", path, source))?;
    fs::set_permissions(&hidden, Permissions::from_mode(0o600))
        .map_err(|source| BindError::at("restrict", path, source))?;
    fs::rename(&hidden, path).map_err(|source| BindError::at("put in place", path, source))?;
    Ok(listener)
}

/// Why the socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process serves it.
    #[error("another agent is already running: something answers on {}", .0.display())]
    InUse(PathBuf),
    /// There is something else at that path.
    #[error("{} is in the way: it is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused a step.
    #[error("cannot {step} the socket {}", path.display())]
    System {
        /// What was tried.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl BindError {
    fn at(step: &'static str, path: &Path, source: io::Error) -> BindError {
        BindError::System { step, path: path.to_owned(), source }
    }
}

async fn refuse_if_in_use(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindError::at("look at", path, error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match timeout(Duration::from_secs(1), UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Connected, or too many others waiting to be: either way someone listens.
        Ok(Ok(_)) | Err(_) => Err(BindError::InUse(path.to_owned())),
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::InUse(path.to_owned())),
        Ok(Err(error)) => Err(BindError::at("try", path, error)),
    }
}

/// A new folder that nobody else can enter, removed with all in it when dropped.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn create_beside(path: &Path) -> io::Result<PrivateFolder> {
        let mut name = OsString::from(path);
        name.push(format!(".{}", std::process::id()));
        let folder = PathBuf::from(name);
        let create = || DirBuilder::new().mode(0o700).create(&folder);
        match create() {
            // Left by an agent that was killed here, and had the same process number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(&folder)?;
                create()?;
            }
            created => created?,
        }
        Ok(PrivateFolder(folder))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What stays behind is empty, and nobody else's.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[tokio::test]
    async fn only_the_owner_can_open_the_socket_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = bind_admin_socket(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["admin.sock"]);
        let (connected, accepted) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
    }

    #[tokio::test]
    async fn what_a_killed_agent_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        drop(bind_admin_socket(&path).await.unwrap());
        fs::create_dir(folder.path().join(format!("admin.sock.{}", std::process::id()))).unwrap();
        assert!(path.exists(), "a listener that is dropped leaves its socket, as a killed one does");
        let listener = bind_admin_socket(&path).await.unwrap();
        let (connected, _) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(connected.is_ok());
        assert_eq!(names(folder.path()), ["admin.sock"]);
    }

    #[tokio::test]
    async fn a_socket_that_is_served_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let _listener = bind_admin_socket(&path).await.unwrap();
        let error = bind_admin_socket(&path).await.unwrap_err();
        assert!(matches!(error, BindError::InUse(_)));
        assert!(UnixStream::connect(&path).await.is_ok());
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind_admin_socket(&path).await, Err(BindError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_named() {
        let error = bind_admin_socket(Path::new("/nonexistent/admin.sock")).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot make a folder beside the socket /nonexistent/admin.sock");
    }
}
