use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// The answers in `bytes`, fed in pieces of these sizes, and the result of `end`.
fn parse(
    bytes: &[u8],
    pieces: impl IntoIterator<Item = usize>,
    is_head: bool,
) -> Result<(Vec<Answer>, Option<Answer>), Malformed> {
    let mut parser = Parser::new(is_head);
    let (mut answers, mut rest) = (Vec::new(), bytes);
    let mut pieces = pieces.into_iter();
    while !rest.is_empty() {
        let len = pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (mut piece, behind) = rest.split_at(len);
        rest = behind;
        while !piece.is_empty() {
            let (taken, answer) = parser.take(piece)?;
            assert!(answer.is_some() || taken == piece.len(), "all is taken but what follows");
            answers.extend(answer);
            piece = &piece[taken..];
        }
    }
    Ok((answers, parser.end()))
}

/// The only answer in `text`, whether it comes in one piece or byte by byte.
fn one(text: &str) -> Result<(Option<Answer>, Option<Answer>), Malformed> {
    let whole = parse(text.as_bytes(), [], false);
    assert_eq!(whole, parse(text.as_bytes(), std::iter::repeat_n(1, text.len()), false), "{text}");
    whole.map(|(answers, end)| {
        assert!(answers.len() <= 1, "{text}");
        (answers.first().copied(), end)
    })
}

/// An answer of HTTP/1.1 with that text.
fn plain(status: u16, text: &str, keeps_alive: bool) -> Answer {
    let bytes = text.len() as u64;
    Answer { status, bytes, keeps_alive, asks_close: false, is_older: false }
}

#[test]
fn an_answer_ends_where_rfc_9112_says() {
    // The head's fields, the body, whether the connection is kept.
    for (head, body, keeps) in [
        ("200 OK\r\nContent-Length: 5\r\n", "hello", true),
        ("200\r\ncontent-LENGTH:5\r\n", "hello", true),
        ("200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n", "hello", true),
        ("200 OK\r\nContent-Length: 0\r\n", "", true),
        ("200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n", "hello", false),
        ("204 No Content\r\nContent-Length: 5\r\n", "", true),
        ("304 Not Modified\r\nTransfer-Encoding: chunked\r\n", "", true),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", true),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", "005;x=\"y\"\r\nhello\r\n0\r\n\r\n", true),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", "A \r\n0123456789\r\n0\r\n\r\n", true),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n", "0\r\na: b\r\nc: d\r\n\r\n", true),
        ("200 OK\r\nTransfer-Encoding: gzip\r\ntransfer-encoding: Chunked\r\n", "0\r\n\r\n", true),
        ("200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n", "0\r\n\r\n", false),
    ] {
        let text = format!("HTTP/1.1 {head}\r\n{body}");
        let (answer, end) = one(&text).unwrap();
        let status = head[..3].parse().unwrap();
        let wanted = plain(status, &text, keeps);
        assert_eq!((answer, end), (Some(wanted), None), "{text}");
    }
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    for head in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n"] {
        let text = format!("{head}\r\nhello");
        let wanted = plain(200, &text, false);
        assert_eq!(one(&text).unwrap(), (None, Some(wanted)));
    }
}

#[test]
fn http_1_0_keeps_a_connection_only_if_it_says_so() {
    for (field, keeps) in [("", false), ("Connection: Keep-Alive\r\n", true)] {
        let text = format!("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n{field}\r\n");
        let wanted = Answer { is_older: true, ..plain(200, &text, keeps) };
        assert_eq!(one(&text).unwrap().0, Some(wanted), "{field}");
    }
}

#[test]
fn interim_answers_belong_to_the_final_one() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n\
                HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let wanted = plain(200, text, true);
    assert_eq!(one(text).unwrap().0, Some(wanted));
}

#[test]
fn an_answer_to_head_has_no_body_whatever_it_says() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n\
                 HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 HTTP/1.1 200 OK\r\n\r\n";
    let (answers, end) = parse(text, [], true).unwrap();
    assert_eq!((answers.len(), end), (3, None));
    assert!(answers.iter().all(|answer| answer.keeps_alive));
}

#[test]
fn an_answer_cut_short_is_none() {
    let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for len in 0..whole.len() {
        assert_eq!(one(&whole[..len]).unwrap(), (None, None), "{len}");
    }
}

#[test]
fn what_is_no_answer_is_refused_with_the_reason() {
    for (text, why) in [
        ("HTTP/2 200 OK\r\n\r\n", "first line is not HTTP/1"),
        ("GET / HTTP/1.1\r\n\r\n", "first line is not HTTP/1"),
        ("HTTP/1.x 200 OK\r\n\r\n", "head cannot be read"),
        // Nothing may follow the first line of another protocol.
        ("SSH-2.0-foo\r\n", "first line is not HTTP/1"),
        ("HTTP/1.1 100 Continue\r\n\r\nSSH", "first line is not HTTP/1"),
        ("\r\n\0", "first line is not HTTP/1"),
        ("\r\n\r\n\r\n", "no head"),
        ("HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
        ("HTTP/1.1 099 x\r\n\r\n", "below 100"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", "two different"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no number"),
        ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "no number"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", "no number"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "size of a chunk"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n", "size of a chunk"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1x\r\n", "size of a chunk"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            "size of a chunk",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab", "longer than its size"),
    ] {
        let Malformed(reason) = one(text).unwrap_err();
        assert!(reason.contains(why), "{text}: {reason}");
    }
}

#[test]
fn a_head_may_have_64_kib_and_128_fields_and_no_more() {
    let head = |len: usize| {
        let rest = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\na: \r\n\r\n".len();
        let value = "x".repeat(len - rest);
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\na: {value}\r\n\r\n")
    };
    let pieces = |text: &str| parse(text.as_bytes(), std::iter::repeat_n(1000, 100), false);
    assert!(one(&head(64 << 10)).unwrap().0.is_some());
    for text in [head((64 << 10) + 1), format!("HTTP/1.1 {}", "x".repeat(1 << 20))] {
        assert!(parse(text.as_bytes(), [], false).is_err());
        assert!(pieces(&text).unwrap_err().0.contains("64 KiB"));
    }
    // An endless row of interim answers counts as a head as well.
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(3000);
    assert!(pieces(&interim).unwrap_err().0.contains("64 KiB"));
    let fields = |count: usize| {
        format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "a: b\r\n".repeat(count - 1))
    };
    assert!(one(&fields(128)).unwrap().0.is_some());
    assert!(one(&fields(129)).unwrap_err().0.contains("128"));
}

#[test]
fn a_line_of_the_chunked_coding_may_have_16_kib_and_no_more() {
    let text = |extension: usize| {
        let extension = "x".repeat(extension - "1;\r\n".len());
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{extension}\r\nb\r\n0\r\n\r\n"
        )
    };
    assert!(one(&text(16 << 10)).unwrap().0.is_some());
    assert!(one(&text((16 << 10) + 1)).unwrap_err().0.contains("16 KiB"));
    let trailers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n".to_owned()
        + &"a: b\r\n".repeat(10_000);
    assert!(one(&trailers).unwrap_err().0.contains("16 KiB"));
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Any answer, as text, with its status.
fn answers() -> impl Strategy<Value = (String, u16)> {
    let body = prop::collection::vec("[ -~]{0,40}", 0..4);
    (body, 0..4u8, prop::sample::select(vec![200u16, 206, 301, 404, 503])).prop_map(
        |(body, kind, status)| {
            let interim = if kind == 3 { "HTTP/1.1 102 Processing\r\n\r\n" } else { "" };
            let text = if kind % 2 == 0 {
                let body = body.concat();
                format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            } else {
                let full = body.iter().filter(|chunk| !chunk.is_empty());
                let chunks: String =
                    full.map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
                format!(
                    "HTTP/1.1 {status} x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
                )
            };
            (format!("{interim}{text}"), status)
        },
    )
}

proptest! {
    #[test]
    fn answers_cut_anywhere_are_the_same(
        answers in prop::collection::vec(answers(), 1..5),
        pieces in prop::collection::vec(1usize..40, 0..60),
    ) {
        let text: String = answers.iter().map(|(text, _)| text.as_str()).collect();
        let (parsed, end) = parse(text.as_bytes(), pieces, false).unwrap();
        let wanted: Vec<Answer> = answers
            .iter()
            .map(|(text, status)| plain(*status, text, true))
            .collect();
        prop_assert_eq!((parsed, end), (wanted, None));
    }

    #[test]
    fn no_bytes_make_the_parser_panic_or_disagree_with_itself(
        head in prop::sample::select(vec!["", CHUNKED]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        pieces in prop::collection::vec(1usize..20, 0..60),
    ) {
        let all = [head.as_bytes(), &bytes].concat();
        prop_assert_eq!(parse(&all, [], false), parse(&all, pieces, false));
    }
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn buffer() -> RefCell<Vec<u8>> {
    RefCell::new(vec![0; 16 << 10])
}

/// Exchanges `requests` with a peer that reads them all, sends `reply` and closes if `closes`.
/// Returns the result and the number of answers.
async fn with_peer(
    requests: &str,
    expected: usize,
    reply: &str,
    closes: bool,
) -> (io::Result<Left>, usize) {
    let (mut ours, mut theirs) = duplex(64);
    let mut answers = 0;
    let peer = async {
        let mut request = vec![0; requests.len()];
        theirs.read_exact(&mut request).await.unwrap();
        assert_eq!(request, requests.as_bytes());
        theirs.write_all(reply.as_bytes()).await.unwrap();
        if closes {
            drop(theirs);
            None
        } else {
            Some(theirs)
        }
    };
    let buffer = buffer();
    let on_event = |event| answers += usize::from(matches!(event, Event::Answer(_)));
    let heads = vec![false; expected];
    let ours = exchange(&mut ours, requests.as_bytes(), &heads, &buffer, on_event);
    let (result, _theirs) = tokio::join!(ours, peer);
    (result, answers)
}

#[tokio::test]
async fn pipelined_requests_get_their_answers_in_one_exchange() {
    let requests = "GET / HTTP/1.1\r\n\r\n".repeat(20);
    let (left, answers) = with_peer(&requests, 20, &HELLO.repeat(20), false).await;
    assert_eq!((left.unwrap(), answers), (Left::Open, 20));
}

#[tokio::test]
async fn a_connection_is_kept_only_by_an_answer_with_nothing_behind() {
    let closing = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (reply, closes, left) in [
        (HELLO.to_owned(), false, Left::Open),
        (closing.to_owned(), false, Left::Closing),
        (format!("{HELLO}surplus"), false, Left::Closing),
        ("HTTP/1.1 200 OK\r\n\r\nto the end".to_owned(), true, Left::Closing),
    ] {
        let (result, answers) = with_peer("x", 1, &reply, closes).await;
        assert_eq!((result.unwrap(), answers), (left, 1), "{reply}");
    }
}

#[tokio::test]
async fn an_early_end_says_which_requests_were_answered() {
    let closing = HELLO.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    for reply in [String::new(), HELLO[..30].to_owned(), HELLO.to_owned(), closing + HELLO] {
        let (result, answers) = with_peer("xx", 2, &reply, true).await;
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{reply}");
        assert_eq!(answers, usize::from(reply.len() >= HELLO.len()), "{reply}");
    }
}

#[tokio::test]
async fn an_announced_close_ends_a_batch_though_the_peer_stays() {
    let closing = HELLO.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    for reply in [closing, HELLO.replace("HTTP/1.1", "HTTP/1.0")] {
        for count in [2, 3] {
            let replies = HELLO.repeat(count - 2) + &reply;
            let exchanged = with_peer("xxx", count, &replies, false);
            let exchanged = tokio::time::timeout(Duration::from_secs(5), exchanged).await;
            let (result, answers) = exchanged.expect("it waits for nothing");
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{reply}");
            assert_eq!(answers, count - 1, "{reply}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_request_that_was_not_read_to_its_end_is_taken() {
    let (mut ours, mut theirs) = duplex(64);
    let peer = async move {
        theirs.read_exact(&mut [0; 10]).await.unwrap();
        theirs.write_all(HELLO.as_bytes()).await.unwrap();
    };
    let (buffer, body) = (buffer(), [b'x'; 10_000]);
    let (result, ()) = tokio::join!(exchange(&mut ours, &body, &[false], &buffer, |_| ()), peer);
    assert_eq!(result.unwrap(), Left::Closing);
}

#[tokio::test]
async fn both_ends_may_write_before_they_read() {
    // Each direction holds 64 bytes: an end that only writes would wait for ever.
    let (mut ours, mut theirs) = duplex(64);
    let requests = "x".repeat(4000);
    let peer = async {
        let (mut read, mut write) = tokio::io::split(&mut theirs);
        let mut request = vec![0; 4000];
        write.write_all(HELLO.repeat(99).as_bytes()).await.unwrap();
        read.read_exact(&mut request).await.unwrap();
        write.write_all(HELLO.as_bytes()).await.unwrap();
    };
    let buffer = buffer();
    let ours = exchange(&mut ours, requests.as_bytes(), &[false; 100], &buffer, |_| ());
    let (result, ()) = tokio::join!(ours, peer);
    assert_eq!(result.unwrap(), Left::Open);
}

#[tokio::test]
async fn the_first_byte_of_each_answer_is_told_once() {
    let (mut ours, mut theirs) = duplex(7);
    let peer = async { theirs.write_all(HELLO.repeat(3).as_bytes()).await.unwrap() };
    let (buffer, mut events) = (buffer(), String::new());
    let on_event = |event| events.push(if event == Event::FirstByte { 'f' } else { 'a' });
    let (result, ()) =
        tokio::join!(exchange(&mut ours, b"x", &[false; 3], &buffer, on_event), peer);
    result.unwrap();
    assert_eq!(events, "fafafa");
}

#[tokio::test]
async fn an_answer_to_head_has_no_body_among_others_that_have() {
    let (mut ours, mut theirs) = duplex(1 << 10);
    let head = HELLO.split_inclusive("\r\n\r\n").next().unwrap();
    let reply = [HELLO, head, head, HELLO].concat();
    let peer = async { theirs.write_all(reply.as_bytes()).await.unwrap() };
    let (buffer, heads, mut bytes) = (buffer(), [false, true, true, false], Vec::new());
    let on_event = |event| match event {
        Event::Answer(answer) => bytes.push(answer.bytes as usize),
        Event::FirstByte => {}
    };
    let (result, ()) = tokio::join!(exchange(&mut ours, b"x", &heads, &buffer, on_event), peer);
    assert_eq!(result.unwrap(), Left::Open);
    assert_eq!(bytes, [HELLO.len(), head.len(), head.len(), HELLO.len()]);
}

#[tokio::test]
async fn waiting_for_the_peers_fin_takes_surplus_up_to_a_bound() {
    let buffer = buffer();
    let (mut ours, mut theirs) = duplex(1 << 20);
    theirs.write_all(&[b'x'; MOST_SURPLUS_BYTES]).await.unwrap();
    drop(theirs);
    closed(&mut ours, &buffer).await.unwrap();
    let (mut ours, mut theirs) = duplex(1 << 20);
    theirs.write_all(&[b'x'; MOST_SURPLUS_BYTES + 1]).await.unwrap();
    let error = closed(&mut ours, &buffer).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}
