//! WebSocket v5 against a runtime's SPDY, both played by hand.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::activity::Over;

const ALL: Wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };
const TERMINAL: Wanted = Wanted { stdin: true, stdout: true, stderr: false, tty: true };

struct Played {
    client: DuplexStream,
    from_us: spdy::Reader<ReadHalf<DuplexStream>>,
    to_us: WriteHalf<DuplexStream>,
    activity: Arc<Activity>,
    done: JoinHandle<()>,
}

impl Played {
    /// With buffers of this size between the sides.
    async fn start(wanted: Wanted, size: usize) -> Played {
        let ((client, near), (far, runtime)) = (duplex(size), duplex(size));
        let activity = Arc::new(Activity::new());
        let noted = Arc::clone(&activity);
        let done = tokio::spawn(async move {
            let mut client = Client::greet(near, wanted).await.unwrap();
            translate(&mut client, far, wanted, &noted).await;
        });
        let (from_us, to_us) = split(runtime);
        let mut played = Played { client, from_us: spdy::Reader::new(from_us), to_us, activity, done };
        assert_eq!(played.heard().await, Some((2, vec![1])));
        played
    }

    /// Takes as many streams.
    async fn reply(&mut self, count: u32) {
        for stream in (1..).step_by(2).take(count as usize) {
            let mut frame = vec![0x80, 3, 0, 2, 0, 0, 0, 4];
            frame.extend_from_slice(&u32::to_be_bytes(stream));
            self.to_us.write_all(&frame).await.unwrap();
        }
    }

    async fn runtime_says(&mut self, stream: u32, bytes: &[u8], is_last: bool) {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.push(is_last.into());
        frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes()[1..]);
        frame.extend_from_slice(bytes);
        self.to_us.write_all(&frame).await.unwrap();
    }

    /// What the runtime hears next: the stream, its bytes, and whether they are the last.
    async fn runtime_hears(&mut self) -> Option<(u32, Vec<u8>, bool)> {
        loop {
            match self.from_us.next().await.unwrap()? {
                spdy::Event::Data { stream, is_last, bytes } => {
                    return Some((stream, bytes.to_vec(), is_last));
                }
                _ => continue,
            }
        }
    }

    async fn say(&mut self, first: u8, bytes: &[u8]) {
        let mut frame = vec![first];
        match bytes.len() {
            length @ 0..=125 => frame.push(0x80 | length as u8),
            length => frame.extend([&[0xff][..], &(length as u64).to_be_bytes()].concat()),
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(bytes);
        self.client.write_all(&frame).await.unwrap();
    }

    /// The kind and the payload of the next frame for the client.
    async fn heard(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.client.read_exact(&mut head).await.ok()?;
        let length = match head[1] {
            126 => usize::from(self.client.read_u16().await.unwrap()),
            127 => self.client.read_u64().await.unwrap() as usize,
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.client.read_exact(&mut payload).await.unwrap();
        Some((head[0] & 0x0f, payload))
    }

    async fn heard_text(&mut self) -> (u8, String) {
        let (kind, payload) = self.heard().await.unwrap();
        assert_eq!(kind, 2);
        (payload[0], String::from_utf8(payload[1..].to_vec()).unwrap())
    }
}

#[tokio::test]
async fn a_command_is_talked_to_and_its_exit_code_is_told() {
    let mut played = Played::start(ALL, 1 << 16).await;
    played.say(0x82, b"\x00early").await;
    played.reply(4).await;
    assert_eq!(played.runtime_hears().await, Some((3, b"early".to_vec(), false)));
    played.runtime_says(5, b"out", false).await;
    played.runtime_says(7, b"err", true).await;
    assert_eq!(played.heard_text().await, (STDOUT, "out".to_owned()));
    assert_eq!(played.heard_text().await, (STDERR, "err".to_owned()));
    // The client closes its side; the command goes on.
    played.say(0x82, &[CLOSE, STDIN]).await;
    assert_eq!(played.runtime_hears().await, Some((3, vec![], true)));
    // Nobody is there for it any more.
    played.say(0x82, b"\x00late").await;
    let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    played.runtime_says(1, status, false).await;
    played.runtime_says(5, b"bye", true).await;
    played.to_us.write_all(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 5]).await.unwrap();
    assert_eq!(played.heard_text().await, (STDOUT, "bye".to_owned()));
    let (channel, told) = played.heard_text().await;
    assert_eq!(channel, ERROR);
    assert!(told.contains(r#""causes":[{"reason":"ExitCode","message":"7"}]"#), "{told}");
    assert_eq!(played.heard().await, Some((8, NORMAL.to_be_bytes().to_vec())));
    drop(played.client);
    played.done.await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_resized_and_pings_are_answered() {
    let mut played = Played::start(TERMINAL, 1 << 16).await;
    played.reply(4).await;
    played.say(0x82, b"\x04{\"Width\":80,\"Height\":24}").await;
    assert_eq!(played.runtime_hears().await, Some((7, br#"{"Width":80,"Height":24}"#.to_vec(), false)));
    played.say(0x89, b"there?").await;
    assert_eq!(played.heard().await, Some((10, b"there?".to_vec())));
    // A message in two frames is one message, and text is as good as bytes.
    played.say(0x01, b"\x00l").await;
    played.say(0x80, b"s").await;
    assert_eq!(played.runtime_hears().await, Some((3, b"l".to_vec(), false)));
    assert_eq!(played.runtime_hears().await, Some((3, b"s".to_vec(), false)));
    // Channels that nobody reads, or that there are not, and nothing at all.
    for ignored in [&b"\x01x"[..], b"\x09x", b"", b"\x00"] {
        played.say(0x82, ignored).await;
    }
    played.to_us.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2]).await.unwrap();
    played.say(0x82, b"\x00end").await;
    assert_eq!(played.runtime_hears().await, Some((3, b"end".to_vec(), false)));
}

#[tokio::test]
async fn who_breaks_the_protocol_is_parted_with_and_the_runtime_is_told() {
    for bad in [&[CLOSE][..], &[CLOSE, STDIN, 0], &[CLOSE, CHANNELS]] {
        let mut played = Played::start(ALL, 1 << 16).await;
        played.reply(4).await;
        played.say(0x82, bad).await;
        assert_eq!(played.heard().await, Some((8, PROTOCOL_ERROR.to_be_bytes().to_vec())), "{bad:?}");
        assert_eq!(played.runtime_hears().await, Some((3, vec![], true)));
        assert_eq!(played.runtime_hears().await, None);
        played.done.await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_left_when_a_side_dies() {
    let mut played = Played::start(ALL, 1 << 16).await;
    played.reply(4).await;
    drop(played.client);
    assert_eq!(
        played.from_us.next().await.unwrap(),
        Some(spdy::Event::Data { stream: 3, is_last: true, bytes: &[] })
    );
    played.done.await.unwrap();

    let mut played = Played::start(ALL, 1 << 16).await;
    played.reply(4).await;
    played.runtime_says(5, b"half a wo", false).await;
    let Played { mut client, from_us, to_us, done, .. } = played;
    drop((from_us, to_us));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    let text = String::from_utf8_lossy(&rest);
    assert!(text.contains("half a wo") && text.contains("Internal error occurred"), "{text}");
    drop(client);
    done.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_opens_no_streams_is_not_waited_for_for_ever() {
    let mut played = Played::start(ALL, 1 << 16).await;
    played.reply(3).await;
    let (channel, told) = played.heard_text().await;
    assert_eq!(channel, ERROR);
    assert!(told.contains("did not open the streams in time"), "{told}");
    drop(played.client);
    played.done.await.unwrap();
}

#[tokio::test]
async fn a_flood_waits_for_who_reads_slowly() {
    let mut played = Played::start(ALL, 4096).await;
    played.reply(4).await;
    let flood = vec![b'x'; 1 << 20];
    let saying =
        tokio::time::timeout(Duration::from_millis(200), played.runtime_says(5, &flood, false)).await;
    assert!(saying.is_err(), "a megabyte was taken for a client that reads nothing");
    let mut played = Played::start(ALL, 4096).await;
    played.reply(4).await;
    let stdin = [&[STDIN][..], &flood].concat();
    let saying = tokio::time::timeout(Duration::from_millis(200), played.say(0x82, &stdin)).await;
    assert!(saying.is_err(), "a megabyte was taken for a command that reads nothing");
}

#[tokio::test(start_paused = true)]
async fn a_sign_of_life_of_the_client_begins_the_idle_time_anew() {
    for ping_or_pong in [0x89, 0x8a] {
        let mut played = Played::start(ALL, 1 << 16).await;
        played.reply(4).await;
        let (began, activity) = (Instant::now(), Arc::clone(&played.activity));
        let alive = async {
            sleep(Duration::from_secs(5)).await;
            played.say(ping_or_pong, b"x").await;
        };
        tokio::join!(activity.idle_for(Some(Duration::from_secs(8))), alive);
        assert_eq!(began.elapsed().as_secs(), 13, "{ping_or_pong:x}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_parted_with_hears_why_even_amid_a_frame() {
    for (over, why) in
        [(Over::Idle, "the stream was idle for too long"), (Over::Stopping, "the node's agent is stopping")]
    {
        let mut played = Played::start(ALL, 64).await;
        // Time goes on when nobody has anything to do: the runtime has read what opens the streams.
        let moment = Duration::from_millis(1);
        assert!(tokio::time::timeout(moment, played.from_us.next()).await.is_err());
        played.reply(4).await;
        sleep(moment).await;
        // The second does not fit any more, and is in the middle of being written.
        played.runtime_says(5, &[b'1'; 40], false).await;
        sleep(moment).await;
        played.runtime_says(5, &[b'2'; 40], false).await;
        sleep(moment).await;
        played.activity.end(over);
        assert_eq!(played.heard_text().await, (STDOUT, "1".repeat(40)));
        assert_eq!(played.heard_text().await, (STDOUT, "2".repeat(40)));
        let (channel, told) = played.heard_text().await;
        assert_eq!(channel, ERROR);
        let expected = format!(r#""message":"Internal error occurred: {why}","reason":"InternalError""#);
        assert!(told.contains(&expected), "{told}");
        assert_eq!(played.heard().await, Some((8, NORMAL.to_be_bytes().to_vec())));
        drop(played.client);
        played.done.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_pinged_every_five_seconds_with_odd_numbers() {
    let mut played = Played::start(ALL, 1 << 16).await;
    played.reply(4).await;
    let began = Instant::now();
    for (number, seconds) in [(1, 5), (3, 10), (5, 15)] {
        assert_eq!(played.from_us.next().await.unwrap(), Some(spdy::Event::Ping(number)));
        assert_eq!(began.elapsed().as_secs(), seconds);
        // Its answer is no sign of somebody who uses the stream.
        let answer = [&[0x80, 3, 0, 6, 0, 0, 0, 4][..], &number.to_be_bytes()].concat();
        played.to_us.write_all(&answer).await.unwrap();
    }
    played.activity.idle_for(Some(Duration::from_secs(15))).await;
    assert_eq!(began.elapsed().as_secs(), 15);
}
