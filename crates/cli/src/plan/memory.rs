//! `--memory BYTES`: how much memory buffers and files in flight may use. The default depends on
//! the memory of the machine or of its control group.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::Bytes;

/// The default: this part of the machine's memory, up to this limit.
const PART: u64 = 4;
const MOST: u64 = 1 << 30;

/// Fewer bytes would not hold the buffers of a few connections.
const LEAST: u64 = 4 << 20;

/// An amount of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory(u64);

impl Memory {
    /// A quarter of the memory that the machine, or the process's control group, allows; 1 GiB at
    /// most.
    pub(crate) fn of_machine() -> Memory {
        Memory((machine_bytes() / PART).clamp(LEAST, MOST))
    }

    /// Why this amount is too much for this machine, if it is.
    pub(crate) fn excess(self) -> Option<String> {
        self.excess_of(machine_bytes())
    }

    fn excess_of(self, machine: u64) -> Option<String> {
        let has = Memory(machine >> 20 << 20);
        (self.0 > machine).then(|| format!("--memory {self}: more than the {has} that we can have"))
    }

    pub(crate) fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        match text.parse::<Bytes>()? {
            Bytes(bytes) if bytes >= LEAST => Ok(Memory(bytes)),
            _ => Err(format!("too little: give {} at least", Memory(LEAST))),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes % (1 << 30) == 0 => write!(f, "{}G", bytes >> 30),
            bytes if bytes % (1 << 20) == 0 => write!(f, "{}M", bytes >> 20),
            bytes => write!(f, "{bytes}"),
        }
    }
}

/// The memory that the machine, or the process's control group, allows.
fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    control_group_limit().map_or(machine, |limit| limit.min(machine))
}

/// The least limit of this process's control group and those above it. A container has less memory
/// than its machine.
fn control_group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    limit_within(Path::new("/sys/fs/cgroup"), Path::new(group))
}

/// The least `memory.max` of `group` and those above it, in the tree at `root`.
fn limit_within(root: &Path, group: &Path) -> Option<u64> {
    let names = group.components().filter(|part| matches!(part, Component::Normal(_)));
    let mut path = PathBuf::from(root);
    let mut paths = vec![path.clone()];
    for name in names {
        path.push(name);
        paths.push(path.clone());
    }
    let limit = |path: PathBuf| fs::read_to_string(path.join("memory.max")).ok();
    paths.into_iter().filter_map(limit).filter_map(|text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_and_too_little_is_told() {
        let bytes = |text: &str| text.parse::<Memory>().map(Memory::bytes);
        assert_eq!(bytes("268435456"), Ok(256 << 20));
        assert_eq!([bytes("8192k"), bytes("8M")], [Ok(8 << 20), Ok(8 << 20)]);
        assert_eq!([bytes("2g"), bytes("4M")], [Ok(2 << 30), Ok(4 << 20)]);
        assert!(bytes("4095K").unwrap_err().contains("4M at least"));
        for text in ["", "1GB"] {
            assert!(bytes(text).unwrap_err().contains("such as 100M"), "{text}");
        }
    }

    #[test]
    fn more_than_the_machine_has_is_told_with_both_numbers() {
        assert_eq!(Memory(4 << 30).excess_of(4 << 30), None);
        let text = Memory(100 << 30).excess_of((4 << 30) + 5).unwrap();
        assert!(text.contains("--memory 100G") && text.contains(" 4G "), "{text}");
        assert!(Memory(u64::MAX).excess().is_some() && Memory::of_machine().excess().is_none());
    }

    #[test]
    fn the_default_is_a_quarter_of_the_machine_and_at_most_1_gib() {
        let bytes = Memory::of_machine().bytes();
        assert!((LEAST..=MOST).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_container_has_the_least_that_a_group_above_it_allows() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&b).unwrap();
        fs::write(a.join("memory.max"), "1000000\n").unwrap();
        fs::write(b.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit_within(root.path(), Path::new("/a/b")), Some(1_000_000));
        assert_eq!(limit_within(root.path(), Path::new("/")), None);
        fs::write(b.join("memory.max"), "5\n").unwrap();
        assert_eq!(limit_within(root.path(), Path::new("/a/b")), Some(5));
    }
}
