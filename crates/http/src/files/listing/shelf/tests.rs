use super::*;
use crate::Pending;
use crate::files::source::{Kind, OpenError, ReadBuffer};
use crate::testing::{clock, date, local};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::advance;

/// A directory that blocks each read until the test permits it, and counts reads.
struct Slow {
    modified: Cell<SystemTime>,
    begun: Cell<usize>,
    /// A permit for each read.
    permits: Rc<Semaphore>,
}

impl FileSource for Slow {
    type Handle = ();

    fn open(&self, _: &RelativePath) -> Pending<Result<Opened<()>, OpenError>> {
        let modified = Some(self.modified.get());
        let metadata = Metadata {
            kind: Kind::Directory,
            len_bytes: 0,
            modified,
            changed: modified,
            identity: 1,
        };
        Box::pin(std::future::ready(Ok(Opened { handle: (), metadata })))
    }

    fn read_at(&self, _: &(), _: u64, _: ReadBuffer) -> Pending<io::Result<ReadBuffer>> {
        unreachable!("directories are not read")
    }

    fn metadata(&self, _: &()) -> io::Result<Metadata> {
        unreachable!("directories are not looked at again")
    }

    fn list<T: Send + 'static>(
        &self,
        _: &(),
        _: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        self.begun.set(self.begun.get() + 1);
        let modified = Some(self.modified.get());
        let permits = self.permits.clone();
        Box::pin(async move {
            permits.acquire().await.unwrap().forget();
            Ok(make(Entries { modified, complete: true, ..Entries::default() }))
        })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        Box::pin(std::future::ready(Some(work())))
    }
}

/// A shelf and a directory that was last modified `age` ago.
struct World {
    shelf: Rc<Shelf>,
    source: Rc<Slow>,
}

impl World {
    fn new(age: Duration, config: &FilesConfig) -> World {
        let source = Slow {
            modified: Cell::new(date() - age),
            begun: Cell::default(),
            permits: Rc::new(Semaphore::new(0)),
        };
        World { shelf: Shelf::new(config, clock()), source: Rc::new(source) }
    }

    /// Asks for the listing of `path`.
    fn ask(&self, path: &str) -> JoinHandle<Outcome> {
        let (shelf, source) = (self.shelf.clone(), self.source.clone());
        let path = crate::files::path::resolve(path).unwrap().path;
        spawn_local(async move {
            let opened = source.open(&path).await.unwrap();
            shelf.page(&source, &path, &opened).await
        })
    }

    /// Permits that many reads, now or later.
    async fn allow(&self, readings: usize) {
        self.source.permits.add_permits(readings);
        for _ in 0..20 {
            yield_now().await;
        }
    }

    /// Permits that many reads, and returns how many have begun in all.
    async fn begun_after(&self, readings: usize) -> usize {
        self.allow(readings).await;
        self.source.begun.get()
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn requests_at_one_time_share_a_listing_though_the_first_goes() {
    local(async {
        let world = World::new(LONG, &FilesConfig::default());
        let mut all: Vec<_> = (0..10).map(|_| world.ask("/a/")).collect();
        assert_eq!(world.begun_after(0).await, 1);
        all.remove(0).abort();
        all.push(world.ask("/a/"));
        world.allow(1).await;
        for one in all {
            assert!(one.await.unwrap().is_ok());
        }
        assert_eq!(world.source.begun.get(), 1);
        assert!(world.shelf.under_way.borrow().is_empty());
        let other = world.ask("/b/");
        assert_eq!(world.begun_after(1).await, 2, "another directory has its own");
        assert!(other.await.unwrap().is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_kept_briefly_while_the_directorys_time_stands() {
    local(async {
        let world = World::new(LONG, &FilesConfig::default());
        world.allow(10).await;
        let asked = async || world.ask("/a/").await.unwrap().is_ok();
        assert!(asked().await && asked().await);
        assert_eq!(world.source.begun.get(), 1);
        advance(Duration::from_millis(1999)).await;
        assert!(asked().await);
        assert_eq!(world.source.begun.get(), 1);
        advance(Duration::from_millis(1)).await;
        assert!(asked().await);
        assert_eq!(world.source.begun.get(), 2, "a file may have grown");
        world.source.modified.set(date() - LONG / 2);
        assert!(asked().await && asked().await);
        assert_eq!(world.source.begun.get(), 3, "changed once");
    })
    .await;
}

#[tokio::test]
async fn a_directory_changed_within_the_last_granule_is_not_kept() {
    local(async {
        for (age, begun) in [(GRANULE, 1), (GRANULE - Duration::from_nanos(1), 2)] {
            let world = World::new(age, &FilesConfig::default());
            world.allow(2).await;
            assert!(world.ask("/a/").await.unwrap().is_ok());
            assert!(world.ask("/a/").await.unwrap().is_ok());
            assert_eq!(world.source.begun.get(), begun, "{age:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_during_a_changed_listing_shares_the_next_one() {
    local(async {
        let world = World::new(Duration::ZERO, &FilesConfig::default());
        let first = world.ask("/a/");
        assert_eq!(world.begun_after(0).await, 1);
        let later: Vec<_> = (0..5).map(|_| world.ask("/a/")).collect();
        assert_eq!(world.begun_after(0).await, 1, "one at a time");
        assert_eq!(world.begun_after(1).await, 2);
        assert!(first.is_finished() && later.iter().all(|one| !one.is_finished()));
        let last = world.ask("/a/");
        assert_eq!(world.begun_after(1).await, 3);
        assert!(later.iter().all(JoinHandle::is_finished) && !last.is_finished());
        assert_eq!(world.begun_after(1).await, 3);
        assert!(last.is_finished());
        assert!(world.shelf.under_way.borrow().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_listing_whose_asker_has_gone_holds_nobody_up() {
    local(async {
        let world = World::new(Duration::ZERO, &FilesConfig::default());
        let first = world.ask("/a/");
        world.allow(0).await;
        let second = world.ask("/a/");
        world.allow(0).await;
        first.abort();
        assert_eq!(world.begun_after(2).await, 2);
        assert!(second.is_finished());
    })
    .await;
}

#[tokio::test]
async fn so_many_bytes_are_kept_and_the_latest_used_stay() {
    local(async {
        let probe = World::new(LONG, &FilesConfig::default());
        probe.allow(1).await;
        let length = probe.ask("/a/").await.unwrap().unwrap().len();
        for (bytes, begun) in [(2 * length, 3), (2 * length - 1, 5)] {
            let config = FilesConfig { listing_cache_bytes: bytes, ..FilesConfig::default() };
            let world = World::new(LONG, &config);
            world.allow(10).await;
            for path in ["/a/", "/b/", "/a/", "/c/", "/a/"] {
                assert!(world.ask(path).await.unwrap().is_ok());
            }
            let kept = world.shelf.kept.borrow();
            assert!(kept.bytes <= bytes && kept.pages.len() == bytes / length);
            assert_eq!(kept.bytes, kept.pages.values().map(|kept| kept.page.len()).sum());
            // With room for two, `/c/` has replaced `/b/`; with room for one, each page replaces
            // the one before.
            assert_eq!(world.source.begun.get(), begun);
        }
    })
    .await;
}
