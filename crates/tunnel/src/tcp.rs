//! Connections: each is opened through the proxy first, and answered then.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::spawn_local;
use lightwait::local::{Refusal, Request, Requests};
use lightwait::rt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::Shared;
use crate::proxy::{Proxy, Refused};

/// How long the far side may take: less than a SYN is held for a verdict, and than Linux sends its
/// SYN again (127 s).
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(requests: Requests, shared: Rc<Shared>) -> io::Result<Infallible> {
    loop {
        let request = requests.next().await?;
        shared.news.count(|tally| tally.requested += 1);
        spawn_local(carry(request, shared.clone()));
    }
}

async fn carry(request: Request, shared: Rc<Shared>) {
    let Shared { proxy, relay, news, loops, .. } = &*shared;
    let opened = match loops.is_loop(proxy, request.destination(), request.peer()) {
        true => Err(Refused::Loop),
        false => open(proxy, request.destination()).await,
    };
    let (kernel, ahead) = match opened {
        Ok(opened) => opened,
        Err(refused) => {
            news.count(|tally| tally.refused += 1);
            if let Some(text) = refused.trouble() {
                news.trouble(|| format!("{proxy}: {text}"));
            }
            return request.refuse(refusal(&refused));
        }
    };
    news.count(|tally| tally.connected += 1);
    let Ok(mut stack) = request.admit().await else {
        // The client has given up meanwhile.
        return news.count(|tally| tally.reset += 1);
    };
    if !ahead.is_empty() && stack.write_all(&ahead).await.is_err() {
        return news.count(|tally| tally.reset += 1);
    }
    drop(ahead);
    match relay.join(&kernel, &stack).await {
        Ok(()) => news.count(|tally| tally.ended += 1),
        Err(_) => news.count(|tally| tally.reset += 1),
    }
}

/// Opens a connection to `destination`, for as long as a client waits.
async fn open(proxy: &Proxy, destination: SocketAddr) -> Result<(TcpStream, Vec<u8>), Refused> {
    let opened = rt::timeout(PATIENCE, Box::pin(proxy.connect(destination))).await;
    opened.unwrap_or(Err(Refused::Late))
}

/// What the client hears.
fn refusal(refused: &Refused) -> Refusal {
    match refused {
        Refused::ByHost => Refusal::Reset,
        Refused::NoHost | Refused::Late => Refusal::HostUnreachable,
        Refused::NoNetwork | Refused::NoProxy(_) | Refused::Loop => Refusal::NetworkUnreachable,
        Refused::Forbidden | Refused::Unwilling(_) => Refusal::Prohibited,
        // It asks again, and there may be room by then.
        Refused::NoRoom(_) => Refusal::Ignored,
    }
}
