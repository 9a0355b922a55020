use super::*;
use crate::files::path::resolve;
use std::fs;

fn path(text: &str) -> RelativePath {
    resolve(text).unwrap().path
}

fn tree() -> (tempfile::TempDir, ThreadPoolFiles) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ten"), "0123456789").unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let files = ThreadPoolFiles::new(dir.path(), 2).unwrap();
    (dir, files)
}

#[tokio::test]
async fn a_file_is_opened_described_and_read() {
    let (_dir, files) = tree();
    let opened = files.open(&path("/ten")).await.unwrap();
    assert_eq!((opened.metadata.kind, opened.metadata.len_bytes), (Kind::File, 10));
    assert!(opened.metadata.modified.is_some());
    let read = |offset, length| files.read_at(&opened.handle, offset, ReadBuffer::zeroed(length));
    assert_eq!(*read(0, 10).await.unwrap(), *b"0123456789");
    assert_eq!(*read(3, 4).await.unwrap(), *b"3456");
    assert_eq!(*read(8, 4).await.unwrap(), *b"89", "truncated at the end");
    assert_eq!(*read(10, 4).await.unwrap(), *b"", "and beyond it");
}

#[tokio::test]
async fn the_threads_read_what_the_caches_do_not_hold() {
    let (_dir, files) = tree();
    let opened = files.open(&path("/ten")).await.unwrap();
    let file = opened.handle.file.clone();
    let read = files.threads.run(move || {
        let mut buffer = vec![0; 20];
        let length = read_blocking(&file.file, 2, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    });
    assert_eq!(read.await.unwrap(), b"23456789");
    let (root, path) = (files.root.clone(), path("/ten"));
    let blocking = files.threads.run(move || open(&root, &path, Effort::Blocking));
    assert_eq!(blocking.await.unwrap().unwrap().metadata, opened.metadata);
}

#[tokio::test]
async fn all_who_read_a_file_share_one_descriptor() {
    let (dir, files) = tree();
    let open = || async { files.open(&path("/ten")).await.unwrap().handle };
    let (first, second) = (open().await, open().await);
    assert!(Arc::ptr_eq(&first.file, &second.file));
    // A file of the same name that took its place is another one.
    fs::write(dir.path().join("new"), "abc").unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("ten")).unwrap();
    let third = open().await;
    assert!(!Arc::ptr_eq(&first.file, &third.file));
    assert_eq!(*files.read_at(&second, 0, ReadBuffer::zeroed(3)).await.unwrap(), *b"012");
    assert_eq!(*files.read_at(&third, 0, ReadBuffer::zeroed(3)).await.unwrap(), *b"abc");
    assert_eq!(files.root.open.by_inode().len(), 2);
    drop((first, second, third));
    assert!(files.root.open.by_inode().is_empty(), "what nobody reads is closed");
}

#[test]
fn a_file_in_memory_is_read_at_once() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    fs::write(dir.path().join("ten"), "0123456789").unwrap();
    let files = ThreadPoolFiles::new(dir.path(), 1).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut opening = files.open(&path("/ten"));
    let std::task::Poll::Ready(Ok(opened)) = opening.as_mut().poll(&mut context) else {
        panic!("opening waits");
    };
    assert!(is_in_memory(&opened.handle.file.file));
    let mut reading = files.read_at(&opened.handle, 2, ReadBuffer::zeroed(20));
    let std::task::Poll::Ready(Ok(read)) = reading.as_mut().poll(&mut context) else {
        panic!("reading waits");
    };
    assert_eq!(*read, *b"23456789");
}

#[tokio::test]
async fn what_cannot_be_opened_is_told_apart() {
    let (dir, files) = tree();
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("out")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let error = async |text: &str| files.open(&path(text)).await.unwrap_err();
    assert!(matches!(error("/none").await, OpenError::NotFound));
    assert!(matches!(error("/ten/below-a-file").await, OpenError::NotFound));
    assert!(matches!(error("/out").await, OpenError::Forbidden));
    assert!(matches!(error("/socket").await, OpenError::Forbidden));
}

#[tokio::test]
async fn a_directory_is_listed_up_to_the_limit() {
    let (dir, files) = tree();
    std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
    std::os::unix::fs::symlink("ten", dir.path().join("link")).unwrap();
    let root = files.open(&RelativePath::default()).await.unwrap();
    assert_eq!(root.metadata.kind, Kind::Directory);
    let mut listed = files.list(&root.handle, 3, |listed| listed).await.unwrap();
    listed.entries.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<_> = listed.entries.iter().map(|e| e.name.as_slice()).collect();
    assert_eq!(names, [&b"link"[..], b"sub", b"ten"], "a link out of the root is not listed");
    assert!(listed.complete && listed.modified == root.metadata.modified);
    assert_eq!(listed.entries[0].metadata.len_bytes, 10, "a link is described by its end");
    let short = files.list(&root.handle, 2, |listed| listed).await.unwrap();
    let names: Vec<_> = short.entries.iter().map(|e| e.name.as_slice()).collect();
    assert_eq!((names, short.complete), (vec![&b"sub"[..], b"link"], false), "the first in order");
}

#[test]
fn a_root_must_be_a_directory() {
    let (dir, _files) = tree();
    assert!(ThreadPoolFiles::new(&dir.path().join("none"), 1).is_err());
    let error = ThreadPoolFiles::new(&dir.path().join("ten"), 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

#[tokio::test]
async fn another_directory_is_read_by_the_same_threads() {
    let (dir, files) = tree();
    let beside = files.beside(&dir.path().join("sub")).unwrap();
    fs::hard_link(dir.path().join("ten"), dir.path().join("sub/same")).unwrap();
    let first = files.open(&path("/ten")).await.unwrap().handle;
    let second = beside.open(&path("/same")).await.unwrap().handle;
    assert!(Arc::ptr_eq(&first.file, &second.file), "it is one file");
    assert!(beside.open(&path("/ten")).await.is_err());
    let queue = Arc::downgrade(&files.threads.queue);
    drop(files);
    assert_eq!(*beside.read_at(&second, 0, ReadBuffer::zeroed(3)).await.unwrap(), *b"012");
    drop(beside);
    assert!(queue.upgrade().is_none(), "there are no others");
    let (_dir, files) = tree();
    let error = files.beside(&dir.path().join("ten")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn dropping_the_last_clone_ends_the_threads() {
    let (_dir, files) = tree();
    let queue = Arc::downgrade(&files.threads.queue);
    let clone = files.clone();
    drop(files);
    assert!(queue.upgrade().is_some());
    drop(clone);
    assert!(queue.upgrade().is_none(), "joined, so that no thread holds the queue");
}

#[tokio::test]
async fn what_is_made_of_a_listing_is_made_on_a_thread_of_the_pool() {
    let (_dir, files) = tree();
    let root = files.open(&RelativePath::default()).await.unwrap();
    let name = |_| std::thread::current().name().map(str::to_owned);
    let name = files.list(&root.handle, 3, name).await.unwrap().unwrap();
    assert!(name.starts_with("files-"), "{name}");
}

/// The readers of a disk, each with its name. Where the kernel has no io_uring it says so.
fn readers() -> Vec<(&'static str, Arc<dyn Reads>)> {
    let mut all: Vec<(&str, Arc<dyn Reads>)> =
        vec![("threads", Arc::new(Threads::start("files", 3).unwrap()))];
    match Uring::start() {
        Ok(uring) => all.push(("io_uring", Arc::new(uring))),
        Err(why) => println!("no io_uring here: {why}"),
    }
    all
}

#[tokio::test]
async fn every_reader_reads_the_same() {
    let (dir, files) = tree();
    let long: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(dir.path().join("long"), &long).unwrap();
    let file = files.open(&path("/long")).await.unwrap().handle.file;
    for (name, reader) in readers() {
        let read = |offset: u64, length: usize, filled: usize| {
            let mut buffer = ReadBuffer::zeroed(length);
            let end = (offset as usize + filled).min(long.len());
            buffer[..end - offset as usize].copy_from_slice(&long[offset as usize..end]);
            reader.read(file.clone(), (offset, buffer, filled))
        };
        assert_eq!(*read(0, 1_000_000, 0).await.unwrap().unwrap(), *long, "{name}");
        assert_eq!(*read(10, 500, 100).await.unwrap().unwrap(), long[10..510], "{name}");
        assert_eq!(
            *read(999_990, 500, 0).await.unwrap().unwrap(),
            long[999_990..],
            "{name}: the end"
        );
        assert_eq!(*read(5, 7, 7).await.unwrap().unwrap(), long[5..12], "{name}: nothing to do");
        // More at once than a ring has room for; some are abandoned.
        let many: Vec<_> = (0..500).map(|at| read(at * 1000, 1000 + at as usize, 0)).collect();
        for (at, reading) in many.into_iter().enumerate().filter(|(at, _)| at % 3 > 0) {
            let expected = &long[at * 1000..at * 1000 + 1000 + at];
            assert_eq!(*reading.await.unwrap().unwrap(), *expected, "{name}");
        }
        let directory = Arc::new(OpenFile { file: File::open(dir.path()).unwrap(), listed: None });
        let failed = reader.read(directory, (0, ReadBuffer::zeroed(10), 0)).await.unwrap();
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::IsADirectory, "{name}");
    }
}

#[tokio::test]
async fn a_reader_that_ends_leaves_nobody_waiting() {
    let (dir, files) = tree();
    fs::write(dir.path().join("long"), vec![7; 4 << 20]).unwrap();
    let file = files.open(&path("/long")).await.unwrap().handle.file;
    for (name, reader) in readers() {
        let read = |_| reader.read(file.clone(), (0, ReadBuffer::zeroed(1 << 20), 0));
        let reads: Vec<_> = (0..300).map(read).collect();
        drop(reader);
        for read in reads {
            if let Ok(read) = read.await {
                assert!(read.unwrap().iter().all(|byte| *byte == 7), "{name}");
            }
        }
    }
    assert_eq!(Arc::strong_count(&file), 1, "and no file open");
}
