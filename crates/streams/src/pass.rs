//! Bytes between a client and the runtime, as they are.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use crate::activity::Activity;
use crate::buffered::SIZE;

/// How long a side that has nothing more to say waits for the other to end.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// Passes bytes on in both directions until a side ends, or the stream is over. What was said before an end is
/// delivered.
pub(crate) async fn pass<C, R>(client: C, runtime: R, activity: &Activity)
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = split(client);
    let (mut from_runtime, mut to_runtime) = split(runtime);
    let outward = async {
        match copy(&mut from_runtime, &mut to_client, activity).await {
            // A runtime that resets the connection has ended as well, and what it said before is to arrive.
            Ok(()) | Err(Ended::Reading) => to_client.shutdown().await.map_err(|_| Ended::Writing),
            Err(Ended::Writing) => Err(Ended::Writing),
        }
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
        _ = activity.over() => {}
    }
}

/// Which side it was that ended badly.
enum Ended {
    Reading,
    Writing,
}

async fn copy<R, W>(from: &mut R, to: &mut W, activity: &Activity) -> Result<(), Ended>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; SIZE];
    loop {
        let count = from.read(&mut buffer).await.map_err(|_| Ended::Reading)?;
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
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use tokio::io::{ReadBuf, duplex};

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

    /// A side whose reading fails when the other one is gone.
    struct Resetting(tokio::io::DuplexStream);

    impl AsyncRead for Resetting {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let before = buffer.filled().len();
            match Pin::new(&mut self.0).poll_read(context, buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() == before => {
                    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
                }
                polled => polled,
            }
        }
    }

    impl AsyncWrite for Resetting {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }
        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }
        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_resets_the_connection_has_ended_in_order() {
        let ((mut client, near), (far, mut runtime)) = (duplex(64), duplex(64));
        let passing = tokio::spawn(async move { pass(near, Resetting(far), &Activity::new()).await });
        runtime.write_all(b"the last word").await.unwrap();
        drop(runtime);
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "the last word");
        // What the client still says is taken until it ends too: a socket that is closed before would be reset.
        client.write_all(&[0; 1000]).await.unwrap();
        assert!(!passing.is_finished());
        drop(client);
        passing.await.unwrap();
    }
}
