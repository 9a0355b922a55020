//! A server that asks its clients to close first.

use std::cell::Cell;

use super::*;

type FileServer = Server<Files<MemoryFiles>>;

/// A server that asks on answers after which it would close, and on all while the cell says so.
fn asking(config: ServerConfig) -> (Client, Rc<FileServer>, Rc<Cell<bool>>) {
    let pressed = Rc::new(Cell::new(false));
    let is_pressed = pressed.clone();
    let server = Server::new(files(), config, clock());
    let server = server.ask_clients_while(move || is_pressed.get());
    let (client, server) = connect_to(server, 64 << 10);
    (client, server, pressed)
}

fn config() -> ServerConfig {
    ServerConfig { ask_client: true, ..ServerConfig::default() }
}

/// The server's counts: asked, obeyed, not heeded.
fn asked(server: &FileServer) -> (u64, u64, u64) {
    let tally = server.tally();
    (tally.asked, tally.asked_obeyed, tally.asked_unheeded)
}

/// The connection options of an answer, in order.
fn options(reply: &Reply) -> Vec<String> {
    let mut options: Vec<String> =
        reply.field("connection").unwrap_or("").split(", ").map(str::to_owned).collect();
    options.sort();
    options
}

#[tokio::test(start_paused = true)]
async fn behind_connection_close_it_waits_for_the_client_to_close() {
    local(async {
        let (mut client, server, _) = asking(config());
        let reply = client.ask("GET", "/a", "Connection: close\r\n").await;
        assert_eq!(options(&reply), ["client-close", "close"]);
        sleep(Duration::from_millis(990)).await;
        assert!(!client.serving.is_finished() && asked(&server) == (1, 0, 0));
        client.stream.shutdown().await.unwrap();
        client.serving.await.unwrap().unwrap();
        assert_eq!(asked(&server), (1, 1, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_know_it_is_closed_after_the_grace() {
    local(async {
        let (mut client, server, _) = asking(config());
        client.ask("GET", "/a", "Connection: close\r\n").await;
        let begin = Time::now();
        assert!(client.rest().await.is_empty());
        assert!((1000..1010).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
        client.serving.await.unwrap().unwrap();
        assert_eq!(asked(&server), (1, 0, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resets_has_not_done_as_it_was_asked() {
    local(async {
        // On the last answer, and on a connection that would be kept.
        for fields in ["Connection: close\r\n", ""] {
            let server = Server::new(files(), config(), clock()).ask_clients_while(|| true);
            let failing = |io| Failing(io, io::ErrorKind::ConnectionReset);
            let (mut client, server) = connect_through(server, 64 << 10, failing);
            client.ask("GET", "/a", fields).await;
            client.stream.shutdown().await.unwrap();
            let begin = Time::now();
            let _ = client.serving.await.unwrap();
            assert!(begin.elapsed() < Duration::from_millis(10), "its end is seen at once");
            assert_eq!(asked(&server), (1, 0, 1), "{fields}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_a_client_that_would_be_closed_and_speaks_1_1_is_asked() {
    local(async {
        let (mut client, server, pressed) = asking(config());
        assert_eq!(client.get("/a").await.field("connection"), None);
        pressed.set(true);
        client.send("GET /a HTTP/1.0\r\n\r\n").await;
        let begin = Time::now();
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(!rest.contains("client-close") && begin.elapsed().is_zero(), "{rest}");
        assert_eq!(asked(&server), (0, 0, 0));
        // Nor where it is off.
        let (mut client, server, _) = asking(ServerConfig::default());
        let reply = client.ask("GET", "/a", "Connection: close\r\n").await;
        assert_eq!(options(&reply), ["close"]);
        assert!(client.rest().await.is_empty() && asked(&server) == (0, 0, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_of_a_connection_and_those_of_a_stop_ask() {
    local(async {
        let (mut client, server, _) = asking(ServerConfig { max_requests: Some(2), ..config() });
        assert_eq!(client.get("/a").await.field("connection"), None);
        assert_eq!(options(&client.get("/a").await), ["client-close", "close"]);
        client.stream.shutdown().await.unwrap();
        client.serving.await.unwrap().unwrap();
        assert_eq!(asked(&server), (1, 1, 0));
        let (mut client, server, _) = asking(config());
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n").await;
        sleep(Duration::from_millis(1)).await;
        server.stop().request();
        client.send("x").await;
        assert_eq!(options(&client.receive(false).await), ["client-close", "close"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn under_pressure_a_kept_client_is_asked_and_closes_first() {
    local(async {
        let (mut client, server, pressed) = asking(ServerConfig::default());
        assert_eq!(client.get("/a").await.field("connection"), None);
        pressed.set(true);
        // The server still answers those in flight, each with the option.
        client.send(GET_A.repeat(3)).await;
        for _ in 0..3 {
            let reply = client.receive(false).await;
            assert_eq!((options(&reply), &*reply.body), (vec![OPTION.to_owned()], &b"aaa"[..]));
        }
        client.send(close()).await;
        client.stream.shutdown().await.unwrap();
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
        assert_eq!((asked(&server), counted(server.tally())), ((1, 1, 0), (1, 0, 0)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_lasts_for_the_grace_behind_each_answer() {
    local(async {
        let (mut client, server, pressed) = asking(config());
        pressed.set(true);
        for _ in 0..3 {
            assert_eq!(client.get("/a").await.body, b"aaa");
            sleep(Duration::from_millis(900)).await;
        }
        let begin = Time::now();
        assert!(client.rest().await.is_empty());
        let waited = begin.elapsed().as_millis();
        assert!((100..120).contains(&waited), "{waited}");
        let _ = client.serving.await.unwrap();
        assert_eq!(asked(&server), (1, 0, 1));
        // A client that only closes obeys as well.
        let (mut client, server, pressed) = asking(config());
        pressed.set(true);
        client.get("/a").await;
        client.stream.shutdown().await.unwrap();
        client.serving.await.unwrap().unwrap();
        assert_eq!(asked(&server), (1, 1, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_grace_of_an_asked_client_begins_when_it_has_the_answer() {
    local(async {
        for fields in ["", "Connection: close\r\n"] {
            let transport = Transport::default();
            let server = Server::new(files(), config(), clock()).ask_clients_while(|| true);
            let mut client = serve_over(&transport, server);
            assert_eq!(client.ask("GET", "/a", fields).await.body, b"aaa");
            transport.undelivered.set(100);
            sleep(Duration::from_millis(2500)).await;
            assert!(!client.serving.is_finished(), "{fields}");
            transport.undelivered.set(0);
            sleep(Duration::from_millis(1600)).await;
            assert!(client.serving.is_finished() && !transport.is_reset.get(), "{fields}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_reset_though_it_was_asked() {
    local(async {
        for fields in ["", "Connection: close\r\n"] {
            let transport = Transport::default();
            let server = Server::new(files(), config(), clock()).ask_clients_while(|| true);
            let mut client = serve_over(&transport, server);
            client.ask("GET", "/a", fields).await;
            transport.undelivered.set(100);
            let begin = Time::now();
            let _ = client.serving.await.unwrap();
            assert!(transport.is_reset.get(), "{fields}");
            assert!((30..32).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_behind_one_that_asks_to_close_are_not_answered() {
    local(async {
        let (mut client, server, _) = asking(config());
        let last = "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        client.send([GET_A, last, GET_A, &close()].concat()).await;
        assert_eq!(client.receive(false).await.field("connection"), None);
        assert_eq!(options(&client.receive(false).await), ["client-close", "close"]);
        client.stream.shutdown().await.unwrap();
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
        assert_eq!((asked(&server), client.records.borrow().len()), ((1, 1, 0), 2));
    })
    .await;
}
