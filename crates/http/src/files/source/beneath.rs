//! Opens files beneath a root, whatever names and links say: no path leaves the root.
//!
//! Linux 5.6 and later resolve the whole path in one call that refuses to leave the root
//! (`openat2`, RESOLVE_BENEATH). Elsewhere the path is walked a segment at a time and no symbolic
//! link is followed at all: stricter, never laxer.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::files::path::RelativePath;

/// How long an open may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Only as long as the kernel's caches need; else `AGAIN`.
    Cached,
    /// As long as it takes.
    Blocking,
}

/// Read-only; never waits for a FIFO's writer, never takes a terminal.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens `path` beneath `root`.
pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &RelativePath,
    effort: Effort,
) -> Result<OwnedFd, Errno> {
    let mut resolve = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
    if effort == Effort::Cached {
        resolve = resolve.union(ResolveFlags::CACHED);
    }
    match openat2(root, name_of(path), FLAGS, Mode::empty(), resolve) {
        // Missing in old kernels, hidden by some containers' filters.
        Err(Errno::NOSYS | Errno::PERM) if effort == Effort::Cached => Err(Errno::AGAIN),
        Err(Errno::NOSYS | Errno::PERM) => walk(root, path),
        opened => opened,
    }
}

/// The path in the kernel's form.
fn name_of(path: &RelativePath) -> &OsStr {
    let bytes = path.as_bytes();
    OsStr::from_bytes(if bytes.is_empty() { b"." } else { bytes })
}

/// Opens a segment at a time, following no symbolic link.
fn walk(root: BorrowedFd<'_>, path: &RelativePath) -> Result<OwnedFd, Errno> {
    let flags = FLAGS.union(OFlags::NOFOLLOW);
    let mut opened = openat(root, ".", flags, Mode::empty())?;
    for segment in path.segments() {
        opened = openat(opened.as_fd(), OsStr::from_bytes(segment), flags, Mode::empty())?;
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::path::resolve;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A root with a file, links within and out of it; beside it a secret.
    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(root.join("sub/file"), "f").unwrap();
        symlink("sub/file", root.join("inner")).unwrap();
        symlink("../sub/file", root.join("sub/up")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(dir.path(), root.join("absolute")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let fd = OwnedFd::from(fs::File::open(&root).unwrap());
        (dir, fd)
    }

    fn outcome(
        how: impl Fn(BorrowedFd<'_>, &RelativePath) -> Result<OwnedFd, Errno>,
        root: &OwnedFd,
        path: &str,
    ) -> Result<(), Errno> {
        how(root.as_fd(), &resolve(path).unwrap().path).map(drop)
    }

    #[test]
    fn links_beneath_the_root_are_followed_and_links_out_are_not() {
        let (_dir, root) = tree();
        let open = |root: BorrowedFd<'_>, path: &RelativePath| open(root, path, Effort::Blocking);
        for path in ["/", "/sub", "/sub/file", "/inner", "/sub/up"] {
            assert_eq!(outcome(open, &root, path), Ok(()), "{path}");
        }
        for path in ["/out", "/absolute/secret", "/absolute"] {
            assert_eq!(outcome(open, &root, path), Err(Errno::XDEV), "{path}");
        }
        assert_eq!(outcome(open, &root, "/loop"), Err(Errno::LOOP));
        assert_eq!(outcome(open, &root, "/none"), Err(Errno::NOENT));
    }

    #[test]
    fn the_walk_follows_no_link_at_all() {
        let (_dir, root) = tree();
        for path in ["/", "/sub", "/sub/file"] {
            assert_eq!(outcome(walk, &root, path), Ok(()), "{path}");
        }
        for path in ["/inner", "/out", "/absolute/secret", "/sub/up"] {
            assert!(outcome(walk, &root, path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_fifo_without_a_writer_does_not_hold_us_up() {
        let (dir, root) = tree();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("root/fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let open = |root: BorrowedFd<'_>, path: &RelativePath| open(root, path, Effort::Blocking);
        assert_eq!(outcome(open, &root, "/fifo"), Ok(()));
    }
}
