//! SIGINT and SIGTERM: the first asks for a graceful stop, the second ends the program at once.
//! SIGUSR1 asks for what was counted.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;
use tokio::sync::watch;

/// Shells expect a program that a signal ended to say so: 128 and SIGINT.
const STATUS_INTERRUPTED: i32 = 130;

/// Which signals have come.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: watch::Receiver<bool>,
    counts: watch::Receiver<()>,
}

impl Signals {
    /// Takes them over, for the rest of the program's life.
    pub(crate) fn install() -> io::Result<Signals> {
        let ((stops, stop), (asks, counts)) = (watch::channel(false), watch::channel(()));
        let mut signals = iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGUSR1 {
                    asks.send_replace(());
                } else if stops.send_replace(true) {
                    std::process::exit(STATUS_INTERRUPTED);
                }
            }
        })?;
        Ok(Signals { stop, counts })
    }

    /// Resolves with the first signal that asks for a stop.
    pub(crate) fn stop(&self) -> impl Future<Output = ()> + 'static {
        let mut stop = self.stop.clone();
        async move {
            // The sender lives as long as the program.
            let _ = stop.wait_for(|requested| *requested).await;
        }
    }

    /// Calls `tell` whenever somebody has asked for counts.
    pub(crate) fn whenever_asked<T: Fn() + 'static>(
        &self,
        tell: T,
    ) -> impl Future<Output = ()> + use<T> {
        let mut counts = self.counts.clone();
        async move {
            while counts.changed().await.is_ok() {
                tell();
            }
        }
    }
}
