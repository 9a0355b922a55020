//! A future that may take a time and no longer.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Timer;

/// The future's output; `None` if it is not ready within that time.
pub(crate) async fn within<F: Future>(
    timer: &dyn Timer,
    time: Duration,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut sleep) = (pin!(future), timer.sleep(time));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
