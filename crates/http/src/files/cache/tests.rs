//! The cache of files: which it keeps, for how long, and that no answer mixes two versions of one.

mod restless;

use super::super::Files;
use super::*;
use crate::files::source::{Entries, FileSource, GRANULE, OpenError, Opened, ReadBuffer};
use crate::limits::memory::Memory;
use crate::testing::{MemoryFiles, Purse};
use crate::{Clock, Pending, ThreadPoolFiles};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioTimer;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

const AGE: Duration = Duration::from_secs(1);
const LONG: usize = 300_000;

/// A clock by which every file of the machine has been as it is for a while.
fn clock() -> Clock {
    Clock {
        timer: Rc::new(TokioTimer::new()),
        measure: Rc::new(Instant::now),
        wall: Rc::new(|| SystemTime::now() + 2 * GRANULE),
    }
}

/// A source that counts what is asked of it: opens, reads and looks at metadata.
struct Counted<S> {
    source: S,
    calls: Rc<Cell<[usize; 3]>>,
}

impl<S> Counted<S> {
    fn count(&self, what: usize) {
        let mut calls = self.calls.get();
        calls[what] += 1;
        self.calls.set(calls);
    }
}

impl<S: FileSource> FileSource for Counted<S> {
    type Handle = S::Handle;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<S::Handle>, OpenError>> {
        self.count(0);
        self.source.open(path)
    }

    fn read_at(
        &self,
        handle: &S::Handle,
        offset: u64,
        buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        self.count(1);
        self.source.read_at(handle, offset, buffer)
    }

    fn metadata(&self, handle: &S::Handle) -> io::Result<Metadata> {
        self.count(2);
        self.source.metadata(handle)
    }

    fn list<T: Send + 'static>(
        &self,
        handle: &S::Handle,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        self.source.list(handle, limit, make)
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        self.source.run(work)
    }
}

/// A service of a directory with a short file and a long one.
struct Site {
    dir: tempfile::TempDir,
    files: Files<Counted<ThreadPoolFiles>>,
    calls: Rc<Cell<[usize; 3]>>,
}

impl Site {
    fn new(config: FilesConfig) -> Site {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let calls = Rc::new(Cell::new([0; 3]));
        let source = ThreadPoolFiles::new(&dir.path().join("root"), 1).unwrap();
        let source = Counted { source, calls: calls.clone() };
        let site = Site { dir, files: Files::new(source, config, clock()), calls };
        site.write("short", b'a', 500);
        site.write("long", b'a', LONG);
        site
    }

    /// A site whose files were changed half a second ago: a change may have been missed.
    fn young() -> Site {
        let mut site = Site::new(FilesConfig::default());
        let now = SystemTime::now();
        for name in ["short", "long"] {
            let file = fs::File::options().write(true).open(site.path(name)).unwrap();
            file.set_modified(now - Duration::from_millis(500)).unwrap();
        }
        let source = ThreadPoolFiles::new(&site.dir.path().join("root"), 1).unwrap();
        let source = Counted { source, calls: site.calls.clone() };
        let clock = Clock { wall: Rc::new(move || now), ..clock() };
        site.files = Files::new(source, FilesConfig::default(), clock);
        site
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn write(&self, name: &str, byte: u8, length: usize) {
        fs::write(self.path(name), vec![byte; length]).unwrap();
    }

    /// The calls of the source meanwhile.
    async fn calls(&self, asking: impl Future<Output = ()>) -> [usize; 3] {
        self.calls.set([0; 3]);
        asking.await;
        self.calls.get()
    }

    async fn get(&self, name: &str) -> Reply {
        get(&self.files, &format!("/{name}")).await
    }
}

/// The outcome of a request: the status, the tag, and the body if it was whole.
struct Reply {
    status: u16,
    etag: Option<String>,
    body: Option<Bytes>,
}

impl Reply {
    /// The byte that all of the body is, and how many.
    fn uniform(&self) -> Option<(u8, usize)> {
        let body = self.body.as_ref().filter(|_| self.status == 200)?;
        let first = *body.first()?;
        assert!(body.iter().all(|byte| *byte == first), "a body of two versions");
        Some((first, body.len()))
    }
}

async fn get<S: FileSource>(files: &Files<S>, target: &str) -> Reply {
    let (head, ()) = Request::get(target).body(()).unwrap().into_parts();
    let response = files.answer(&head).await;
    let etag = response.headers().get(header::ETAG);
    let etag = etag.map(|tag| tag.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
    Reply { status, etag, body }
}

#[tokio::test(start_paused = true)]
async fn a_short_file_is_read_once_and_then_served_without_a_call() {
    let site = Site::new(FilesConfig::default());
    let ask = async || {
        assert_eq!(site.get("short").await.uniform(), Some((b'a', 500)));
    };
    assert_eq!(site.calls(ask()).await, [1, 1, 1]);
    assert_eq!(
        site.calls(async {
            for _ in 0..10 {
                ask().await;
            }
        })
        .await,
        [0; 3]
    );
    tokio::time::advance(AGE).await;
    assert_eq!(site.calls(ask()).await, [1, 0, 0], "it is looked up again, and not read");
    assert_eq!(site.calls(ask()).await, [0; 3]);
    let tally = site.files.cache_tally();
    assert_eq!((tally.hits, tally.misses, tally.revalidations), (11, 1, 1));
    assert!((500..2000).contains(&tally.bytes) && tally.open == 0, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_file_stays_open_and_its_blocks_once_it_is_hot() {
    let site = Site::new(FilesConfig::default());
    let ask = async || assert_eq!(site.get("long").await.uniform(), Some((b'a', LONG)));
    // Three chunks; it is looked at when it was opened, and when all was read.
    assert_eq!(site.calls(ask()).await, [1, 3, 1]);
    assert_eq!(site.files.cache_tally().bytes, 0, "what is asked for once is not kept");
    // Each block is checked as it is read.
    assert_eq!(site.calls(ask()).await, [0, 3, 4]);
    assert_eq!(site.calls(ask()).await, [0, 0, 1]);
    tokio::time::advance(AGE).await;
    assert_eq!(site.calls(ask()).await, [1, 0, 0]);
    let tally = site.files.cache_tally();
    assert_eq!((tally.open_hits, tally.misses, tally.open), (2, 1, 1));
    assert_eq!((tally.block_hits, tally.block_misses), (6, 3));
    assert_eq!(tally.bytes, 2 * (128 << 10) + (40 << 10) + 3 * ENTRY_BYTES);
}

#[tokio::test]
async fn readers_of_a_block_wait_for_one_read_of_it() {
    let source = MemoryFiles { polls: 3, ..MemoryFiles::new(&[("f", &[7; LONG])]) };
    let reads = source.reads.clone();
    let files = Files::new(source, FilesConfig::default(), crate::testing::clock());
    let ask = async || assert_eq!(get(&files, "/f").await.uniform(), Some((7, LONG)));
    ask().await;
    assert_eq!(reads.take().len(), 3);
    tokio::join!(ask(), ask(), ask());
    assert_eq!(reads.take(), [(0, 131_072), (131_072, 131_072), (262_144, 37_856)]);
    // One goes before it has what it waits for.
    files.set_cache_bytes(0);
    files.set_cache_bytes(1 << 20);
    {
        let mut gone = std::pin::pin!(ask());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(gone.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(reads.take(), [(0, 131_072)]);
    ask().await;
    assert_eq!(reads.take().len(), 3, "the read of one that went is begun again");
}

/// The parts of a file that a request for these bytes gets.
async fn get_range(site: &Site, range: &str) -> Vec<u8> {
    let head = Request::get("/long").header(header::RANGE, format!("bytes={range}"));
    let (head, ()) = head.body(()).unwrap().into_parts();
    let body = site.files.answer(&head).await.into_body();
    body.collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn ranges_are_cut_from_the_blocks() {
    let site = Site::new(FilesConfig::default());
    let bytes: Vec<u8> = (0..LONG).map(|at| (at / 7) as u8).collect();
    fs::write(site.path("long"), &bytes).unwrap();
    for _ in 0..2 {
        for (from, to) in [(0, 0), (131_071, 131_072), (5, 299_999), (262_144, 262_143 + 9)] {
            assert_eq!(get_range(&site, &format!("{from}-{to}")).await, &bytes[from..=to]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_blocks_of_a_file_are_charged_once_and_given_back() {
    let (purse, mut site) = (Purse::default(), Site::new(FilesConfig::default()));
    site.files = site.files.with_memory(Memory::new(purse.clone()));
    let held = || purse.held.load(Ordering::Relaxed);
    site.get("long").await;
    assert_eq!(held(), 0);
    let mut readers = Vec::new();
    for _ in 0..10 {
        let (head, ()) = Request::get("/long").body(()).unwrap().into_parts();
        readers.push(site.files.answer(&head).await.into_body().collect().await.unwrap());
    }
    let blocks = 2 * (128 << 10) + (40 << 10);
    assert_eq!(held(), blocks, "ten readers hold the bytes of one");
    for _ in 0..8 {
        purse.give_back.borrow().clone().unwrap()();
    }
    assert_eq!((held(), site.files.cache_tally().bytes), (blocks, 0), "they are still being read");
    drop(readers);
    assert_eq!(held(), 0);
    purse.is_scarce.set(true);
    site.get("long").await;
    assert_eq!(site.files.cache_tally().bytes, 0, "nothing is kept where memory is scarce");
}

#[tokio::test(start_paused = true)]
async fn what_is_turned_off_keeps_nothing() {
    let off = FilesConfig { cache_age: Duration::ZERO, ..FilesConfig::default() };
    let no_bytes = FilesConfig { cache_bytes: 0, cache_open: 0, ..FilesConfig::default() };
    for config in [off, no_bytes] {
        let site = Site::new(config);
        for _ in 0..3 {
            let ask = async { drop(site.get("short").await) };
            assert_eq!(site.calls(ask).await, [1, 1, 1]);
        }
        assert_eq!((site.files.cache_tally().bytes, site.files.cache_tally().open), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_is_found_without_looking_at_its_directory() {
    let site = Site::new(FilesConfig::default());
    site.write("index.html", b'i', 10);
    assert_eq!(site.get("").await.uniform(), Some((b'i', 10)));
    let ask = async { assert_eq!(site.get("").await.uniform(), Some((b'i', 10))) };
    assert_eq!(site.calls(ask).await, [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_the_bounds_say() {
    let config = FilesConfig { cache_bytes: 100_000, cache_open: 3, ..FilesConfig::default() };
    let site = Site::new(config);
    for number in 0..20 {
        site.write(&format!("s{number}"), b's', 20_000);
        site.write(&format!("l{number}"), b'l', LONG);
    }
    for number in 0..20 {
        for _ in 0..3 {
            site.get(&format!("s{number}")).await;
            site.get(&format!("l{number}")).await;
        }
        let tally = site.files.cache_tally();
        assert!(tally.bytes <= 100_000 && tally.open <= 3, "{tally:?}");
    }
    let tally = site.files.cache_tally();
    assert!(tally.bytes > 60_000 && tally.open == 3, "{tally:?}");
    let open = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.starts_with(site.dir.path().join("root")))
    });
    assert_eq!(open.count(), 1 + 3, "the root and those that are kept");
    // The bound may be moved.
    for bytes in [30_000, 90_000, 0] {
        site.files.set_cache_bytes(bytes);
        assert!(site.files.cache_tally().bytes <= bytes as u64);
        for number in 0..20 {
            site.get(&format!("s{number}")).await;
            site.get(&format!("s{number}")).await;
            assert!(site.files.cache_tally().bytes <= bytes as u64);
        }
        assert_eq!(site.files.cache_tally().bytes > 0, bytes > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_has_just_changed_is_not_kept() {
    let mut site = Site::new(FilesConfig::default());
    let clock = Clock { wall: Rc::new(SystemTime::now), ..clock() };
    let root = ThreadPoolFiles::new(&site.path("."), 1).unwrap();
    let source = Counted { source: root, calls: site.calls.clone() };
    site.files = Files::new(source, FilesConfig::default(), clock);
    for byte in [b'b', b'c'] {
        site.write("short", byte, 500);
        let reply = site.get("short").await;
        assert_eq!(reply.uniform(), Some((byte, 500)), "nothing old is served");
        assert!(reply.etag.unwrap().starts_with("W/"));
    }
    let tally = site.files.cache_tally();
    assert_eq!((tally.bytes, tally.open), (0, 0));
}

/// Changes the file of that name.
type Changing = fn(&Site, &str);

/// How a file may change.
const CHANGES: [(&str, Changing); 5] = [
    ("edited", |site, name| {
        let length = fs::metadata(site.path(name)).unwrap().len() as usize;
        site.write(name, b'b', length);
    }),
    ("replaced", |site, name| {
        let length = fs::metadata(site.path(name)).unwrap().len() as usize;
        site.write("new", b'b', length);
        fs::rename(site.path("new"), site.path(name)).unwrap();
    }),
    ("shrunk", |site, name| site.write(name, b'b', 100)),
    ("grown", |site, name| site.write(name, b'b', 2 * LONG)),
    ("deleted", |site, name| fs::remove_file(site.path(name)).unwrap()),
];

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_served_whole_and_new_after_the_age() {
    for name in ["short", "long"] {
        for (how, change) in CHANGES {
            let site = Site::new(FilesConfig::default());
            let before = site.get(name).await;
            change(&site, name);
            let within = site.get(name).await;
            tokio::time::advance(AGE).await;
            let after = site.get(name).await;
            let is_old = within.body == before.body && within.etag == before.etag;
            let is_new = within.body == after.body && within.etag == after.etag;
            assert!(is_old || is_new, "{name}, {how}");
            assert!(within.body.is_some(), "{name}, {how}: whole");
            // An open file is checked first; the loss of a name is a change, too.
            assert_eq!(is_old && !is_new, name == "short", "{name}, {how}");
            match fs::metadata(site.path(name)) {
                Ok(found) => {
                    assert_eq!(after.uniform(), Some((b'b', found.len() as usize)), "{how}");
                }
                Err(_) => assert_eq!(after.status, StatusCode::NOT_FOUND.as_u16()),
            }
            let tally = site.files.cache_tally();
            assert_eq!((tally.outdated, tally.changed_midway), (1, 0), "{name}, {how}");
        }
    }
}

/// The outcome of a download under which the file changes after its first bytes, by a way of
/// reading: of its first request, of one for which nothing is kept, and of one that finds the first
/// blocks in memory.
async fn changed_under(site: Site, change: Changing, requests: usize) -> (Option<Bytes>, u64) {
    for _ in 1..requests {
        let head = Request::get("/long").header(header::RANGE, "bytes=0-9").body(()).unwrap();
        drop(site.files.answer(&head.into_parts().0).await.into_body().collect().await);
    }
    let (head, ()) = Request::get("/long").body(()).unwrap().into_parts();
    let mut body = site.files.answer(&head).await.into_body();
    let mut got = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    change(&site, "long");
    let rest = body.collect().await.ok().map(http_body_util::Collected::to_bytes);
    let whole = rest.map(|rest| {
        got.extend_from_slice(&rest);
        Bytes::from(got)
    });
    (whole, site.files.cache_tally().changed_midway)
}

/// Appends to the file of that name.
fn append(site: &Site, name: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(site.path(name)).unwrap();
    file.write_all(&[b'c'; 100_000]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_under_a_download_is_whole_or_broken_off() {
    for (requests, is_settled) in [(1, true), (2, true), (3, true), (1, false), (3, false)] {
        let site = || if is_settled { Site::new(FilesConfig::default()) } else { Site::young() };
        for (how, change) in CHANGES {
            let (body, midway) = changed_under(site(), change, requests).await;
            // Another file of that name leaves the one that is open as it was.
            let is_whole = matches!(how, "replaced" | "deleted");
            assert_eq!(body.is_some(), is_whole || how == "grown", "{how}, {requests}");
            assert!(!is_whole || body.unwrap() == vec![b'a'; LONG], "{how}, {requests}");
            assert_eq!(midway, u64::from(how == "edited"), "{how}, {requests}");
        }
        let (body, midway) = changed_under(site(), append, requests).await;
        assert!(body.unwrap() == vec![b'a'; LONG], "what the head promised, {requests}");
        assert_eq!(midway, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_outlive_the_descriptor_and_not_the_version() {
    let config = FilesConfig { cache_open: 2, ..FilesConfig::default() };
    let site = Site::new(config);
    for name in ["a", "b", "c", "d"] {
        site.write(name, b'a', LONG);
        for _ in 0..2 {
            assert_eq!(site.get(name).await.uniform(), Some((b'a', LONG)), "{name}");
        }
    }
    let kept = site.files.cache_tally();
    assert_eq!(kept.block_misses, 4 * LONG.div_ceil(128 << 10) as u64);
    assert!(kept.open <= 2);
    // Most were closed meanwhile. Each is opened anew, and none is read again.
    for name in ["a", "b", "c", "d"] {
        assert_eq!(site.get(name).await.uniform(), Some((b'a', LONG)), "{name}");
    }
    let found = site.files.cache_tally();
    assert!(found.misses >= kept.misses + 2, "some were closed");
    assert_eq!((found.block_misses, found.bytes), (kept.block_misses, kept.bytes));
    // Blocks of a version that is gone leave nothing behind.
    let before = site.files.cache_tally().bytes;
    site.get("d").await;
    site.write("d", b'b', LONG);
    assert_eq!(site.get("d").await.uniform(), Some((b'b', LONG)));
    let after = site.files.cache_tally();
    assert!(after.bytes + LONG as u64 <= before, "{} of {before}", after.bytes);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_now_leads_out_of_the_root_gives_nothing_there() {
    let site = Site::new(FilesConfig::default());
    fs::create_dir(site.path("sub")).unwrap();
    site.write("sub/secret", b'a', 6);
    assert_eq!(site.get("sub/secret").await.uniform(), Some((b'a', 6)));
    fs::rename(site.path("sub"), site.path("before")).unwrap();
    symlink(site.dir.path(), site.path("sub")).unwrap();
    assert_eq!(site.get("sub/secret").await.uniform(), Some((b'a', 6)), "what lay in the root");
    tokio::time::advance(AGE).await;
    for _ in 0..2 {
        assert_eq!(site.get("sub/secret").await.status, 403);
    }
    for target in ["/../secret", "/%2e%2e/secret", "/sub/..%2fsecret"] {
        assert_eq!(get(&site.files, target).await.status, 400);
    }
}

#[tokio::test(start_paused = true)]
async fn kept_files_are_charged_and_returned_where_memory_is_scarce() {
    let (purse, mut site) = (Purse::default(), Site::new(FilesConfig::default()));
    site.files = site.files.with_memory(Memory::new(purse.clone()));
    for number in 0..8 {
        site.write(&format!("{number}"), b'x', 100_000);
        site.get(&format!("{number}")).await;
    }
    let held = || purse.held.load(Ordering::Relaxed);
    assert_eq!(held(), 800_000);
    let give_back = || purse.give_back.borrow().clone().unwrap()();
    give_back();
    assert!((300_000..=400_000).contains(&held()), "{} are half", held());
    for _ in 0..8 {
        give_back();
    }
    assert_eq!((held(), site.files.cache_tally().bytes), (0, 0));
    assert!(site.files.cache_tally().given_back_bytes >= 800_000);
    purse.is_scarce.set(true);
    site.get("1").await;
    assert_eq!(held(), 0, "nothing is kept where memory is scarce");
    purse.is_scarce.set(false);
    site.get("1").await;
    assert_eq!(held(), 100_000);
    site.files.set_cache_bytes(0);
    assert_eq!(held(), 0);
    site.get("2").await;
    assert_eq!(held(), 0, "its end is its end");
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_a_quarter_of_the_memory_at_most() {
    let (purse, mut site) = (Purse::default(), Site::new(FilesConfig::default()));
    purse.bytes.set(1 << 20);
    site.files = site.files.with_memory(Memory::new(purse.clone()));
    let kept = |site: &Site| site.files.cache_tally().bytes;
    for number in 0..8 {
        site.write(&format!("{number}"), b'x', 60_000);
        site.get(&format!("{number}")).await;
    }
    assert!((200_000..=256 << 10).contains(&kept(&site)), "{}", kept(&site));
    site.files.set_cache_bytes(usize::MAX);
    site.get("1").await;
    assert!(kept(&site) <= 256 << 10, "{}", kept(&site));
    site.files.set_cache_bytes(100_000);
    assert!(kept(&site) <= 100_000, "{}", kept(&site));
}
