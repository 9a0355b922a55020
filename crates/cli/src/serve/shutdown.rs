//! SIGINT and SIGTERM: the first asks for a graceful stop, the second ends the program at once.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

/// Shells expect a program that a signal ended to say so: 128 and SIGINT.
const STATUS_INTERRUPTED: i32 = 130;

/// Whether the first signal has come.
#[derive(Debug)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Takes both signals over, for the rest of the program's life.
    pub(crate) fn install() -> io::Result<Shutdown> {
        let (sender, receiver) = watch::channel(false);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                if sender.send_replace(true) {
                    std::process::exit(STATUS_INTERRUPTED);
                }
            }
        })?;
        Ok(Shutdown(receiver))
    }

    /// Resolves with the first signal.
    pub(crate) fn requested(&self) -> impl Future<Output = ()> + 'static {
        let mut receiver = self.0.clone();
        async move {
            // The sender lives as long as the program.
            let _ = receiver.wait_for(|requested| *requested).await;
        }
    }
}
