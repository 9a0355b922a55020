//! Connections: each is opened through the proxy first, and answered then.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::spawn_local;
use lightwait::local::{Refusal, Request, Requests};
use lightwait::rt;
use tokio::io::AsyncWriteExt;

use crate::Shared;
use crate::proxy::Refused;

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
    let Shared { proxy, relay, news, .. } = &*shared;
    let opened = rt::timeout(PATIENCE, Box::pin(proxy.connect(request.destination()))).await;
    let (kernel, ahead) = match opened.unwrap_or(Err(Refused::Late)) {
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

/// What the client hears.
fn refusal(refused: &Refused) -> Refusal {
    match refused {
        Refused::ByHost => Refusal::Reset,
        Refused::NoHost | Refused::Late => Refusal::HostUnreachable,
        Refused::NoNetwork | Refused::NoProxy(_) => Refusal::NetworkUnreachable,
        Refused::Forbidden | Refused::Unwilling(_) => Refusal::Prohibited,
        // It asks again, and there may be room by then.
        Refused::NoRoom(_) => Refusal::Ignored,
    }
}
