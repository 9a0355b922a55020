//! Which files are served, and how many descriptors the process has for them and for its clients.

use lightwait_http::FilesConfig;
use rustix::process::{Resource, getrlimit};

use super::{Bytes, usage};
use crate::args::ServeArgs;
use crate::failure::Failure;

/// The configuration of the file service, where a stack has `pool` bytes for pages.
pub(super) fn files(args: &ServeArgs, pool: usize) -> Result<FilesConfig, Failure> {
    let default = FilesConfig::default();
    // Responses may hold half of it, and this is a part of what they hold.
    let most = pool / 4;
    let cache_bytes = match args.file_cache {
        None => default.cache_bytes.min(most),
        Some(Bytes(bytes)) => {
            usize::try_from(bytes).ok().filter(|b| *b <= most).ok_or_else(|| {
                usage(format!("--file-cache: a quarter of a stack's memory at most, here {most}"))
            })?
        }
    };
    Ok(FilesConfig {
        listing: !args.no_listing,
        hidden: args.hidden,
        index: args.index.clone(),
        cache_bytes,
        cache_open: cache_open(args.file_cache_open, descriptors())?,
        cache_age: args.file_cache_age.unwrap_or(default.cache_age),
        ..default
    })
}

/// The files that the server keeps open, where the process may have so many `descriptors`.
fn cache_open(asked: Option<usize>, descriptors: usize) -> Result<usize, Failure> {
    let most = descriptors / 2;
    let open = asked.unwrap_or(FilesConfig::default().cache_open.min(most));
    if open > most {
        let text = "--file-cache-open: half of what the process may open at most";
        return Err(usage(format!("{text}, here {most}")));
    }
    Ok(open)
}

/// The connections that pass the bridge, each by a socket of the kernel's, where the process may
/// have so many `descriptors` and keeps so many files open. As many are left for files that are
/// being sent: where the kernel refuses sockets, nobody makes room for a new client.
pub(super) fn bridged_connections(descriptors: usize, files: usize) -> usize {
    (descriptors.saturating_sub(files) / 2).max(1)
}

/// The files and sockets that the process may have open (ulimit -Hn).
pub(super) fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_kept_files() {
        assert_eq!(cache_open(None, 20_000).unwrap(), 512);
        assert_eq!(cache_open(None, 300).unwrap(), 150, "the default gives way");
        assert_eq!(cache_open(Some(150), 300).unwrap(), 150);
        assert!(cache_open(Some(151), 300).is_err());
    }
}
