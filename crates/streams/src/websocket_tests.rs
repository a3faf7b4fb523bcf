//! WebSocket frames, good and bad.

use proptest::prelude::*;

use super::*;

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 77, 177, 227];
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            bytes.push(0xfe);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0xff);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The messages and pings in `bytes`, which come `at_a_time`, and how they end.
async fn read(bytes: &[u8], at_a_time: usize) -> (Vec<Vec<u8>>, Option<String>) {
    let (mut near, far) = tokio::io::duplex(at_a_time);
    let bytes = bytes.to_vec();
    let sending = tokio::spawn(async move {
        let _ = near.write_all(&bytes).await;
    });
    let (mut reader, mut whole, mut message) = (Reader::new(far), Vec::new(), Vec::new());
    let end = loop {
        match reader.next().await {
            Ok(Some(Piece::Data { is_first, is_last, bytes, .. })) => {
                assert_eq!(is_first, message.is_empty() || bytes.is_empty() && is_first);
                message.extend_from_slice(bytes);
                if is_last {
                    whole.push(std::mem::take(&mut message));
                }
            }
            Ok(Some(Piece::Ping(payload))) => whole.push([b"ping ", &*payload].concat()),
            Ok(Some(Piece::Pong)) => whole.push(b"pong".to_vec()),
            Ok(Some(Piece::Close)) => whole.push(b"close".to_vec()),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    drop(reader);
    sending.await.unwrap();
    (whole, end)
}

#[tokio::test]
async fn messages_come_whole_however_they_are_cut() {
    let large: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    let mut bytes = frame(0x82, b"one");
    bytes.extend(frame(0x02, b"tw"));
    bytes.extend(frame(0x89, b"are you there"));
    bytes.extend(frame(0x80, b"o"));
    bytes.extend(frame(0x82, &large));
    bytes.extend(frame(0x8a, b"a pong that nobody asked for"));
    bytes.extend(frame(0x88, &1000_u16.to_be_bytes()));
    for at_a_time in [1, 7, 4096, 1 << 20] {
        let (messages, end) = read(&bytes, at_a_time).await;
        let expected = [
            b"one".to_vec(),
            b"ping are you there".to_vec(),
            b"two".to_vec(),
            large.clone(),
            b"pong".to_vec(),
            b"close".to_vec(),
        ];
        assert!(messages == expected, "{at_a_time} at a time: {} messages", messages.len());
        assert_eq!(end, None);
    }
}

#[tokio::test]
async fn a_frame_whose_writing_was_given_up_is_finished_before_the_next() {
    let (near, mut far) = tokio::io::duplex(4);
    let mut writer = Writer::new(near);
    let given_up =
        tokio::time::timeout(std::time::Duration::from_millis(10), writer.binary(None, b"a frame"));
    assert!(given_up.await.is_err());
    let reading = async {
        let mut heard = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut far, &mut heard).await.unwrap();
        heard
    };
    let writing = async {
        writer.last(3, b"!").await.unwrap();
        assert!(writer.binary(None, b"late").await.is_err(), "nothing comes after a close");
        writer.shutdown().await.unwrap();
    };
    let ((), heard) = tokio::join!(writing, reading);
    assert_eq!(heard, b"\x82\x07a frame\x82\x02\x03!\x88\x02\x03\xe8");
}

#[tokio::test]
async fn what_breaks_the_protocol_is_told_apart() {
    let unmasked = [0x82, 0x01, b'x'].to_vec();
    let cut = frame(0x82, b"four")[..8].to_vec();
    let oversized = [&[0x82, 0xff][..], &[0xff; 8], &[0; 4]].concat();
    let cases: [(Vec<u8>, &str); 8] = [
        (unmasked, "bytes that are not masked"),
        (frame(0xc2, b"x"), "an extension that was not agreed on"),
        (frame(0x83, b"x"), "a kind of frame that there is not"),
        (frame(0x80, b"x"), "a continuation of nothing"),
        ([frame(0x02, b"x"), frame(0x82, b"y")].concat(), "a message within a message"),
        (frame(0x89, &[0; 126]), "a control frame in parts, or a large one"),
        (oversized, "a length that there is not"),
        (cut, "unexpected end of file"),
    ];
    for (bytes, expected) in cases {
        let (_, end) = read(&bytes, 64).await;
        let end = end.unwrap_or_default();
        assert!(end.ends_with(expected), "{end:?} for {expected:?}");
    }
}

/// A frame may say that it has more bytes than any memory holds.
#[tokio::test]
async fn a_frame_of_any_length_passes_in_pieces() {
    let mut bytes = [&[0x82, 0xff][..], &(1_u64 << 60).to_be_bytes(), &[0; 4]].concat();
    bytes.extend_from_slice(&vec![b'x'; 100_000]);
    let mut reader = Reader::new(&*bytes);
    let mut seen = 0;
    let end = loop {
        match reader.next().await {
            Ok(Some(Piece::Data { is_last, bytes, .. })) => {
                assert!(!is_last && bytes.len() <= crate::buffered::SIZE);
                seen += bytes.len();
            }
            other => break other.map(|_| ()),
        }
    };
    assert_eq!(seen, 100_000);
    assert!(matches!(end, Err(ReadError::Io(_))));
}

#[test]
fn the_answer_to_a_key_is_the_one_of_the_standard() {
    let headers = |key: &'static str, version: &'static str| {
        let headers = [(SEC_WEBSOCKET_KEY, key), (SEC_WEBSOCKET_VERSION, version)];
        headers
            .into_iter()
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect::<HeaderMap>()
    };
    let good = headers("dGhlIHNhbXBsZSBub25jZQ==", "13");
    assert_eq!(accept(&Method::GET, &good).as_deref(), Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(accept(&Method::POST, &good), Err(BadHandshake::Method));
    assert_eq!(accept(&Method::GET, &headers("dGhlIHNhbXBsZSBub25jZQ==", "8")), Err(BadHandshake::Version));
    assert_eq!(accept(&Method::GET, &headers("short", "13")), Err(BadHandshake::Key));
}

proptest! {
    #[test]
    fn garbage_ends_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = Reader::new(&*bytes);
            let mut pieces = 0;
            while let Ok(Some(_)) = reader.next().await {
                pieces += 1;
                assert!(pieces <= bytes.len());
            }
        });
    }
}
