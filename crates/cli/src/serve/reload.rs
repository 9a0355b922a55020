//! A configuration file that is read again at SIGHUP. What a running server can take is taken by
//! every shard, and for the rest the log says that it takes a restart.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use lightwait_core::config::Member;
use tokio::sync::watch;

use super::FileServer;
use crate::config_file::{ConfigFile, Source};
use crate::log::{Log, Record};
use crate::plan::Plan;

/// The keys that a running server takes.
const TAKEN: [&str; 12] = [
    "basic-auth",
    "cache-control",
    "compress",
    "cors",
    "error-page",
    "fallback",
    "index",
    "max-client-connections",
    "max-connections",
    "max-responses",
    "no-listing",
    "precompressed",
];

/// The file, as it was read at the start and last, and the plan that all shards have of it.
pub(super) struct Reload {
    source: Source,
    started: ConfigFile,
    last: Mutex<ConfigFile>,
    plans: watch::Sender<Option<Plan>>,
}

impl Reload {
    pub(super) fn new((source, last): (Source, ConfigFile)) -> Reload {
        let started = last.clone();
        Reload { source, started, last: Mutex::new(last), plans: watch::Sender::new(None) }
    }

    /// Reads the file again, and has the shards take what they can. If something is wrong with it,
    /// all stays as it was.
    pub(super) fn again(&self, log: &Log) {
        let path = self.source.path().display();
        let planned = |(args, file)| {
            let plan = Plan::new(&args)?;
            plan.check_pages()?;
            Ok((plan, file))
        };
        let read = self.source.read().and_then(planned);
        let (plan, file) = match read {
            Ok(read) => read,
            Err(failure) => {
                // A file may have several faults, a line for each.
                for fault in failure.to_string().lines() {
                    log.write(Record::Trouble { text: fault.to_owned() });
                }
                let text = format!("{path}: the configuration stays as it was.");
                return log.write(Record::Trouble { text });
            }
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |key: &String| TAKEN.contains(&&**key);
        let taken: Vec<String> = last.changed(&file).into_iter().filter(is_taken).collect();
        // Beside what runs, however often the file was read since.
        let left = self.started.changed(&file).into_iter().filter(|key| !is_taken(key));
        let left: Vec<String> = left.collect();
        if !left.is_empty() {
            let text = format!("{path}: {} changed, which takes a restart.", left.join(" and "));
            log.write(Record::Trouble { text });
        }
        // A file that it names may be another one now, though no key has changed.
        self.plans.send_replace(Some(plan));
        log.write(Record::Reloaded { path: path.to_string(), keys: taken });
        *last = file;
    }

    /// Gives a shard's server its part of each plan, for ever.
    pub(super) fn follow(
        &self,
        member: Member,
        server: Rc<FileServer>,
    ) -> impl Future<Output = ()> + 'static {
        let mut plans = self.plans.subscribe();
        // Another shard may have read the file before this one asked.
        plans.mark_changed();
        async move {
            while plans.changed().await.is_ok() {
                let plan = plans.borrow_and_update().as_ref().map(|plan| plan.member(member));
                if let Some(plan) = plan {
                    server.set_limits(&plan.server);
                    server.handler().set_policy(&plan.files);
                }
            }
        }
    }
}
