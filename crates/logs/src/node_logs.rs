//! The logs of the node: files below a directory, and what services told systemd's journal.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::node_files::{NodeFile, NodeFileError, open};
use crate::node_query::{MAX_SERVICE_LENGTH, NodeLogQuery};

/// How long all of an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How much is read of a command's output at once.
const CHUNK: usize = 32 << 10;
/// What systemd calls a service.
const SUFFIX: &str = ".service";

/// Where the logs of the node are.
#[derive(Debug, Clone)]
pub struct NodeLogs {
    /// The directory of its files.
    pub directory: PathBuf,
    /// The program that reads its journal.
    pub journalctl: PathBuf,
}

impl Default for NodeLogs {
    fn default() -> NodeLogs {
        NodeLogs { directory: PathBuf::from("/var/log"), journalctl: PathBuf::from("journalctl") }
    }
}

/// Whoever was asking has gone.
struct Gone;

impl NodeLogs {
    /// What is at a path below the directory.
    pub async fn open(&self, path: &str) -> Result<NodeFile, NodeFileError> {
        let (directory, path) = (self.directory.clone(), path.to_owned());
        let opened = tokio::task::spawn_blocking(move || open(&directory, &path));
        opened.await.unwrap_or_else(|error| Err(NodeFileError::Failed(io::Error::other(error))))
    }

    /// Gives what is asked of services, piece by piece, for half a minute at the most. What goes wrong is told among it,
    /// as upstream does. Nothing is left when nobody listens any more.
    pub fn query(&self, query: NodeLogQuery) -> mpsc::Receiver<Vec<u8>> {
        let (told, answer) = mpsc::channel(4);
        let logs = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = told.closed() => {}
                () = tokio::time::sleep(DEADLINE) => {}
                _ = logs.answer(&query, &told) => {}
            }
        });
        answer
    }

    async fn answer(&self, query: &NodeLogQuery, told: &mpsc::Sender<Vec<u8>>) -> Result<(), Gone> {
        let units = self.units(&query.services).await;
        let (native, files): (Vec<&str>, Vec<&str>) =
            query.services.iter().map(String::as_str).partition(|service| units.contains(service));
        if !native.is_empty()
            && self.tell_journal(query, &native, told).await?.is_err()
            && query.boot.unwrap_or(0) == 0
        {
            tell(told, "\nerror: journal output not available\n").await?;
        }
        if !files.is_empty() && query.has_options() {
            let files = files.join(" ");
            let message = format!(
                "\noptions present and query resolved to log files for [{files}]\ntry without specifying options\n"
            );
            return tell(told, &message).await;
        }
        for service in files {
            self.tell_file(service, told).await?;
        }
        Ok(())
    }

    /// Those of the services that the journal knows. None where there is no journal: then there may be files.
    async fn units<'a>(&self, services: &'a [String]) -> Vec<&'a str> {
        let mut command = Command::new(&self.journalctl);
        command
            .args(["--field", "_SYSTEMD_UNIT"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(mut child) = command.kill_on_drop(true).spawn() else { return Vec::new() };
        let mut sought: Vec<&str> = services.iter().map(String::as_str).collect();
        let mut units = Vec::new();
        if let Some(mut output) = child.stdout.take() {
            // All of it is read, however long it is, since journalctl fails where nobody reads what it says.
            let mut piece = Vec::with_capacity(CHUNK);
            while let Ok(1..) = output.read_buf(&mut piece).await {
                let text = String::from_utf8_lossy(&piece);
                units.extend(sought.extract_if(.., |service| text.contains(&format!("{service}{SUFFIX}"))));
                // The end may be the beginning of a name.
                piece.drain(..piece.len().saturating_sub(MAX_SERVICE_LENGTH + SUFFIX.len()));
                piece.reserve(CHUNK);
            }
        }
        match child.wait().await {
            Ok(status) if status.success() => units,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    async fn tell_journal(
        &self,
        query: &NodeLogQuery,
        services: &[&str],
        told: &mpsc::Sender<Vec<u8>>,
    ) -> Result<io::Result<()>, Gone> {
        // Both streams into one pipe, so that they stay in their order.
        let started = || {
            let (reader, writer) = io::pipe()?;
            let mut command = Command::new(&self.journalctl);
            command.args(query.journal_arguments(services)).stdin(Stdio::null());
            command.stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
            let child = command.spawn()?;
            Ok::<_, io::Error>((child, pipe::Receiver::from_owned_fd(reader.into())?))
        };
        let (mut child, mut output) = match started() {
            Ok(started) => started,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let mut buffer = Vec::with_capacity(CHUNK);
            match output.read_buf(&mut buffer).await {
                Ok(0) => break,
                Ok(_) => told.send(buffer).await.map_err(|_| Gone)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        // What it has to say of an error, it has said.
        Ok(child.wait().await.map(drop))
    }

    /// The log of a service that keeps its own, where such logs mostly are.
    async fn tell_file(&self, service: &str, told: &mpsc::Sender<Vec<u8>>) -> Result<(), Gone> {
        for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
            let error = match self.open(&name).await {
                Ok(NodeFile::File(file)) => {
                    let mut pieces = Box::pin(file.read());
                    while let Some(Ok(piece)) = pieces.next().await {
                        told.send(piece).await.map_err(|_| Gone)?;
                    }
                    return Ok(());
                }
                Ok(NodeFile::Directory(_)) | Err(NodeFileError::Missing) => continue,
                Err(error) => error,
            };
            return tell(told, &format!("\nerror getting log for {service}: openat {name}: {error}\n")).await;
        }
        tell(told, &format!("\nlog not found for {service}\n")).await
    }
}

async fn tell(told: &mpsc::Sender<Vec<u8>>, text: &str) -> Result<(), Gone> {
    told.send(text.as_bytes().to_vec()).await.map_err(|_| Gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A journal that knows `kubelet`, and says how it was asked.
    fn logs(directory: &tempfile::TempDir, script: &str) -> NodeLogs {
        let journalctl = directory.path().join("journalctl");
        fs::write(&journalctl, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&journalctl, fs::Permissions::from_mode(0o755)).unwrap();
        let logs = directory.path().join("log");
        fs::create_dir_all(logs.join("web")).unwrap();
        fs::write(logs.join("own.log"), "own\n").unwrap();
        fs::write(logs.join("web/web.log"), "web\n").unwrap();
        NodeLogs { directory: logs, journalctl }
    }

    const JOURNAL: &str =
        "[ \"$1\" = --field ] && echo kubelet.service && exit; echo out $*; echo err >&2; exit 1";

    async fn ask(logs: &NodeLogs, query: &str) -> String {
        let query = NodeLogQuery::parse(|name| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(move |(known, _)| *known == name).map(|(_, value)| value.to_owned())
        });
        let mut answer = logs.query(query.unwrap().unwrap());
        let mut text = Vec::new();
        while let Some(piece) = answer.recv().await {
            text.extend(piece);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn services_are_looked_for_in_the_journal_and_then_among_files() {
        let directory = tempfile::tempdir().unwrap();
        let logs = logs(&directory, JOURNAL);
        let asked = "--utc --no-pager --output=short-precise";
        assert_eq!(ask(&logs, "query=kubelet").await, format!("out {asked} --unit=kubelet\nerr\n"));
        assert_eq!(ask(&logs, "query=own").await, "own\n");
        assert_eq!(ask(&logs, "query=web").await, "web\n");
        assert_eq!(ask(&logs, "query=own.log").await, "own\n");
        assert_eq!(ask(&logs, "query=none").await, "\nlog not found for none\n");
        assert_eq!(ask(&logs, "query=..").await, "\nlog not found for ..\n");
        assert_eq!(
            ask(&logs, "query=kubelet&query=own").await,
            format!("out {asked} --unit=kubelet\nerr\nown\n")
        );
        assert_eq!(
            ask(&logs, "query=own&query=web&boot=0").await,
            "\noptions present and query resolved to log files for [own web]\ntry without specifying options\n"
        );
        let without = NodeLogs { journalctl: "/nonexistent".into(), ..logs };
        assert_eq!(ask(&without, "query=own").await, "own\n");
    }

    #[tokio::test]
    async fn a_service_is_found_in_a_list_of_units_of_any_length() {
        let directory = tempfile::tempdir().unwrap();
        let list = "for it in $(seq 10); do head -c 600000 /dev/zero | tr '\\0' x; echo; done";
        let logs = logs(
            &directory,
            &format!(
                "[ \"$1\" = --field ] && {{ echo early.service && {list} && echo late.service; exit; }}; echo $*"
            ),
        );
        let asked = "--utc --no-pager --output=short-precise";
        assert_eq!(
            ask(&logs, "query=late&query=own&query=early").await,
            format!("{asked} --unit=late --unit=early\nown\n")
        );
    }

    #[tokio::test]
    async fn nothing_is_left_when_nobody_listens_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let logs = logs(
            &directory,
            "[ \"$1\" = --field ] && echo kubelet.service && exit; echo $$; while :; do echo more; done",
        );
        let query = NodeLogQuery { services: vec!["kubelet".to_owned()], ..NodeLogQuery::default() };
        let mut answer = logs.query(query);
        let first = String::from_utf8(answer.recv().await.unwrap()).unwrap();
        let process = PathBuf::from(format!("/proc/{}", first.lines().next().unwrap()));
        assert!(process.exists());
        drop(answer);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        while process.exists() || tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
