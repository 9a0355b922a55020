//! Listings that many requests share. Requests at the same time share one listing, and it is kept
//! while its directory's time of modification stands.
//!
//! That time is a clock's reading with a granule. A directory that has changed within the last
//! granule may change again and keep its time. Such a listing is not kept, and requests that come
//! after its start do not share it. They share the next one, which begins when it is over, so that
//! one thread at a time reads a directory.
//!
//! A listing also shows lengths and times of files, which change without the directory's time. So
//! it is kept for a short time only.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::page;
use crate::Clock;
use crate::config::FilesConfig;
use crate::files::flight::Flight;
use crate::files::path::RelativePath;
use crate::files::source::{Entries, FileSource, GRANULE, Metadata, Opened};

/// Listings kept, at most, however short they are.
const KEPT: usize = 256;

/// A page, or the error instead of it.
type Outcome = Result<Bytes, io::ErrorKind>;

/// The listings of one shard.
#[derive(Debug)]
pub(crate) struct Shelf {
    clock: Clock,
    hidden: bool,
    max_listing: usize,
    /// The limits on bytes kept and on their age.
    most_bytes: usize,
    most_age: Duration,
    kept: RefCell<Kept>,
    under_way: RefCell<HashMap<RelativePath, UnderWay>>,
}

#[derive(Debug, Default)]
struct Kept {
    pages: HashMap<RelativePath, KeptPage>,
    bytes: usize,
    /// Counts uses.
    now: u64,
}

#[derive(Debug)]
struct KeptPage {
    page: Bytes,
    of: Version,
    since: Instant,
    used: u64,
}

/// The identity and state of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    identity: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        Version { identity: metadata.identity, modified: metadata.modified }
    }

    /// True if a change from `now` on gives it another time.
    fn is_settled(self, now: SystemTime) -> bool {
        self.modified.is_some_and(|modified| modified + GRANULE <= now)
    }
}

/// The listings of one directory in progress. The requests that wait for them hold them.
#[derive(Default)]
struct UnderWay {
    current: Weak<Listing>,
    /// It begins when the current one is over.
    next: Weak<Listing>,
}

impl std::fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnderWay").finish_non_exhaustive()
    }
}

/// A listing in progress.
struct Listing {
    flight: Rc<Flight<Outcome>>,
    of: Version,
    /// When its directory began to be read.
    begun: Rc<Cell<Option<SystemTime>>>,
    path: RelativePath,
    shelf: Weak<Shelf>,
}

impl Listing {
    /// True if the listing shows the directory as it was found in `seen`, or later.
    fn shows(&self, seen: Version) -> bool {
        self.begun.get().is_none_or(|begun| self.of == seen && seen.is_settled(begun))
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let Some(shelf) = self.shelf.upgrade() else { return };
        let mut under_way = shelf.under_way.borrow_mut();
        let is_over = under_way.get(&self.path).is_some_and(|found| {
            found.current.strong_count() == 0 && found.next.strong_count() == 0
        });
        if is_over {
            under_way.remove(&self.path);
        }
    }
}

impl Shelf {
    pub(crate) fn new(config: &FilesConfig, clock: Clock) -> Rc<Shelf> {
        Rc::new(Shelf {
            clock,
            hidden: config.hidden,
            max_listing: config.max_listing,
            most_bytes: config.listing_cache_bytes,
            most_age: config.listing_cache_age,
            kept: RefCell::default(),
            under_way: RefCell::default(),
        })
    }

    /// The page that lists a directory.
    pub(crate) async fn page<S: FileSource>(
        self: &Rc<Self>,
        source: &Rc<S>,
        path: &RelativePath,
        opened: &Opened<S::Handle>,
    ) -> Outcome {
        let seen = Version::of(&opened.metadata);
        if let Some(page) = self.kept_page(path, seen) {
            return Ok(page);
        }
        let listing = self.listing(source, path, &opened.handle, seen);
        listing.flight.join().await
    }

    fn kept_page(&self, path: &RelativePath, seen: Version) -> Option<Bytes> {
        let mut kept = self.kept.borrow_mut();
        kept.now += 1;
        let (now, time) = (kept.now, self.clock.timer.now());
        let found = kept.pages.get_mut(path)?;
        let is_young = time.saturating_duration_since(found.since) < self.most_age;
        if found.of != seen || !is_young {
            return None;
        }
        found.used = now;
        Some(found.page.clone())
    }

    /// A listing in progress that shows the directory as in `seen`, or a new one.
    fn listing<S: FileSource>(
        self: &Rc<Self>,
        source: &Rc<S>,
        path: &RelativePath,
        handle: &S::Handle,
        seen: Version,
    ) -> Rc<Listing> {
        let mut under_way = self.under_way.borrow_mut();
        let found = under_way.entry(path.clone()).or_default();
        let [current, next] = [&found.current, &found.next].map(Weak::upgrade);
        if let Some(listing) = [&current, &next].into_iter().flatten().find(|l| l.shows(seen)) {
            return listing.clone();
        }
        let before = [&current, &next].into_iter().flatten().find(|l| !l.flight.is_over());
        let listing = self.begin(source, path, handle, seen, before.map(|l| l.flight.clone()));
        match before {
            // It has begun, or this request would have joined it; no other is behind it.
            Some(before) => {
                found.current = Rc::downgrade(before);
                found.next = Rc::downgrade(&listing);
            }
            None => {
                found.current = Rc::downgrade(&listing);
                found.next = Weak::new();
            }
        }
        drop(under_way);
        listing
    }

    /// A listing that begins when the one in progress is over.
    fn begin<S: FileSource>(
        self: &Rc<Self>,
        source: &Rc<S>,
        path: &RelativePath,
        handle: &S::Handle,
        of: Version,
        before: Option<Rc<Flight<Outcome>>>,
    ) -> Rc<Listing> {
        let begun = Rc::new(Cell::new(None));
        let (shelf, source, handle) = (self.clone(), source.clone(), handle.clone());
        let (at, begins) = (path.clone(), begun.clone());
        let flight = Flight::new(Box::pin(async move {
            if let Some(before) = before {
                let _ = before.join().await;
            }
            let now = (shelf.clock.wall)();
            begins.set(Some(now));
            let (hidden, named) = (shelf.hidden, at.clone());
            let make = move |mut listed: Entries| {
                if !hidden {
                    let is_hidden = |name: &[u8]| named.join(name).is_none_or(|p| p.is_hidden());
                    listed.entries.retain(|entry| !is_hidden(&entry.name));
                }
                (listed.modified, Bytes::from(page(&named, listed)))
            };
            let listing = source.list(&handle, shelf.max_listing, make);
            let (modified, page) = listing.await.map_err(|error| error.kind())?;
            let version = Version { modified, ..of };
            if version.is_settled(now) {
                shelf.keep(at, page.clone(), version);
            }
            Ok(page)
        }));
        Rc::new(Listing { flight, of, begun, path: path.clone(), shelf: Rc::downgrade(self) })
    }

    /// Keeps a page, and drops those used longest ago if there are too many.
    fn keep(&self, path: RelativePath, page: Bytes, of: Version) {
        let mut kept = self.kept.borrow_mut();
        let kept = &mut *kept;
        if let Some(old) = kept.pages.remove(&path) {
            kept.bytes -= old.page.len();
        }
        if page.len() > self.most_bytes {
            return;
        }
        while kept.bytes + page.len() > self.most_bytes || kept.pages.len() >= KEPT {
            let oldest = kept.pages.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else { break };
            let gone = kept.pages.remove(&oldest);
            kept.bytes -= gone.map_or(0, |gone| gone.page.len());
        }
        kept.bytes += page.len();
        let (since, used) = (self.clock.timer.now(), kept.now);
        kept.pages.insert(path, KeptPage { page, of, since, used });
    }
}

#[cfg(test)]
mod tests;
