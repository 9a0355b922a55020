//! Frames in bytes that are cut anywhere, and what they cost.

use super::*;

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()[..]].concat();
    [&head, content].concat()
}

fn found(framing: &mut Framing, bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    framing.feed(bytes, |frame| frames.push(frame));
    frames
}

#[test]
fn frames_are_found_wherever_the_bytes_are_cut() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let frames = [
        frame(kind::SETTINGS, 0, 0, b""),
        frame(kind::PING, 1, 0, b"12345678"),
        frame(kind::DATA, 0, 0x8000_0003, &[7; 1000]),
        frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]),
        frame(kind::GOAWAY, 0, 0, &goaway(9, ENHANCE_YOUR_CALM)[9..]),
    ];
    let bytes = [&preface[..], &frames.concat()].concat();
    let mut whole = Framing::of_client();
    let wanted = found(&mut whole, &bytes);
    let heads = wanted.iter().map(|frame| (frame.kind, frame.length, frame.stream));
    let heads: Vec<_> = heads.collect();
    assert_eq!(heads, [(4, 0, 0), (6, 8, 0), (0, 1000, 3), (3, 4, 5), (7, 8, 0)]);
    assert_eq!(wanted[4].goaway_error(), ENHANCE_YOUR_CALM);
    assert!(whole.is_between());
    for step in 1..50 {
        let mut framing = Framing::of_client();
        assert!(framing.is_between());
        let pieces = bytes.chunks(step).flat_map(|piece| found(&mut framing, piece));
        assert_eq!(pieces.collect::<Vec<_>>(), wanted, "{step}");
        assert!(framing.is_between());
    }
    for cut in 1..bytes.len() {
        let mut framing = Framing::of_client();
        found(&mut framing, &bytes[..cut]);
        let mut ends = vec![preface.len()];
        ends.extend(frames.iter().scan(preface.len(), |end, frame| {
            *end += frame.len();
            Some(*end)
        }));
        assert_eq!(framing.is_between(), ends.contains(&cut), "{cut}");
    }
}

fn seen(kind: u8, flags: u8, length: u32) -> Frame {
    Frame { length, kind, flags, stream: 1, begin: [0; BEGIN_BYTES] }
}

/// How often a client may do that before the connection ends, and for which cause.
fn often(mut once: impl FnMut(&mut Ledger)) -> (u32, Cause) {
    let mut ledger = Ledger::new();
    for times in 0..100_000 {
        once(&mut ledger);
        if let Some(cause) = ledger.flood() {
            return (times, cause);
        }
    }
    panic!("without an end");
}

#[test]
fn what_brings_nothing_is_done_so_often_and_not_once_more() {
    for (kind, flags, length, times, cause) in [
        (kind::PING, 0, 8, 1500, Cause::Pings),
        (kind::PING, 1, 8, 1500, Cause::Pings),
        (kind::SETTINGS, 0, 6, 1500, Cause::Settings),
        (kind::WINDOW_UPDATE, 0, 4, 1500, Cause::Windows),
        (2, 0, 5, 1500, Cause::Others),
        (0xfe, 0, 500, 1500, Cause::Others),
        (kind::DATA, 0, 0, 1500, Cause::Empty),
        (kind::DATA, 0, 255, 1500, Cause::Empty),
        (kind::RST_STREAM, 0, 4, 150, Cause::Resets),
        (kind::HEADERS, END_HEADERS, 20, 750, Cause::Resets),
    ] {
        let did = often(|ledger| ledger.on_read(seen(kind, flags, length)));
        assert_eq!(did, (times, cause), "{kind} {length}");
    }
}

#[test]
fn a_request_taken_back_costs_more_than_one_answered() {
    let taken_back = often(|ledger| {
        ledger.on_read(seen(kind::HEADERS, END_HEADERS | END_STREAM, 20));
        ledger.on_read(seen(kind::RST_STREAM, 0, 4));
        ledger.on_answered(u64::MAX);
    });
    assert_eq!(taken_back, (125, Cause::Resets));
    let mut ledger = Ledger::new();
    for answered in 1..10_000 {
        ledger.on_read(seen(kind::HEADERS, END_HEADERS | END_STREAM, 20));
        ledger.on_read(seen(kind::WINDOW_UPDATE, 0, 4));
        ledger.on_written(seen(kind::HEADERS, END_HEADERS, 20));
        ledger.on_answered(answered);
        assert_eq!(ledger.flood(), None);
    }
    // A head that h2 refuses gives nothing back.
    let (times, cause) = often(|ledger| {
        ledger.on_read(seen(kind::HEADERS, END_HEADERS | END_STREAM, 9000));
        ledger.on_written(seen(kind::HEADERS, END_HEADERS, 20));
        ledger.on_answered(0);
    });
    assert_eq!((times, cause), (750, Cause::Resets));
}

#[test]
fn a_download_pays_for_windows_but_not_for_those_of_a_byte() {
    let mut ledger = Ledger::new();
    for _ in 0..100_000 {
        ledger.on_written(seen(kind::DATA, 0, 16 << 10));
        ledger.on_read(seen(kind::WINDOW_UPDATE, 0, 4));
        ledger.on_read(seen(kind::WINDOW_UPDATE, 0, 4));
        assert_eq!(ledger.flood(), None);
    }
    let (times, cause) = often(|ledger| {
        ledger.on_read(seen(kind::WINDOW_UPDATE, 0, 4));
        ledger.on_written(seen(kind::DATA, 0, 1));
    });
    assert_eq!((times, cause), (750, Cause::Windows));
}

#[test]
fn a_head_has_four_more_pieces_and_not_five() {
    let flooded = |pieces: u8| {
        let mut ledger = Ledger::new();
        ledger.on_read(seen(kind::HEADERS, 0, 20));
        (0..pieces).for_each(|_| ledger.on_read(seen(kind::CONTINUATION, 0, 20)));
        assert!(ledger.is_in_head());
        ledger.flood()
    };
    assert_eq!((flooded(4), flooded(5)), (None, Some(Cause::Continuations)));
    // Heads one after another have as many each.
    let (times, cause) = often(|ledger| {
        ledger.on_read(seen(kind::HEADERS, 0, 20));
        ledger.on_read(seen(kind::CONTINUATION, END_HEADERS, 0));
        assert!(!ledger.is_in_head());
    });
    assert_eq!((times, cause), (500, Cause::Resets));
}

#[test]
fn a_flood_that_h2_finds_is_counted_by_what_was_sent() {
    let mut ledger = Ledger::new();
    ledger.on_read(seen(kind::RST_STREAM, 0, 4));
    let mut framing = Framing::default();
    framing.feed(&goaway(7, NO_ERROR), |frame| ledger.on_written(frame));
    assert!(ledger.has_ended() && ledger.flood().is_none());
    framing.feed(&goaway(7, ENHANCE_YOUR_CALM), |frame| ledger.on_written(frame));
    assert_eq!(ledger.flood(), Some(Cause::Resets));
    for (words, cause) in [
        (&b"header_list_way_too_large"[..], Cause::Heads),
        (b"too_many_resets", Cause::Resets),
        (b"too_many_continuations", Cause::Continuations),
        (b"too_many_data_frames", Cause::Empty),
        (b"something else", Cause::Pings),
    ] {
        let mut ledger = Ledger::new();
        ledger.on_read(seen(kind::PING, 0, 8));
        let content = [&goaway(7, ENHANCE_YOUR_CALM)[9..], words].concat();
        let frame = frame(kind::GOAWAY, 0, 0, &content);
        Framing::default().feed(&frame, |frame| ledger.on_written(frame));
        assert_eq!(ledger.flood(), Some(cause));
    }
}
