//! The crate redis against a real redis-server, which is on the kernel's end of a TAP.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use lightwait::Stack;
use lightwait::net::{StackHandle, TcpStream};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushKind, RedisConnectionInfo};
use tokio::sync::mpsc;

use crate::namespace;
use crate::world::run;

/// Where the server listens.
const AT: (&str, u16) = ("10.79.0.1", 6379);

/// Ends with the test, whatever becomes of that.
struct Server(Child);

impl Server {
    fn start() -> Server {
        let mut server = Command::new("redis-server");
        server.args(["--bind", AT.0, "--port", "6379", "--save", "", "--protected-mode", "no"]);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        Server(server.spawn().expect("redis-server runs"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// True if the server is installed; in CI it must be.
fn has_server() -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let has = path.split(':').any(|folder| Path::new(folder).join("redis-server").exists());
    assert!(has || std::env::var("CI").is_err(), "missing: redis-server");
    if !has {
        eprintln!("left out: redis-server is not installed");
    }
    has
}

/// A connection of the crate's over one of ours, driven by a task of tokio's.
async fn connection(stack: &StackHandle, config: AsyncConnectionConfig) -> MultiplexedConnection {
    let stream = loop {
        match TcpStream::connect_on(stack, AT).await {
            Ok(stream) => break stream,
            // The server is not there yet.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let told = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let made = MultiplexedConnection::new_with_config(&told, stream, config).await;
    let (connection, driver) = made.unwrap();
    tokio::spawn(driver);
    connection
}

async fn talk(stack: StackHandle) {
    let mut client = connection(&stack, AsyncConnectionConfig::new()).await;
    // Larger than what is on the way at once, both ways.
    let value: Vec<u8> = (0..700_000).map(|at| (at % 251) as u8).collect();
    let _: () = redis::cmd("SET").arg("key").arg(&value).query_async(&mut client).await.unwrap();
    let kept: Vec<u8> = redis::cmd("GET").arg("key").query_async(&mut client).await.unwrap();
    assert!(kept == value);
    let mut pipe = redis::pipe();
    for number in 0..1000 {
        pipe.cmd("INCRBY").arg("sum").arg(number).ignore();
    }
    let (sum,): (u64,) = pipe.cmd("GET").arg("sum").query_async(&mut client).await.unwrap();
    assert_eq!(sum, 999 * 1000 / 2);
    // Many tasks share the connection.
    let tasks = (0..50).map(|number: u32| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let echo: u32 = redis::cmd("ECHO").arg(number).query_async(&mut client).await.unwrap();
            assert_eq!(echo, number);
        })
    });
    futures_util::stream::iter(tasks).for_each(async |task| task.await.unwrap()).await;
    // The server speaks unasked.
    let (news, mut heard) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(news);
    let mut listening = connection(&stack, config).await;
    listening.subscribe("news").await.unwrap();
    let hearers: u32 =
        redis::cmd("PUBLISH").arg("news").arg("hello").query_async(&mut client).await.unwrap();
    assert_eq!(hearers, 1);
    while heard.recv().await.unwrap().kind != PushKind::Message {}
    let wrong: redis::RedisResult<u32> =
        redis::cmd("INCR").arg("key").query_async(&mut client).await;
    assert!(wrong.is_err(), "it is no number");
}

#[test]
fn the_redis_crate_talks_to_a_real_server() {
    if !has_server() {
        return;
    }
    namespace::inside("redis::the_redis_crate_talks_to_a_real_server", || {
        if !namespace::can_make_tap() {
            return;
        }
        let stack = Stack::tap("lwt0", "10.79.0.2/24").unwrap().spawn().unwrap();
        let _server = Server::start();
        run(talk(stack));
    });
}
