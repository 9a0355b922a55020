//! The signals of the program. The first SIGINT or SIGTERM asks for a graceful stop; the second
//! cuts the connections that are left. If the program still runs a few seconds later, it ends at
//! once, as it does at the third signal. SIGUSR1 asks for the counters, and SIGHUP for the log
//! files to be opened again.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;
use tokio::sync::watch;

/// Shells expect this status of a program that a signal ended: 128 and SIGINT.
pub(crate) const STATUS_INTERRUPTED: u8 = 130;

/// How long the program has to end after the second signal. It only writes its last output, but the
/// process that reads the output may stall.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The signals that have come. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    /// How many asked for a stop.
    stops: watch::Receiver<u32>,
    asked: Arc<watch::Sender<u32>>,
    /// How many asked for the counters, and for the log files to be opened again.
    counts: watch::Receiver<u32>,
    hangups: watch::Receiver<u32>,
}

impl Signals {
    /// Takes over the signals for the rest of the program's life.
    pub(crate) fn install() -> io::Result<Signals> {
        let (asked, stops) = watch::channel(0);
        let asked = Arc::new(asked);
        let own = asked.clone();
        let [(asks, counts), (hangs_up, hangups)] = [0; 2].map(watch::channel);
        let mut signals = iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            // It needs none; the program's other threads drop theirs later.
            let _ = super::sandbox::drop_privileges();
            for signal in signals.forever() {
                match signal {
                    SIGUSR1 => {
                        asks.send_modify(|count| *count += 1);
                        continue;
                    }
                    SIGHUP => {
                        hangs_up.send_modify(|count| *count += 1);
                        continue;
                    }
                    _ => own.send_modify(|stops| *stops += 1),
                }
                match *own.borrow() {
                    0 | 1 => {}
                    2 => end_in(LAST_WORDS),
                    _ => end(),
                }
            }
        })?;
        Ok(Signals { stops, asked, counts, hangups })
    }

    /// Stops the program from within, as a second signal does.
    pub(crate) fn cut(&self) {
        self.asked.send_modify(|stops| *stops = (*stops).max(2));
    }

    /// Stops the program from within, as a first signal does: another process serves.
    pub(crate) fn hand_over(&self) {
        self.asked.send_modify(|stops| *stops = (*stops).max(1));
    }

    /// True once a signal has asked for a stop.
    pub(crate) fn is_stop(&self) -> bool {
        *self.stops.borrow() > 0
    }

    /// True once a second signal has asked for a stop.
    pub(crate) fn is_hurry(&self) -> bool {
        *self.stops.borrow() > 1
    }

    /// Resolves with the first signal that asks for a stop.
    pub(crate) fn stop(&self) -> impl Future<Output = ()> + 'static {
        self.at_least(1)
    }

    /// Resolves with the second such signal: connections that have not finished are cut.
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

    /// The exit status of a program that has done its work.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.is_hurry() { ExitCode::from(STATUS_INTERRUPTED) } else { ExitCode::SUCCESS }
    }

    /// Calls `tell` each time that a signal asks for the counters, with how many have. Of several
    /// that come at once the last one alone may be seen.
    pub(crate) fn whenever_asked<T: Fn(u32) + 'static>(
        &self,
        tell: T,
    ) -> impl Future<Output = ()> + use<T> {
        whenever(self.counts.clone(), tell)
    }

    /// Calls `reopen` each time that a signal asks for the log files to be opened again.
    pub(crate) fn whenever_hung_up<T: Fn() + 'static>(
        &self,
        reopen: T,
    ) -> impl Future<Output = ()> + use<T> {
        whenever(self.hangups.clone(), move |_| reopen())
    }
}

async fn whenever(mut asked: watch::Receiver<u32>, call: impl Fn(u32) + 'static) {
    while asked.changed().await.is_ok() {
        let count = *asked.borrow_and_update();
        call(count);
    }
}

/// Ends the program at once.
fn end() -> ! {
    std::process::exit(STATUS_INTERRUPTED.into())
}

/// Ends the program after that time, if it still runs.
fn end_in(patience: Duration) {
    let waiting = thread::Builder::new().name("last words".to_owned()).spawn(move || {
        thread::sleep(patience);
        end()
    });
    if waiting.is_err() {
        end();
    }
}
