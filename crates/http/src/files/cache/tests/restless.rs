//! A file that changes between any two calls on it: no answer mixes two versions.

use super::*;

/// A file that may change at each call on it.
#[derive(Clone, Default)]
struct Restless(Rc<RefCell<Rest>>);

#[derive(Default)]
struct Rest {
    file: Option<Rc<RefCell<Version>>>,
    /// Counts changes: every version has a time of its own.
    changes: u64,
    script: VecDeque<Change>,
    /// All that there ever was.
    versions: Vec<Version>,
}

#[derive(Clone, Debug)]
struct Version {
    /// All its bytes are this number's last.
    number: u64,
    /// When it was modified.
    stamp: u64,
    inode: u64,
    length: usize,
    /// How it was changed in place before. By its times and its length a file that was written
    /// again and has grown is one that was only appended to.
    history: History,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    None,
    Appended,
    Rewritten,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    Edit(usize),
    Replace(usize),
    Delete,
}

fn change() -> impl Strategy<Value = Change> {
    let length = prop_oneof![Just(50_usize), Just(10_000)];
    prop_oneof![
        6 => Just(Change::None),
        2 => length.clone().prop_map(Change::Edit),
        2 => length.prop_map(Change::Replace),
        1 => Just(Change::Delete),
    ]
}

impl Version {
    fn metadata(&self) -> Metadata {
        let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + self.stamp));
        Metadata {
            kind: crate::files::source::Kind::File,
            len_bytes: self.length as u64,
            modified,
            changed: modified,
            identity: self.inode,
        }
    }

    /// True if a change in place to that length can be told for what it is.
    fn shows(&self, length: usize) -> bool {
        match self.history {
            History::None => true,
            History::Appended => length > self.length,
            History::Rewritten => length <= self.length,
        }
    }

    /// The tag that goes with these bytes alone.
    fn etag(&self) -> String {
        Validators::of(&self.metadata(), SystemTime::now()).etag
    }
}

impl Restless {
    fn step(&self) {
        let mut rest = self.0.borrow_mut();
        let change = rest.script.pop_front().unwrap_or(Change::None);
        rest.changes += 1;
        let number = rest.changes;
        match (change, &rest.file) {
            (Change::None, _) => {}
            (Change::Edit(length), Some(file)) if file.borrow().shows(length) => {
                let Version { inode, length: before, number: bytes, .. } = *file.borrow();
                // A file that grows keeps the bytes that it has.
                let (bytes, history) = match length > before {
                    true => (bytes, History::Appended),
                    false => (number, History::Rewritten),
                };
                *file.borrow_mut() =
                    Version { number: bytes, stamp: number, inode, length, history };
            }
            (Change::Edit(length) | Change::Replace(length), _) => {
                let history = History::None;
                let version = Version { number, stamp: number, inode: number, length, history };
                rest.file = Some(Rc::new(RefCell::new(version)));
            }
            (Change::Delete, _) => rest.file = None,
        }
        let version = rest.file.as_ref().map(|file| file.borrow().clone());
        rest.versions.extend(version);
    }
}

impl FileSource for Restless {
    type Handle = Rc<RefCell<Version>>;

    fn open(&self, _path: &RelativePath) -> Pending<Result<Opened<Self::Handle>, OpenError>> {
        self.step();
        let file = self.0.borrow().file.clone();
        let opened = file.map(|handle| {
            let metadata = handle.borrow().metadata();
            Opened { handle, metadata }
        });
        Box::pin(std::future::ready(opened.ok_or(OpenError::NotFound)))
    }

    fn read_at(
        &self,
        handle: &Self::Handle,
        offset: u64,
        mut buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        self.step();
        let version = handle.borrow().clone();
        buffer.truncate(version.length.saturating_sub(offset as usize));
        buffer.fill(version.number as u8);
        Box::pin(std::future::ready(Ok(buffer)))
    }

    fn metadata(&self, handle: &Self::Handle) -> io::Result<Metadata> {
        self.step();
        Ok(handle.borrow().metadata())
    }

    fn list<T: Send + 'static>(
        &self,
        _handle: &Self::Handle,
        _limit: usize,
        _make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        unreachable!("there are no directories")
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        Box::pin(std::future::ready(Some(work())))
    }
}

proptest! {
    /// However the file changes, between any two calls: a body that came whole is of one version,
    /// and its tag is that version's.
    #[test]
    fn no_answer_mixes_two_versions(
        script in prop::collection::vec(change(), 0..60),
        pauses in prop::collection::vec(any::<bool>(), 20),
        cache_open in 0..2_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let source = Restless::default();
            source.0.borrow_mut().script = script.into();
            source.0.borrow_mut().script.push_front(Change::Replace(10_000));
            let config = FilesConfig {
                chunk_bytes: 4096,
                cache_file_bytes: 1000,
                cache_open,
                ..FilesConfig::default()
            };
            let files = Files::new(source.clone(), config, clock());
            for pause in pauses {
                let reply = get(&files, "/file").await;
                if let Some((byte, length)) = reply.uniform() {
                    // Fewer than 256 steps: the byte is the number.
                    let is_it = |version: &&Version| {
                        (version.number, version.length) == (byte.into(), length)
                    };
                    let versions = &source.0.borrow().versions;
                    let mut tags = versions.iter().filter(is_it).map(Version::etag);
                    assert!(tags.any(|tag| Some(&tag) == reply.etag.as_ref()), "{byte} {length}");
                }
                if pause {
                    tokio::time::advance(AGE).await;
                }
            }
        });
    }
}
