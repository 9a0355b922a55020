//! A configuration file that is read again at SIGHUP. What a running server can take is taken by
//! every shard, and for the rest the log says that it takes a restart.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::{Stacks, secure};
use crate::config_file::{ConfigFile, Source};
use crate::log::{Log, Record};
use crate::plan::{Plan, Shown};

/// The keys that a running server takes.
const TAKEN: [&str; 16] = [
    "basic-auth",
    "cache-control",
    "cert",
    "compress",
    "cors",
    "error-page",
    "fallback",
    "hsts",
    "index",
    "key",
    "max-client-connections",
    "max-connections",
    "max-responses",
    "no-listing",
    "precompressed",
    "redirect-https",
];
/// Those of them that a server takes only if it has TLS.
const OF_TLS: [&str; 4] = ["cert", "hsts", "key", "redirect-https"];

/// The file, as it was read at the start and last, and the plan that all shards have of it.
pub(super) struct Reload {
    source: Source,
    started: ConfigFile,
    certificates: Option<Certificates>,
    last: Mutex<ConfigFile>,
    plans: watch::Sender<Option<Plan>>,
}

/// Where the certificates of TLS come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Certificates {
    Files,
    OfOurOwn,
}

fn certificates(plan: &Plan) -> Option<Certificates> {
    plan.tls.as_ref().map(|tls| match tls.shown {
        Shown::Files(_) => Certificates::Files,
        Shown::SelfSigned => Certificates::OfOurOwn,
    })
}

impl Reload {
    pub(super) fn new((source, last): (Source, ConfigFile), plan: &Plan) -> Reload {
        let (started, certificates) = (last.clone(), certificates(plan));
        let (last, plans) = (Mutex::new(last), watch::Sender::new(None));
        Reload { source, started, certificates, last, plans }
    }

    /// Reads the file again, has the shards take what they can, and returns the plan. If something
    /// is wrong with it, all stays as it was.
    pub(super) fn again(&self, log: &Log) -> Option<Plan> {
        let path = self.source.path().display();
        let planned = |(args, file)| {
            let plan = Plan::new(&args)?;
            plan.check_pages()?;
            secure::check(&plan)?;
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
                log.write(Record::Trouble { text });
                return None;
            }
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether there is TLS, and whether its certificates come from files, is settled at the
        // start.
        let keeps_tls = self.certificates.is_some() && self.certificates == certificates(&plan);
        let is_taken =
            |key: &String| TAKEN.contains(&&**key) && (keeps_tls || !OF_TLS.contains(&&**key));
        let taken: Vec<String> = last.changed(&file).into_iter().filter(is_taken).collect();
        // Beside what runs, however often the file was read since.
        let left = self.started.changed(&file).into_iter().filter(|key| !is_taken(key));
        let left: Vec<String> = left.collect();
        if !left.is_empty() {
            let text = format!("{path}: {} changed, which takes a restart.", left.join(" and "));
            log.write(Record::Trouble { text });
        }
        // A file that it names may be another one now, though no key has changed.
        self.plans.send_replace(Some(plan.clone()));
        log.write(Record::Reloaded { path: path.to_string(), keys: taken });
        *last = file;
        Some(plan)
    }

    /// Gives a shard's server its part of each plan, for ever.
    pub(super) fn follow(&self, stacks: &Stacks) -> impl Future<Output = ()> + use<> {
        let Stacks { member, https_port, .. } = *stacks;
        let server = stacks.server.clone();
        let mut plans = self.plans.subscribe();
        // Another shard may have read the file before this one asked.
        plans.mark_changed();
        async move {
            while plans.changed().await.is_ok() {
                let plan = plans.borrow_and_update().as_ref().map(|plan| plan.member(member));
                if let Some(mut plan) = plan {
                    plan.redirect_to(https_port);
                    server.reconfigure(&plan.server);
                    server.handler().set_policy(&plan.files);
                }
            }
        }
    }
}
