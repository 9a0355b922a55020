//! The record of a response whose connection the server itself resets.

use std::cell::RefCell;

use super::*;
use crate::access::Access;
use crate::connection::stop::Stop;
use crate::control::Delivery;

const UNACKNOWLEDGED: u64 = 300_000;
const SRTT: Duration = Duration::from_millis(7);

/// Asks for a file that the pipe does not hold whole, lets `end` end the connection, and returns
/// the record and the bytes of the answer.
async fn cut(request: &str, end: impl AsyncFnOnce(&Stop)) -> (Access, Vec<u8>) {
    let records = Rc::<RefCell<Vec<Access>>>::default();
    let log = records.clone();
    let server = Server::new(files(), ServerConfig::default(), clock());
    let server = server.on_access(move |access| log.borrow_mut().push(access));
    let (stop, transport) = (server.stop().clone(), Transport::default());
    let delivery = Delivery { unacknowledged: UNACKNOWLEDGED, srtt: SRTT, retransmits: 4 };
    transport.delivery.set(Some(Delivery { retransmits: 1, ..delivery }));
    transport.undelivered.set(UNACKNOWLEDGED as usize);
    let mut client = serve_over(&transport, server);
    client.send(request).await;
    sleep(Duration::from_millis(10)).await;
    transport.delivery.set(Some(delivery));
    end(&stop).await;
    let _ = (&mut client.serving).await.unwrap();
    assert!(transport.is_reset.get());
    let record = records.borrow()[0].clone();
    (record, client.rest().await)
}

/// The bytes of the body among those that were acknowledged of `answer`.
fn acknowledged_body(answer: &[u8]) -> u64 {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    (answer.len() - head) as u64 - UNACKNOWLEDGED
}

#[tokio::test(start_paused = true)]
async fn the_record_has_what_was_acknowledged_before_the_reset() {
    local(async {
        let signals = cut(
            "GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            async |stop: &Stop| {
                stop.request();
                stop.cut();
            },
        );
        let (signals, stalled) =
            (signals.await, cut("GET /big HTTP/1.1\r\nHost: h\r\n\r\n", async |_: &Stop| {}).await);
        for (record, answer) in [signals, stalled] {
            assert_eq!((record.body_bytes, record.complete), (acknowledged_body(&answer), false));
            assert_eq!((record.srtt, record.retransmits), (Some(SRTT), Some(3)));
        }
    })
    .await;
}
