//! `--shards N`: on how many cores to serve, and what each shard gets of what there is.

use std::str::FromStr;

use lightwait::shards::{Cores, available_cores};
use lightwait_core::config::{Member, SHARDS_MAX};

use super::{FilesConfig, Plan, ServerConfig, usage};
use crate::args::{Pin, ShardArgs};
use crate::failure::Failure;

/// Bytes of buffers that a shard begins with, at least: those of a few connections. It gets more
/// from the others, one large piece after the other.
const MEMORY_LEAST: usize = 256 << 10;

/// How many shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardCount {
    /// One for each core.
    Auto,
    Given(u16),
}

impl FromStr for ShardCount {
    type Err = String;

    fn from_str(text: &str) -> Result<ShardCount, String> {
        if text == "auto" {
            return Ok(ShardCount::Auto);
        }
        let given = text.parse().ok().filter(|count| (1..=SHARDS_MAX).contains(count));
        given.map(ShardCount::Given).ok_or_else(|| format!("give 1 to {SHARDS_MAX}, or auto"))
    }
}

impl ShardArgs {
    /// How many shards there are to be, and on which cores.
    pub(crate) fn plan(&self) -> Result<(u16, Cores), Failure> {
        let count = self.shards.count()?;
        let cores = available_cores().map_err(Failure::Stack)?;
        Ok((count, if self.pins(count, cores) { Cores::Pinned } else { Cores::Any }))
    }

    /// Whether so many shards keep to cores, of so many.
    fn pins(&self, count: u16, cores: u16) -> bool {
        // The only shard runs on the thread that the program has begun on, wherever that is. Where
        // shards share cores the kernel knows better which of them are busy.
        self.pin == Pin::Yes && (2..=cores).contains(&count)
    }
}

impl ShardCount {
    /// The number for this machine.
    fn count(self) -> Result<u16, Failure> {
        match self {
            ShardCount::Given(count) => Ok(count),
            ShardCount::Auto => Ok(available_cores().map_err(Failure::Stack)?.clamp(1, SHARDS_MAX)),
        }
    }
}

impl Plan {
    /// The plan of one shard: its part of what all serve with.
    pub(crate) fn member(&self, member: Member) -> Plan {
        let part = |whole| member.part(whole);
        let server = ServerConfig {
            max_connections: part(self.server.max_connections),
            max_responses: part(self.server.max_responses),
            ..self.server.clone()
        };
        let files = FilesConfig {
            cache_bytes: part(self.files.cache_bytes),
            cache_open: part(self.files.cache_open),
            ..self.files.clone()
        };
        Plan { server, files, ..self.clone() }
    }

    /// Has requests without TLS sent to that port, if the plan says so.
    pub(crate) fn redirect_to(&mut self, https_port: Option<u16>) {
        let redirects = self.tls.as_ref().is_some_and(|tls| tls.redirects);
        self.server.redirect_to = https_port.filter(|_| redirects);
    }

    /// Refuses limits that leave a shard without any of something.
    pub(super) fn check_parts(&self) -> Result<(), Failure> {
        let shards = usize::from(self.shards);
        let limits = [
            ("--max-connections", self.server.max_connections),
            ("--max-responses", self.server.max_responses),
        ];
        // What a host of one shard may have none of, none of several may have either.
        let core = self.knobs.limits();
        let core = [
            ("limits.connections", core.connections),
            ("limits.pages", core.pages),
            ("limits.time_wait", core.time_wait),
            ("limits.orphans", core.orphans),
            ("limits.challenge_acks_per_second", core.challenge_acks_per_second as usize),
            ("limits.replies_per_second", core.replies_per_second as usize),
        ];
        let given = core.into_iter().filter(|(_, limit)| *limit > 0);
        if let Some((flag, limit)) = limits.into_iter().chain(given).find(|(_, all)| *all < shards)
        {
            return Err(usage(format!(
                "{flag} {limit}: {shards} shards share it, and each needs one at least"
            )));
        }
        let memory = self.knobs.page_bytes();
        match memory / shards {
            part if part < MEMORY_LEAST => Err(usage(format!(
                "--memory: {shards} shards share {memory} bytes of buffers, and each needs \
                 {MEMORY_LEAST} at least"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_64_or_as_many_as_there_are() {
        assert_eq!("auto".parse(), Ok(ShardCount::Auto));
        assert_eq!("64".parse(), Ok(ShardCount::Given(64)));
        for wrong in ["0", "65", "-1", "all", ""] {
            assert!(wrong.parse::<ShardCount>().unwrap_err().contains("1 to 64"), "{wrong}");
        }
        assert!((1..=SHARDS_MAX).contains(&ShardCount::Auto.count().unwrap()));
    }

    #[test]
    fn shards_keep_to_cores_where_each_has_one() {
        let args = |pin| ShardArgs { shards: ShardCount::Auto, pin };
        let pinned = [1, 2, 4, 5].map(|count| args(Pin::Yes).pins(count, 4));
        assert_eq!(pinned, [false, true, true, false]);
        assert!(!args(Pin::No).pins(2, 4));
    }
}
