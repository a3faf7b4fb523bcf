//! SPDY in the messages of a WebSocket, for port-forward: unwrapped towards the runtime.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Mutex;

use crate::activity::Activity;
use crate::buffered::SIZE;
use crate::pass::LINGER;
use crate::websocket::{GOING_AWAY, NORMAL, PROTOCOL_ERROR, Piece, Reader, Writer};

/// How long a client may take to read that all ends.
const PARTS_WITHIN: Duration = Duration::from_secs(1);

/// Passes on what the messages carry until a side ends, or the stream is over.
pub(crate) async fn tunnel<C, R>(client: C, runtime: R, activity: &Activity)
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = split(client);
    let (mut from_runtime, mut to_runtime) = split(runtime);
    let (mut from_client, to_client) = (Reader::new(from_client), Mutex::new(Writer::new(to_client)));
    let outward = async {
        let mut buffer = vec![0; SIZE];
        while let Ok(count @ 1..) = from_runtime.read(&mut buffer).await {
            activity.note();
            to_client.lock().await.binary(None, &buffer[..count]).await?;
        }
        let mut to_client = to_client.lock().await;
        to_client.close(NORMAL).await?;
        to_client.shutdown().await
    };
    let inward = async {
        let code = loop {
            match from_client.next().await {
                Ok(Some(Piece::Data { is_text: false, bytes, .. })) => {
                    activity.note();
                    if to_runtime.write_all(bytes).await.is_err() || to_runtime.flush().await.is_err() {
                        // The runtime's own end is told by the other direction.
                        from_client.drain().await;
                        break NORMAL;
                    }
                }
                Ok(Some(Piece::Ping(payload))) => {
                    activity.note();
                    let _ = to_client.lock().await.pong(&payload).await;
                }
                Ok(Some(Piece::Pong)) => activity.note(),
                Ok(Some(Piece::Close) | None) => break NORMAL,
                Ok(Some(Piece::Data { .. })) | Err(_) => break PROTOCOL_ERROR,
            }
        };
        let _ = to_runtime.shutdown().await;
        code
    };
    let code = {
        tokio::pin!(outward, inward);
        let code = tokio::select! {
            ended = &mut outward => {
                if ended.is_ok() {
                    let _ = tokio::time::timeout(LINGER, inward).await;
                }
                return;
            }
            code = &mut inward => code,
            _ = activity.over() => GOING_AWAY,
        };
        if code == NORMAL {
            let _ = tokio::time::timeout(LINGER, outward).await;
            return;
        }
        code
    };
    if let Ok(mut to_client) = to_client.try_lock() {
        let parting = async {
            let _ = to_client.close(code).await;
            let _ = to_client.shutdown().await;
        };
        let _ = tokio::time::timeout(PARTS_WITHIN, parting).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// A message of a client, not hidden by its mask.
    fn message(first: u8, bytes: &[u8]) -> Vec<u8> {
        [&[first, 0x80 | bytes.len() as u8, 0, 0, 0, 0], bytes].concat()
    }

    #[tokio::test]
    async fn what_messages_carry_passes_as_bytes_and_the_other_way_round() {
        let ((mut client, near), (far, mut runtime)) = (duplex(1 << 16), duplex(1 << 16));
        let tunnelling = tokio::spawn(async move { tunnel(near, far, &Activity::new()).await });
        let mut sent = message(0x02, b"a mess");
        sent.extend(message(0x80, b"age"));
        sent.extend(message(0x89, b"?"));
        client.write_all(&sent).await.unwrap();
        let mut heard = [0; 9];
        runtime.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"a message");
        let mut pong = [0; 3];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"\x8a\x01?");
        runtime.write_all(b"an answer").await.unwrap();
        drop(runtime);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"\x82\x09an answer\x88\x02\x03\xe8");
        drop(client);
        tunnelling.await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_a_client_is_the_end_for_the_runtime() {
        for end in [message(0x88, &[3, 0xe8]), vec![], message(0x81, b"text"), b"garbage".to_vec()] {
            let ((mut client, near), (far, mut runtime)) = (duplex(1 << 16), duplex(1 << 16));
            let tunnelling = tokio::spawn(async move { tunnel(near, far, &Activity::new()).await });
            client.write_all(&end).await.unwrap();
            if end.is_empty() {
                client.shutdown().await.unwrap();
            }
            let mut heard = Vec::new();
            runtime.read_to_end(&mut heard).await.unwrap();
            assert!(heard.is_empty());
            drop(runtime);
            tunnelling.await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_is_parted_with_is_told_that_it_ends() {
        let ((mut client, near), (far, mut runtime)) = (duplex(1 << 16), duplex(1 << 16));
        let activity = Activity::new();
        activity.end(crate::activity::Over::Idle);
        tunnel(near, far, &activity).await;
        let (mut told, mut heard) = (Vec::new(), Vec::new());
        client.read_to_end(&mut told).await.unwrap();
        runtime.read_to_end(&mut heard).await.unwrap();
        assert_eq!((told, heard), (b"\x88\x02\x03\xe9".to_vec(), vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_begins_the_idle_time_anew() {
        let ((mut client, near), (far, _runtime)) = (duplex(1 << 16), duplex(1 << 16));
        let activity = std::sync::Arc::new(Activity::new());
        let noted = std::sync::Arc::clone(&activity);
        tokio::spawn(async move { tunnel(near, far, &noted).await });
        let began = tokio::time::Instant::now();
        let alive = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            client.write_all(&message(0x89, b"?")).await.unwrap();
        };
        tokio::join!(activity.idle_for(Some(Duration::from_secs(8))), alive);
        assert_eq!(began.elapsed().as_secs(), 13);
    }
}
