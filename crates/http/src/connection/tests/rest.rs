//! A connection that waits for a request frees what only requests need. Its client does not notice.

use super::*;
use crate::client_close;
use crate::limits::memory::ConnectionRoom;
use http::StatusCode;

/// A server, and a client of it.
fn served(config: ServerConfig) -> (Client, Rc<Server<Files<MemoryFiles>>>) {
    connect_to(Server::new(files(), config, clock()), 64 << 10)
}

/// Longer than a connection waits before it rests.
const PAUSE: Duration = Duration::from_millis(1500);

#[tokio::test(start_paused = true)]
async fn a_connection_rests_between_requests_and_answers_the_next() {
    local(async {
        let (mut client, server) = served(ServerConfig::default());
        for rests in 1..4 {
            assert_eq!(client.get("/a").await.body, b"aaa");
            sleep(Duration::from_millis(999)).await;
            assert_eq!(server.tally().rests, rests - 1, "not before its time");
            assert_eq!(client.get("/b").await.body, b"bb");
            sleep(PAUSE).await;
            assert_eq!(server.tally().rests, rests);
        }
        drop(client.stream);
        client.serving.await.unwrap().unwrap();
        assert_eq!(client.records.borrow().len(), 6);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_has_nothing_to_give_up() {
    local(async {
        let (mut client, server) = served(ServerConfig::default());
        sleep(PAUSE * 3).await;
        assert_eq!(server.tally().rests, 0);
        assert_eq!(client.get("/a").await.body, b"aaa");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_a_request_is_on_its_way_it_does_not_rest() {
    local(async {
        let (mut client, server) = served(ServerConfig::default());
        client.send("GET /a HTTP/1.1\r\nHo").await;
        sleep(PAUSE).await;
        client.send("st: h\r\nContent-Length: 3\r\n\r\nx").await;
        sleep(PAUSE).await;
        client.send("yz").await;
        assert_eq!(client.receive(false).await.body, b"aaa");
        assert_eq!(server.tally().rests, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn part_of_a_next_request_is_kept_but_not_awaited_for_ever() {
    local(async {
        let (mut client, server) = served(ServerConfig::default());
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HT").await;
        assert_eq!(client.receive(false).await.body, b"aaa");
        sleep(PAUSE).await;
        client.send("TP/1.1\r\nHost: h\r\n\r\nGET /a HT").await;
        assert_eq!(client.receive(false).await.body, b"bb");
        let begin = Time::now();
        assert!(client.rest().await.is_empty());
        assert_eq!(begin.elapsed().as_secs(), 1 + 15, "a head has 15 s, once it is looked for");
        assert!(server.tally().rests >= 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn its_time_outs_are_as_before() {
    local(async {
        let (mut client, _server) = served(ServerConfig::default());
        assert_eq!(client.get("/a").await.body, b"aaa");
        let begin = Time::now();
        assert!(client.rest().await.is_empty());
        assert_eq!(begin.elapsed().as_secs(), 60);
        let (mut client, _server) = served(ServerConfig::default());
        assert_eq!(client.get("/a").await.body, b"aaa");
        sleep(PAUSE).await;
        client.send("GET /b HTTP/1.1\r\n").await;
        let begin = Time::now();
        assert!(client.rest().await.is_empty());
        assert_eq!(begin.elapsed().as_secs(), 15);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_it_and_so_does_a_cut_and_its_peer() {
    local(async {
        let ends: [fn(&Server<Files<MemoryFiles>>); 2] =
            [|server| server.stop().request(), |server| server.stop().cut()];
        for end in ends {
            let (mut client, server) = served(ServerConfig::default());
            assert_eq!(client.get("/a").await.body, b"aaa");
            sleep(PAUSE).await;
            assert_eq!((server.tally().rests, server.stop().tracked()), (1, 1));
            end(&server);
            let begin = Time::now();
            assert!(client.rest().await.is_empty());
            client.serving.await.unwrap().unwrap();
            assert_eq!(begin.elapsed(), Duration::ZERO, "at once");
            assert_eq!(server.stop().tracked(), 0);
        }
        let (mut client, server) = served(ServerConfig::default());
        assert_eq!(client.get("/a").await.body, b"aaa");
        sleep(PAUSE).await;
        client.stream.shutdown().await.unwrap();
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
        assert_eq!(server.tally().rests, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_first_is_understood_as_ever() {
    local(async {
        let (mut client, server) = served(ServerConfig::default());
        assert_eq!(client.get("/a").await.body, b"aaa");
        sleep(PAUSE).await;
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert_eq!(client.receive(false).await.body, b"aaa");
        assert_eq!(client.receive(false).await.body, b"bb");
        sleep(PAUSE).await;
        client.send("NONSENSE\r\n\r\n").await;
        assert_eq!(client.receive(false).await.status, 400);
        drop(client.stream);
        assert!(client.serving.await.unwrap().is_err());
        assert_eq!(client.records.borrow().last().unwrap().status, StatusCode::BAD_REQUEST);
        // A client that closes first, after a rest.
        let (mut client, _) =
            connect_to(Server::new(files(), server.config.clone(), clock()), 1024);
        assert_eq!(client.get("/a").await.body, b"aaa");
        sleep(PAUSE).await;
        client.send(client_close::request("h")).await;
        client.stream.shutdown().await.unwrap();
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_one_is_charged_little_and_closes_without_memory() {
    local(async {
        let purse = Purse::default();
        let server = Server::new(files(), ServerConfig::default(), clock())
            .with_memory(Memory::new(purse.clone()));
        let held = || purse.by_connections.load(std::sync::atomic::Ordering::Relaxed);
        let inside = server.admit(peer()).unwrap();
        let (mut client, server) = connect_to(server, 64 << 10);
        assert_eq!(client.get("/a").await.body, b"aaa");
        assert_eq!(held(), 21 << 10);
        sleep(PAUSE).await;
        assert_eq!(held(), 2 << 10);
        purse.room.set(Some(ConnectionRoom::None));
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(client.rest().await.is_empty(), "there is no memory for its request");
        client.serving.await.unwrap().unwrap();
        assert_eq!(server.tally().closed_for_memory, 1);
        drop(inside);
        assert_eq!(held(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_while_memory_is_awaited_is_noticed() {
    local(async {
        let transport = Transport::default();
        let purse = Purse::default();
        purse.is_empty.set(true);
        purse.is_scarce.set(true);
        let files = files().with_memory(Memory::new(purse));
        let mut client = connect_over(&transport, files, ServerConfig::default());
        client.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let mut first = [0; 100];
        client.stream.read_exact(&mut first).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(!client.serving.is_finished());
        transport.is_reset.set(true);
        transport.task.take().expect("it waits for the peer's end").wake();
        let ended = tokio::time::timeout(Duration::from_secs(1), client.serving).await;
        ended.expect("it ends at once").unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_for_its_peer_yields_its_memory() {
    for undelivered in [0, 10] {
        local(async {
            let transport = Transport::default();
            let server = Rc::new(Server::new(files(), ServerConfig::default(), clock()));
            let (stream, io) = tokio::io::duplex(1 << 20);
            let serving =
                server.clone().serve_controlled(TokioIo::new(io), transport.clone(), peer());
            let serving = tokio::task::spawn_local(serving);
            let mut client = Client { stream, serving, records: Rc::default() };
            assert_eq!(client.get("/a").await.body, b"aaa");
            transport.undelivered.set(undelivered);
            let now = server.clock.timer.now();
            assert!(server.admissions.evict(now, 1));
            tokio::task::yield_now().await;
            // First it gives up what only requests need, and stays.
            assert_eq!((server.tally().rests, server.tally().closed_for_memory), (1, 0));
            assert_eq!(client.get("/a").await.body, b"aaa");
            assert!(server.admissions.evict(now, 1));
            tokio::task::yield_now().await;
            assert_eq!(server.tally().rests, 2);
            // It goes at once if its peer has all answers.
            assert_eq!(server.admissions.evict(now, 1), undelivered == 0);
            assert_eq!(server.admissions.evict(now + Duration::from_secs(1), 1), undelivered > 0);
            client.serving.await.unwrap().unwrap();
            assert_eq!(transport.is_reset.get(), undelivered > 0);
            assert_eq!(server.tally().closed_for_memory, 1);
        })
        .await;
    }
}
