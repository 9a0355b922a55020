//! Clients that make the server work for nothing: each may so much, and not a frame more.

use super::*;

/// A site whose client does something `times` over, and then asks for a file: whether it gets it,
/// and what is counted.
async fn after(
    times: usize,
    settings: &[(u16, u32)],
    mut bytes: impl FnMut(usize) -> Vec<u8>,
) -> (bool, Http2) {
    let mut peer = Peer::with(site(Knobs::default()), settings).await;
    for time in 0..times {
        let _ = peer.stream.write_all(&bytes(time)).await;
        // Others run meanwhile, as they would.
        tokio::task::yield_now().await;
    }
    peer.get(100_001, "/a").await;
    let mut has_answer = false;
    while let Ok(Some(frame)) = timeout(Duration::from_secs(2), peer.next()).await {
        if frame.kind == kind::GOAWAY {
            let error = u32::from_be_bytes(frame.content[4..8].try_into().unwrap());
            assert_eq!(error, ENHANCE_YOUR_CALM);
            while peer.next().await.is_some() {}
            assert!(peer.serving.await.unwrap().is_err());
            let counts = peer.server.http2();
            return (false, Http2 { connections: 0, requests: 0, ..counts });
        }
        has_answer = frame.kind == kind::HEADERS && frame.stream == 100_001;
        if has_answer {
            break;
        }
    }
    (has_answer, peer.counts())
}

fn flood(set: fn(&mut Http2) -> &mut u64) -> (bool, Http2) {
    let mut counts = Http2::default();
    *set(&mut counts) = 1;
    (false, counts)
}

fn served() -> (bool, Http2) {
    (true, Http2::default())
}

#[tokio::test(start_paused = true)]
async fn pings_and_settings_and_what_nobody_knows_have_an_end() {
    local(async {
        let ping = |_| frame(kind::PING, 0, 0, b"12345678");
        // The client has sent SETTINGS and a head before.
        assert_eq!(after(1497, &[], ping).await, served());
        assert_eq!(after(1501, &[], ping).await, flood(|counts| &mut counts.flood_pings));
        let settings = |_| frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]);
        assert_eq!(after(1497, &[], settings).await, served());
        assert_eq!(after(1501, &[], settings).await, flood(|counts| &mut counts.flood_settings));
        let priority = |_| frame(2, 0, 1, &[0, 0, 0, 0, 1]);
        assert_eq!(after(1497, &[], priority).await, served());
        assert_eq!(after(1501, &[], priority).await, flood(|counts| &mut counts.flood_others));
        let unknown = |_| frame(0xbe, 0, 0, &[7; 100]);
        assert_eq!(after(1501, &[], unknown).await, flood(|counts| &mut counts.flood_others));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_taken_back_have_an_end() {
    local(async {
        let taken_back = |time: usize| {
            let stream = 2 * time as u32 + 1;
            let asked = frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", "/a"));
            [asked, frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, CANCEL])].concat()
        };
        assert_eq!(after(100, &[], taken_back).await, served());
        assert_eq!(after(130, &[], taken_back).await, flood(|counts| &mut counts.flood_resets));
        // All at once: h2 has a limit of its own, which is counted likewise.
        let all = |_| (0..130).flat_map(taken_back).collect();
        assert_eq!(after(1, &[], all).await, flood(|counts| &mut counts.flood_resets));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn heads_in_pieces_have_an_end() {
    local(async {
        let pieces = |count: usize| {
            move |_| {
                let mut frames = frame(kind::HEADERS, END_STREAM, 1, &head("GET", "/a"));
                for piece in 1..=count {
                    let end = if piece == count { END_HEADERS } else { 0 };
                    frames.extend(frame(kind::CONTINUATION, end, 1, &field("x", "y")));
                }
                frames
            }
        };
        assert_eq!(after(1, &[], pieces(4)).await, served());
        assert_eq!(after(1, &[], pieces(5)).await, flood(|counts| &mut counts.flood_continuations));
        // Without an end.
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.send(kind::HEADERS, END_STREAM, 1, &head("GET", "/a")).await;
        for _ in 0..10_000 {
            peer.send(kind::CONTINUATION, 0, 1, b"").await;
        }
        assert_eq!(peer.goaway().await, ENHANCE_YOUR_CALM);
        assert_eq!(peer.counts().flood_continuations, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn data_that_brings_nothing_has_an_end() {
    local(async {
        let empty = |time: usize| {
            let data = frame(kind::DATA, 0, 1, if time.is_multiple_of(2) { b"" } else { b"x" });
            match time {
                0 => [frame(kind::HEADERS, END_HEADERS, 1, &head("POST", "/a")), data].concat(),
                _ => data,
            }
        };
        // h2 allows a hundred that are empty.
        assert_eq!(after(190, &[], empty).await, served());
        assert_eq!(after(1510, &[], empty).await, flood(|counts| &mut counts.flood_empty));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn windows_of_a_byte_have_an_end() {
    local(async {
        let byte = |time: usize| {
            let more = frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
            let asked = frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head("GET", "/big"));
            if time == 0 { [asked, more].concat() } else { more }
        };
        assert_eq!(after(700, &[(4, 0)], byte).await, served());
        assert_eq!(after(760, &[(4, 0)], byte).await, flood(|counts| &mut counts.flood_windows));
        // One beyond 2^31 is an error of the protocol (RFC 9113 §6.9.1).
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.open_window(0, 0x7fff_ffff).await;
        assert_eq!(peer.goaway().await, 3);
    })
    .await;
}

/// The first byte of the answer to a head with these fields behind it, and what is counted.
async fn bombed(fields: &[u8]) -> (u8, Http2) {
    let mut peer = Peer::new(site(Knobs::default())).await;
    let bytes = [&head("GET", "/a"), fields].concat();
    let mut pieces = bytes.chunks(16_384).peekable();
    let mut kind = kind::HEADERS;
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        let flags = if kind == kind::HEADERS { end | END_STREAM } else { end };
        peer.send(kind, flags, 1, piece).await;
        kind = kind::CONTINUATION;
    }
    let status = loop {
        let frame = peer.next_of_note().await.expect("an answer");
        if frame.kind == kind::HEADERS {
            break frame.content[0];
        }
    };
    // The connection goes on.
    peer.get(3, "/a").await;
    while peer.next_of_note().await.unwrap().stream != 3 {}
    drop(peer.stream);
    let _ = peer.serving.await;
    let counts = peer.server.http2();
    (status, Http2 { connections: 0, requests: 0, ..counts })
}

#[tokio::test(start_paused = true)]
async fn long_heads_and_those_that_grow_are_refused_and_counted() {
    local(async {
        let refused = Http2 { heads_refused: 1, ..Http2::default() };
        let long = |bytes: usize| field("x", &"y".repeat(bytes));
        let (status, counts) = bombed(&long(16_384 - 33)).await;
        assert_eq!((status, counts), (OK, Http2::default()));
        for bytes in [16_384 - 32, 30_000, 40_000] {
            let (status, counts) = bombed(&long(bytes)).await;
            assert!(status != OK && counts == refused, "{bytes}: {status} {counts:?}");
        }
        let many = |count: usize| -> Vec<u8> {
            (0..count).flat_map(|number| field(&format!("x{number}"), "")).collect()
        };
        assert_eq!(bombed(&many(100)).await.0, OK);
        let (status, counts) = bombed(&many(101)).await;
        assert!(status != OK && counts == refused);
        // One field that is kept, and named a thousand times by a byte each (RFC 7541 §6.1).
        let kept = [vec![0x40], string(b"bomb"), string(&[b'x'; 3000]), vec![0xbe; 1000]].concat();
        let bytes = [&head("GET", "/a"), &kept[..]].concat();
        let bomb = |_| frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &bytes);
        assert_eq!(after(1, &[], bomb).await, flood(|counts| &mut counts.flood_heads));
    })
    .await;
}
