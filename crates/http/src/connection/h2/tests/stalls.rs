//! Clients that let nothing of their answers pass, or too little.

use super::*;
use crate::body::RequestBody;
use crate::{Body, Pending};
use http::{Request, Response};
use http_body_util::BodyExt;

/// The windows of the connection and of new streams.
async fn with_window(bytes: u32) -> Peer {
    let mut peer = Peer::with(site(Knobs::default()), &[(4, bytes)]).await;
    peer.open_window(0, 64 << 20).await;
    peer
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lets_nothing_pass_is_reset_and_others_go_on() {
    local(async {
        for (pause, is_reset) in [(29, false), (40, true)] {
            let mut peer = with_window(0).await;
            peer.get(1, "/big").await;
            assert_eq!(peer.next_of_note().await.unwrap().kind, kind::HEADERS);
            sleep(Duration::from_secs(pause)).await;
            peer.get(3, "/a").await;
            peer.open_window(3, 3).await;
            if is_reset {
                let reset = peer.next_of_note().await.unwrap();
                assert_eq!((reset.kind, reset.stream), (kind::RST_STREAM, 1));
                assert_eq!(reset.content, [0, 0, 0, CANCEL]);
                assert_eq!(peer.answer(3).await, (OK, b"aaa".to_vec()));
                assert!(!peer.records.borrow()[0].complete);
            } else {
                assert_eq!(peer.answer(3).await, (OK, b"aaa".to_vec()));
                peer.open_window(1, 1 << 20).await;
                assert_eq!(peer.answer(1).await.1.len(), 1 << 20);
            }
            let wanted = Http2 { reset_stalled: is_reset.into(), ..Http2::default() };
            assert_eq!(peer.counts(), wanted);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn where_h2_has_the_rest_the_connection_ends() {
    local(async {
        // The task of the stream is over once h2 has its last bytes.
        let mut peer = with_window(1).await;
        peer.get(1, "/a").await;
        let began = Time::now();
        assert_eq!(peer.goaway().await, NO_ERROR);
        assert!((30..40).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert_eq!(peer.counts(), Http2 { reset_stalled: 1, ..Http2::default() });
    })
    .await;
}

/// Lets so many bytes of each of `streams` pass every second. After how many seconds the first is
/// reset; `None` if none is within ten minutes.
async fn paced(bytes: u32, streams: u32) -> (Option<u64>, Http2) {
    let mut peer = with_window(0).await;
    let began = Time::now();
    for number in 0..streams {
        peer.get(2 * number + 1, "/big").await;
    }
    for second in 0..600 {
        for number in 0..streams {
            peer.open_window(2 * number + 1, bytes).await;
        }
        let next = began + Duration::from_secs(second + 1);
        while let Ok(frame) = tokio::time::timeout_at(next, peer.next_of_note()).await {
            if frame.is_none_or(|frame| frame.kind == kind::RST_STREAM) {
                return (Some(began.elapsed().as_secs()), peer.counts());
            }
        }
    }
    (None, peer.counts())
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_its_part_of_the_least_rate() {
    local(async {
        assert_eq!(paced(1100, 1).await, (None, Http2::default()));
        let (after, counts) = paced(900, 1).await;
        assert!(after.is_some_and(|after| (60..80).contains(&after)), "{after:?}");
        assert_eq!(counts, Http2 { reset_slow: 1, ..Http2::default() });
        assert_eq!(paced(550, 2).await, (None, Http2::default()));
        let (after, counts) = paced(450, 2).await;
        assert!(after.is_some_and(|after| (60..80).contains(&after)), "{after:?}");
        assert!(counts.reset_slow > 0 && counts.reset_stalled == 0, "{counts:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_read_slowly_is_nobodys_stall() {
    local(async {
        // Each read takes as many polls as the test has seconds for.
        let mut source = MemoryFiles::new(&[("big", &[7; 1 << 20])]);
        source.polls = 200;
        let files = Files::new(source, FilesConfig::default(), clock());
        let mut peer = Peer::new(Server::new(files, Knobs::default(), clock())).await;
        peer.open_window(0, 1 << 20).await;
        peer.get(1, "/big").await;
        peer.open_window(1, 1 << 20).await;
        assert_eq!(peer.answer(1).await.1.len(), 1 << 20);
        assert_eq!(peer.counts(), Http2::default());
    })
    .await;
}

/// Sends every request's body back when it has all of it.
struct Echo;

impl Handler for Echo {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        Box::pin(async move {
            let body = request.into_body().collect().await;
            Response::new(body.map_or_else(|_| Body::empty(), |body| Body::from(body.to_bytes())))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    local(async {
        for (pause, is_reset) in [(14, false), (25, true)] {
            let (stream, io) = tokio::io::duplex(1 << 20);
            let server = Rc::new(Server::new(Echo, Knobs::default(), clock()));
            let peer = SocketAddr::from(([192, 0, 2, 1], 1));
            let served = server.clone().serve_http2(TokioIo::new(io), (), peer);
            spawn_local(served);
            let mut client = stream;
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            bytes.extend(frame(kind::SETTINGS, 0, 0, b""));
            bytes.extend(frame(kind::HEADERS, END_HEADERS, 1, &head("POST", "/")));
            bytes.extend(frame(kind::DATA, 0, 1, &[7; 1000]));
            client.write_all(&bytes).await.unwrap();
            sleep(Duration::from_secs(pause)).await;
            client.write_all(&frame(kind::DATA, END_STREAM, 1, b"end")).await.unwrap();
            let mut reply = Vec::new();
            while timeout(Duration::from_secs(1), client.read_buf(&mut reply)).await.is_ok() {}
            assert_eq!(reply.windows(3).any(|three| three == b"end"), !is_reset, "{pause}");
            assert_eq!(server.http2().reset_stalled, is_reset.into());
        }
    })
    .await;
}
