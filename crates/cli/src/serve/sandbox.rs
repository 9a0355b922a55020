//! What a server that runs may not do (`--sandbox`): so that who takes it over has little.
//!
//! ```text
//!   files          Landlock: what the flags name, no more; no connection of the kernel's TCP
//!   system calls   seccomp: those that it uses, and so no program and no process
//!   privileges     all are dropped but those that read files
//! ```
//!
//! Files are restricted first, before there is another thread, so that all threads are. The system
//! calls and the privileges follow once the device is open. A kernel that lacks one of the three
//! leaves it out, and the log says what holds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::log::{AccessOutput, Record};
use crate::plan::{Capture, CaptureTarget, DevicePlan, Plan, Shown, Stack};
use crate::serve::admin::AdminAddress;

/// The version of Landlock that is asked for; an older kernel has less.
const LANDLOCK: ABI = ABI::V5;

/// Names of system calls with their numbers.
macro_rules! calls {
    ($($call:ident),* $(,)?) => { &[$((stringify!($call), libc::$call)),*] };
}

/// The system calls that a running server uses, and those of the C library for them. All others
/// are not there for it, beside clone for threads. `docs/serving.md` has the list, too.
#[rustfmt::skip]
const ALLOWED: &[(&str, libc::c_long)] = calls![
    // Memory, and threads. The C library has clone where there is no clone3, whose flags no filter
    // can see.
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_membarrier,
    SYS_futex, SYS_futex_waitv, SYS_set_robust_list, SYS_rseq, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_gettid, SYS_getpid, SYS_prctl,
    SYS_restart_syscall, SYS_exit, SYS_exit_group,
    // Signals, and time.
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_tgkill,
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
    // Files and directories.
    SYS_openat, SYS_openat2, SYS_close, SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2,
    SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_lseek, SYS_fstat, SYS_newfstatat,
    SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_readlinkat, SYS_faccessat,
    SYS_faccessat2, SYS_getcwd, SYS_fcntl, SYS_dup, SYS_dup3, SYS_fsync, SYS_fdatasync,
    SYS_ftruncate, SYS_fadvise64, SYS_unlinkat, SYS_renameat, SYS_renameat2,
    SYS_fchmod, SYS_fchmodat, SYS_umask, SYS_ioctl,
    // Sockets, and waiting for them.
    SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect,
    SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_shutdown, SYS_sendto,
    SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg,
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll, SYS_pselect6,
    SYS_eventfd2, SYS_pipe2, SYS_timerfd_create, SYS_timerfd_settime,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    // The process asks for its users and limits, and gives privileges up.
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_capget, SYS_capset, SYS_seccomp,
    SYS_getrandom, SYS_uname, SYS_sysinfo, SYS_prlimit64, SYS_getrusage,
];

/// The older forms of some, on this processor alone.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OF_PROCESSOR: &[(&str, libc::c_long)] = calls![
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_unlink, SYS_rename,
    SYS_chmod, SYS_dup2, SYS_epoll_wait, SYS_poll, SYS_time, SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_PROCESSOR: &[(&str, libc::c_long)] = &[];

/// What is reached in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Paths {
    /// To read.
    read: BTreeSet<PathBuf>,
    /// To read, write, make and remove.
    write: BTreeSet<PathBuf>,
    /// Devices, to read, write and set up.
    devices: BTreeSet<PathBuf>,
}

/// What holds of a sandbox, for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Sandbox {
    parts: Vec<&'static str>,
    lacking: Vec<String>,
    /// Why paths of the plan cannot be reached from now on.
    skipped: Vec<String>,
}

impl Sandbox {
    /// Restricts this thread, and those that it begins, to the files of a plan. `config`: the
    /// configuration file, which is read again.
    pub(super) fn of_files(plan: &Plan, config: Option<&Path>) -> Sandbox {
        let (paths, skipped) = Paths::of(plan, config).opened();
        let mut sandbox = Sandbox { skipped, ..Sandbox::default() };
        let outcome = restrict(&paths);
        if let Ok(Some(why)) = &outcome {
            sandbox.lacking.push(format!("files ({why})"));
        }
        sandbox.note("files", outcome.map(drop));
        sandbox
    }

    /// Forbids system calls to all threads, and drops the privileges of this one and of those that
    /// it begins. Returns what holds, to be logged.
    pub(super) fn of_calls(mut self) -> Vec<Record> {
        self.note("system calls", filter().and_then(|filter| apply(&filter)));
        self.note("privileges", drop_privileges().map_err(|error| error.to_string()));
        let holds = Record::Sandbox { parts: self.parts, lacking: self.lacking };
        let skipped = self.skipped.into_iter().map(|why| Record::Trouble {
            text: format!("{why}: the server reaches nothing there, even if it is made later"),
        });
        std::iter::once(holds).chain(skipped).collect()
    }

    fn note(&mut self, part: &'static str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.parts.push(part),
            Err(why) => self.lacking.push(format!("{part} ({why})")),
        }
    }
}

impl Paths {
    fn of(plan: &Plan, config: Option<&Path>) -> Paths {
        let mut paths = Paths::default();
        // What the kernel tells of interfaces, processors and this process. Not all machines have
        // all of these, and nobody has named them: one that is not there is not worth a word.
        let known = ["/proc", "/sys", "/etc/machine-id", "/etc/localtime"].map(PathBuf::from);
        paths.read.extend(known.into_iter().filter(|path| path.exists()));
        paths.read.insert(plan.directory.clone());
        paths.read.extend(plan.vhosts.iter().map(|vhost| vhost.directory.clone()));
        // A file that is replaced is another: what counts is its directory.
        let mut again: Vec<&Path> = config.into_iter().collect();
        if let Some(tls) = &plan.tls
            && let Shown::Files(pairs) = &tls.shown
        {
            again.extend(pairs.iter().flat_map(|pair| [&*pair.chain, &*pair.key]));
        }
        again.extend(plan.password_files.iter().map(|path| &**path));
        for path in again {
            // Certificates are often links to others.
            let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            paths.read.extend([parent(path), parent(&target)]);
        }
        let requests = match &plan.log.access {
            Some(AccessOutput::File(path)) => Some(path),
            _ => None,
        };
        let logs = plan.log.file.iter().chain(requests);
        paths.write.extend(logs.map(|path| parent(path)));
        if let Some(Capture { target, .. }) = &plan.watch.capture
            && let CaptureTarget::File(path) | CaptureTarget::Within(path, _) = target
        {
            paths.write.insert(parent(path));
        }
        let sockets = match &plan.admin {
            Some(AdminAddress::Unix(path)) => Some(path),
            _ => None,
        };
        paths.write.extend(sockets.into_iter().chain(&plan.takeover).map(|path| parent(path)));
        let device = match &plan.stack {
            Stack::Device { device: DevicePlan::Tap { .. }, .. } => Some("/dev/net/tun"),
            Stack::Device { device: DevicePlan::Macvtap { .. }, .. } => Some("/dev"),
            _ => None,
        };
        paths.devices.extend(device.map(PathBuf::from));
        paths
    }

    /// Those that open, and why the others do not: only what opens can be allowed.
    fn opened(mut self) -> (Paths, Vec<String>) {
        let mut skipped = Vec::new();
        for paths in [&mut self.read, &mut self.write, &mut self.devices] {
            paths.retain(|path| match PathFd::new(path) {
                Ok(_) => true,
                Err(error) => {
                    skipped.push(error.to_string());
                    false
                }
            });
        }
        (self, skipped)
    }
}

/// The directory that holds a path.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Restricts this thread to those paths. Returns what an older kernel leaves out of that.
fn restrict(paths: &Paths) -> Result<Option<&'static str>, String> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile;
    let devices = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let restricted = || -> Result<RulesetStatus, landlock::RulesetError> {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::ConnectTcp)?
            .create()?
            .add_rules(path_beneath_rules(&paths.read, read))?
            .add_rules(path_beneath_rules(&paths.write, write))?
            .add_rules(path_beneath_rules(&paths.devices, devices))?;
        Ok(ruleset.restrict_self()?.ruleset)
    };
    match restricted() {
        Ok(RulesetStatus::NotEnforced) => Err("this kernel has no Landlock".to_owned()),
        Ok(RulesetStatus::PartiallyEnforced) => Ok(Some("this kernel's Landlock forbids a part")),
        Ok(RulesetStatus::FullyEnforced) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The filter of system calls. One that it does not allow is not there (ENOSYS): where it is a
/// newer form of another, the C library falls back to that. So it does for clone3, and the calls of
/// the x32 ABI of x86-64, which have numbers of their own, are gone as well.
fn filter() -> Result<BpfProgram, String> {
    let text = |error: seccompiler::BackendError| error.to_string();
    let all = ALLOWED.iter().chain(OF_PROCESSOR);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        all.map(|(_, call)| (*call, Vec::new())).collect();
    // Threads, and no processes.
    let threads = u64::try_from(libc::CLONE_THREAD).unwrap_or_default();
    let (flags, compare) = (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(threads));
    let is_thread = SeccompCondition::new(0, flags, compare, threads);
    let is_thread = is_thread.and_then(|condition| SeccompRule::new(vec![condition]));
    rules.insert(libc::SYS_clone, vec![is_thread.map_err(text)?]);
    let others = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(text)?;
    let filter = SeccompFilter::new(rules, others, SeccompAction::Allow, arch).map_err(text)?;
    filter.try_into().map_err(text)
}

/// Has the filter hold for all threads.
fn apply(filter: &BpfProgram) -> Result<(), String> {
    seccompiler::apply_filter_all_threads(filter).map_err(|error| error.to_string())
}

/// Drops the privileges of this thread that no part of a running server uses: all but those that
/// read what file modes would not let it.
pub(crate) fn drop_privileges() -> rustix::io::Result<()> {
    let CapabilitySets { permitted, effective, .. } = rustix::thread::capabilities(None)?;
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets {
        permitted: permitted & kept,
        effective: effective & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

#[cfg(test)]
mod tests;
