//! Bytes between a client and the runtime, as they are.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use crate::activity::Activity;
use crate::buffered::SIZE;

/// How long a side that has nothing more to say waits for the other to end.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// Passes bytes on in both directions until a side ends. What was said before that is delivered.
pub(crate) async fn pass<C, R>(client: C, runtime: R, activity: &Activity)
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = split(client);
    let (mut from_runtime, mut to_runtime) = split(runtime);
    let outward = async {
        copy(&mut from_runtime, &mut to_client, activity).await?;
        to_client.shutdown().await
    };
    let inward = async {
        let ended = copy(&mut from_client, &mut to_runtime, activity).await;
        let _ = to_runtime.shutdown().await;
        if let Err(Ended::Writing) = ended {
            // The runtime takes nothing more; it may still have something to say.
            drain(&mut from_client).await;
        }
    };
    tokio::pin!(outward, inward);
    tokio::select! {
        ended = &mut outward => {
            // A socket that is closed with bytes in it that nobody read is reset, and what was said last is lost.
            if ended.is_ok() {
                let _ = tokio::time::timeout(LINGER, inward).await;
            }
        }
        () = &mut inward => {
            let _ = tokio::time::timeout(LINGER, outward).await;
        }
    }
}

/// Which side it was that ended badly.
enum Ended {
    Reading(io::Error),
    Writing,
}

impl From<Ended> for io::Error {
    fn from(ended: Ended) -> io::Error {
        match ended {
            Ended::Reading(error) => error,
            Ended::Writing => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

async fn copy<R, W>(from: &mut R, to: &mut W, activity: &Activity) -> Result<(), Ended>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; SIZE];
    loop {
        let count = from.read(&mut buffer).await.map_err(Ended::Reading)?;
        if count == 0 {
            return Ok(());
        }
        activity.note();
        to.write_all(&buffer[..count]).await.map_err(|_| Ended::Writing)?;
        to.flush().await.map_err(|_| Ended::Writing)?;
        activity.note();
    }
}

async fn drain(from: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; 4096];
    while matches!(from.read(&mut buffer).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn what_each_side_said_last_arrives_and_then_all_ends() {
        for client_ends_first in [true, false] {
            let ((mut client, near), (far, mut runtime)) = (duplex(64), duplex(64));
            let passing = tokio::spawn(async move { pass(near, far, &Activity::new()).await });
            client.write_all(b"a question").await.unwrap();
            runtime.write_all(b"an answer").await.unwrap();
            let (first, second) = match client_ends_first {
                true => (&mut client, &mut runtime),
                false => (&mut runtime, &mut client),
            };
            first.shutdown().await.unwrap();
            let mut heard = String::new();
            second.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, if client_ends_first { "a question" } else { "an answer" });
            second.shutdown().await.unwrap();
            heard.clear();
            first.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, if client_ends_first { "an answer" } else { "a question" });
            passing.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_never_ends_is_not_waited_for() {
        let ((client, near), (far, _runtime)) = (duplex(64), duplex(64));
        let passing = tokio::spawn(async move { pass(near, far, &Activity::new()).await });
        drop(client);
        passing.await.unwrap();
    }

    #[tokio::test]
    async fn who_does_not_read_is_not_read_from() {
        let ((mut client, near), (far, _runtime)) = (duplex(64), duplex(64));
        let _passing = tokio::spawn(async move { pass(near, far, &Activity::new()).await });
        let mut sent = 0;
        let flood = async {
            loop {
                sent += client.write(&[0; 64]).await.unwrap();
            }
        };
        assert!(tokio::time::timeout(Duration::from_millis(200), flood).await.is_err());
        assert!(sent < 2 * SIZE, "{sent} bytes were taken for a runtime that reads none");
    }
}
