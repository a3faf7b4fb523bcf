//! SPDY frames, good and bad.

use flate2::{Decompress, FlushDecompress};
use proptest::prelude::*;

use super::*;

async fn events(bytes: &[u8], at_a_time: usize) -> (Vec<String>, Option<String>) {
    let (mut near, far) = tokio::io::duplex(at_a_time);
    let bytes = bytes.to_vec();
    let sending = tokio::spawn(async move {
        let _ = near.write_all(&bytes).await;
    });
    let (mut reader, mut seen, mut data) = (Reader::new(far), Vec::new(), Vec::new());
    let end = loop {
        match reader.next().await {
            Ok(Some(Event::Data { stream, is_last, bytes })) => {
                data.extend_from_slice(bytes);
                if is_last {
                    seen.push(format!("{stream}: {} bytes", std::mem::take(&mut data).len()));
                }
            }
            Ok(Some(event)) => seen.push(format!("{event:?}")),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    drop(reader);
    sending.await.unwrap();
    (seen, end)
}

fn control_frame(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    header(&mut frame, control(kind), flags, payload.len());
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn what_a_runtime_sends_is_understood_however_it_is_cut() {
    let mut bytes = control_frame(SYN_REPLY, 0, &[0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8]);
    // SETTINGS, GOAWAY and WINDOW_UPDATE say nothing that matters.
    bytes.extend(control_frame(4, 0, &[0; 12]));
    let mut data = Vec::new();
    header(&mut data, 5, 0, 100_000);
    data.extend_from_slice(&[b'x'; 100_000]);
    header(&mut data, 5, FLAG_FIN, 0);
    bytes.extend(data);
    bytes.extend(control_frame(PING, 0, &[0, 0, 0, 2]));
    bytes.extend(control_frame(7, 0, &[0; 8]));
    bytes.extend(control_frame(RST_STREAM, 0, &[0, 0, 0, 1, 0, 0, 0, 5]));
    bytes.extend(control_frame(9, 0, &[0; 8]));
    for at_a_time in [1, 9, 1 << 20] {
        let (seen, end) = events(&bytes, at_a_time).await;
        let expected =
            ["Reply { stream: 5, is_last: false }", "5: 100000 bytes", "Ping(2)", "Reset { stream: 1 }"];
        assert_eq!((seen, end), (expected.map(str::to_owned).to_vec(), None), "{at_a_time} at a time");
    }
}

#[tokio::test]
async fn another_protocol_is_told_apart() {
    let cases = [
        (b"\x80\x02\0\x02\0\0\0\x04\0\0\0\x01".to_vec(), "does not speak SPDY/3.1"),
        (control_frame(SYN_REPLY, 0, &[1]), "does not speak SPDY/3.1"),
        (b"\x80\x03\0\x02\0".to_vec(), "unexpected end of file"),
        (b"\0\0\0\x05\0\0\0\x05abc".to_vec(), "unexpected end of file"),
    ];
    for (bytes, expected) in cases {
        let (_, end) = events(&bytes, 64).await;
        assert!(end.clone().unwrap_or_default().ends_with(expected), "{end:?} for {expected:?}");
    }
}

#[test]
fn streams_are_opened_with_headers_that_the_other_side_can_read() {
    let mut frames = Vec::new();
    syn_streams(&["error", "stdin", "stdout", "resize"], &mut frames).unwrap();
    let (mut rest, mut seen) = (&*frames, Vec::new());
    let mut decompressor = Decompress::new(true);
    while let Some((head, behind)) = rest.split_at_checked(HEADER) {
        assert_eq!(head[..4], control(SYN_STREAM).to_be_bytes());
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let (frame, behind) = behind.split_at(length);
        rest = behind;
        let mut block = Vec::with_capacity(1024);
        let before = decompressor.total_in();
        let first = decompressor.decompress_vec(&frame[10..], &mut block, FlushDecompress::Sync);
        if first.is_err_and(|error| error.needs_dictionary().is_some()) {
            decompressor.set_dictionary(&dictionary::dictionary()).unwrap();
            let taken = (decompressor.total_in() - before) as usize;
            decompressor.decompress_vec(&frame[10 + taken..], &mut block, FlushDecompress::Sync).unwrap();
        }
        let value = block.split_off(22);
        assert_eq!(
            block,
            b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x06"[..21]
                .iter()
                .copied()
                .chain([value.len() as u8])
                .collect::<Vec<_>>()
        );
        seen.push((frame[3], String::from_utf8(value).unwrap()));
    }
    let expected = [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")];
    assert_eq!(seen, expected.map(|(stream, kind)| (stream, kind.to_owned())));
}

proptest! {
    #[test]
    fn garbage_ends_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = Reader::new(&*bytes);
            let mut seen = 0;
            while let Ok(Some(_)) = reader.next().await {
                seen += 1;
                assert!(seen <= bytes.len());
            }
        });
    }
}
