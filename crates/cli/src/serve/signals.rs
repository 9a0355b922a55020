//! SIGINT and SIGTERM: the first asks for a graceful stop, the second for one that waits for
//! nobody; if that does not end the program, the third does, or a few seconds. SIGUSR1 asks for
//! what was counted, SIGHUP for the log's files to be opened again.

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;
use tokio::sync::watch;

/// Shells expect a program that a signal ended to say so: 128 and SIGINT.
const STATUS_INTERRUPTED: u8 = 130;

/// How long the program has to end after the second signal. It only writes out what it holds, but
/// whoever reads that may stand still.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Which signals have come. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    /// How many that ask for a stop.
    stops: watch::Receiver<u32>,
    counts: watch::Receiver<()>,
    hangups: watch::Receiver<()>,
}

impl Signals {
    /// Takes them over, for the rest of the program's life.
    pub(crate) fn install() -> io::Result<Signals> {
        let (asked, stops) = watch::channel(0);
        let [(asks, counts), (hangs_up, hangups)] = [(); 2].map(watch::channel);
        let mut signals = iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGUSR1 => {
                        asks.send_replace(());
                        continue;
                    }
                    SIGHUP => {
                        hangs_up.send_replace(());
                        continue;
                    }
                    _ => asked.send_modify(|stops| *stops += 1),
                }
                match *asked.borrow() {
                    0 | 1 => {}
                    2 => end_in(LAST_WORDS),
                    _ => end(),
                }
            }
        })?;
        Ok(Signals { stops, counts, hangups })
    }

    /// True once a signal has asked for a stop.
    pub(crate) fn is_stop(&self) -> bool {
        *self.stops.borrow() > 0
    }

    /// Resolves with the first signal that asks for a stop.
    pub(crate) fn stop(&self) -> impl Future<Output = ()> + 'static {
        self.at_least(1)
    }

    /// Resolves with the second one: whoever is unfinished is to be cut.
    pub(crate) fn hurry(&self) -> impl Future<Output = ()> + 'static {
        self.at_least(2)
    }

    fn at_least(&self, count: u32) -> impl Future<Output = ()> + 'static {
        let mut stops = self.stops.clone();
        async move {
            // The sender lives as long as the program.
            let _ = stops.wait_for(|stops| *stops >= count).await;
        }
    }

    /// How the program ends, if it has done what it should.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match *self.stops.borrow() {
            0 | 1 => ExitCode::SUCCESS,
            _ => ExitCode::from(STATUS_INTERRUPTED),
        }
    }

    /// Calls `tell` whenever somebody has asked for counts.
    pub(crate) fn whenever_asked<T: Fn() + 'static>(
        &self,
        tell: T,
    ) -> impl Future<Output = ()> + use<T> {
        whenever(self.counts.clone(), tell)
    }

    /// Calls `reopen` whenever the log's files are to be opened again.
    pub(crate) fn whenever_hung_up<T: Fn() + 'static>(
        &self,
        reopen: T,
    ) -> impl Future<Output = ()> + use<T> {
        whenever(self.hangups.clone(), reopen)
    }
}

async fn whenever(mut asked: watch::Receiver<()>, call: impl Fn() + 'static) {
    while asked.changed().await.is_ok() {
        call();
    }
}

/// Ends the program at once.
fn end() -> ! {
    std::process::exit(STATUS_INTERRUPTED.into())
}

/// Ends it after that time, if it still runs.
fn end_in(patience: Duration) {
    let waiting = thread::Builder::new().name("last words".to_owned()).spawn(move || {
        thread::sleep(patience);
        end()
    });
    if waiting.is_err() {
        end();
    }
}
