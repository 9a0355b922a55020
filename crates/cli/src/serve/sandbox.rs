//! What a server that runs may not do (`--sandbox`): so that who takes it over has little.
//!
//! ```text
//!   files          Landlock: what the flags name, no more; no connection of the kernel's TCP
//!   system calls   seccomp: no program, no process, none of those that change the machine
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

/// The system calls of no part of a running server. `docs/serving.md` has the list, too.
#[rustfmt::skip]
const FORBIDDEN: &[(&str, libc::c_long)] = calls![
    // Programs and processes. Threads are begun by clone, which `filters` looks at.
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise,
    // Users, roots, namespaces and mounts.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid,
    SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
    SYS_setfsgid, SYS_chroot, SYS_pivot_root, SYS_unshare,
    SYS_setns, SYS_mount, SYS_umount2, SYS_move_mount,
    SYS_open_tree, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick, SYS_mount_setattr,
    // The kernel and the machine.
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot,
    SYS_swapon, SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog,
    SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname,
    SYS_personality, SYS_vhangup,
    // Keys, handles of files, and what watches all files.
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_open_by_handle_at,
    SYS_name_to_handle_at, SYS_fanotify_init, SYS_fanotify_mark,
    SYS_mknodat, SYS_lookup_dcookie,
];

/// Those of this processor alone.
#[cfg(target_arch = "x86_64")]
const OF_PROCESSOR: &[(&str, libc::c_long)] = calls![
    SYS_fork,
    SYS_vfork,
    SYS_iopl,
    SYS_ioperm,
    SYS_mknod,
    SYS_modify_ldt,
    SYS_kexec_file_load,
    SYS_uselib,
    SYS_ustat,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_PROCESSOR: &[(&str, libc::c_long)] = &[];

/// From this number on the calls are those of the x32 ABI of x86-64: nearly all, once more.
const X32: u32 = 0x4000_0000;

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
        self.note("system calls", filters().and_then(|all| apply(&all)));
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

/// The filters of system calls: one that forbids, and one that says of clone3 that there is none,
/// so that threads are begun by clone, whose flags can be seen. One more leaves out a second set of
/// the calls, where the processor has such.
fn filters() -> Result<Vec<BpfProgram>, String> {
    let text = |error: seccompiler::BackendError| error.to_string();
    let program = |rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32| {
        let action = SeccompAction::Errno(errno as u32);
        let arch = std::env::consts::ARCH.try_into().map_err(text)?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(text)?;
        filter.try_into().map_err(text)
    };
    let all = FORBIDDEN.iter().chain(OF_PROCESSOR);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        all.map(|(_, call)| (*call, Vec::new())).collect();
    let threads = u64::try_from(libc::CLONE_THREAD).unwrap_or_default();
    let is_process =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(threads), 0);
    let is_process = is_process.and_then(|condition| SeccompRule::new(vec![condition]));
    rules.insert(libc::SYS_clone, vec![is_process.map_err(text)?]);
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let mut filters = vec![program(rules, libc::EPERM)?, program(clone3, libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        filters.push(without_x32());
    }
    Ok(filters)
}

/// Says of each call of the x32 ABI that there is none. The kernel names the same architecture for
/// them, with other numbers: they pass the rules for the numbers that we know.
fn without_x32() -> BpfProgram {
    let step = |code: u32, jt: u8, jf: u8, k: u32| seccompiler::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    vec![
        // What a filter sees begins with the number.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Has the filters hold for all threads.
fn apply(filters: &[BpfProgram]) -> Result<(), String> {
    for filter in filters {
        seccompiler::apply_filter_all_threads(filter).map_err(|error| error.to_string())?;
    }
    Ok(())
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
mod tests {
    use super::*;
    use crate::args::{Command, CommandLine};
    use clap::Parser;
    use std::io::ErrorKind;
    use std::process;
    use std::{fs, thread};

    #[test]
    fn a_restricted_thread_reaches_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let [mine, others] = ["mine", "others"].map(|name| directory.path().join(name));
        for directory in [&mine, &others] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("file"), "text").unwrap();
        }
        let paths = Paths { read: [mine.clone()].into(), ..Paths::default() };
        let restricted = thread::spawn(move || {
            restrict(&paths)?;
            let read = |path: &Path| fs::read_to_string(path).map_err(|error| error.kind());
            assert_eq!(read(&mine.join("file")).as_deref(), Ok("text"));
            assert_eq!(read(&others.join("file")), Err(ErrorKind::PermissionDenied));
            let written = fs::write(mine.join("new"), "").map_err(|error| error.kind());
            assert_eq!(written, Err(ErrorKind::PermissionDenied));
            let connected = std::net::TcpStream::connect("127.0.0.1:9");
            Ok::<ErrorKind, String>(connected.unwrap_err().kind())
        });
        match restricted.join().unwrap() {
            // Before Linux 6.7 connections are as they were.
            Ok(kind) => assert!(
                matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ConnectionRefused),
                "{kind}"
            ),
            Err(why) => eprintln!("left out: {why}"),
        }
    }

    #[test]
    fn a_filtered_thread_begins_threads_and_no_program() {
        let filtered = thread::spawn(|| {
            for filter in &filters().unwrap() {
                seccompiler::apply_filter(filter).unwrap();
            }
            let error = process::Command::new("true").spawn().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
            assert_eq!(rustix::process::chroot("/").unwrap_err(), rustix::io::Errno::PERM);
            thread::spawn(|| 7).join().unwrap()
        });
        assert_eq!(filtered.join().unwrap(), 7);
    }

    /// What a filter of loads of the number, comparisons and returns says of a call. (Only unsafe
    /// code can make a call by its number.)
    fn said(filter: &[seccompiler::sock_filter], number: u32) -> u32 {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const COMPARE: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let (mut at, mut held) = (0, 0);
        loop {
            let step = &filter[at];
            at += 1;
            match u32::from(step.code) {
                LOAD if step.k == 0 => held = number,
                COMPARE => at += usize::from(if held >= step.k { step.jt } else { step.jf }),
                RETURN => return step.k,
                code => panic!("code {code:#x} of {}", step.k),
            }
        }
    }

    #[test]
    fn the_calls_of_x32_are_not_there() {
        let none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let filter = without_x32();
        assert_eq!(filters().unwrap().contains(&filter), cfg!(target_arch = "x86_64"));
        // First execve and execveat, as x32 numbers them.
        for number in [X32 | 520, X32 | 545, X32, u32::MAX] {
            assert_eq!(said(&filter, number), none, "{number:#x}");
        }
        for number in [0, libc::SYS_execve as u32, X32 - 1] {
            assert_eq!(said(&filter, number), libc::SECCOMP_RET_ALLOW, "{number:#x}");
        }
    }

    #[test]
    fn privileges_for_the_network_go() {
        let dropped = thread::spawn(|| {
            drop_privileges().unwrap();
            rustix::thread::capabilities(None).unwrap()
        });
        let left = dropped.join().unwrap();
        let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        assert!(kept.contains(left.permitted) && kept.contains(left.effective));
        assert!(left.inheritable.is_empty());
    }

    #[test]
    fn the_manual_has_each_forbidden_call() {
        let page = include_str!("../../../../docs/serving.md");
        for (name, _) in FORBIDDEN.iter().chain(OF_PROCESSOR) {
            let name = name.strip_prefix("SYS_").unwrap();
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        let all: BTreeSet<_> = FORBIDDEN.iter().chain(OF_PROCESSOR).collect();
        assert_eq!(all.len(), FORBIDDEN.len() + OF_PROCESSOR.len());
    }

    #[test]
    fn a_path_that_does_not_open_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        let paths = Paths {
            read: [directory.path().to_owned()].into(),
            write: [directory.path().to_owned(), absent.clone()].into(),
            ..Paths::default()
        };
        let (opened, skipped) = paths.opened();
        assert_eq!(opened.read, opened.write);
        assert_eq!(opened.read, [directory.path().to_owned()].into());
        assert_eq!(skipped.len(), 1);
        assert!(skipped[0].contains(absent.to_str().unwrap()), "{skipped:?}");
    }

    #[test]
    fn a_plan_names_what_is_reached() {
        let plan = |flags: &str| {
            let words = ["lightwait", "serve"].into_iter().chain(flags.split(' '));
            let Command::Serve(args) = CommandLine::parse_from(words).command else {
                unreachable!("serve")
            };
            Plan::new(&args).unwrap()
        };
        let paths = Paths::of(&plan("--log /var/log/lw/a --takeover /run/lw/t --pcap p"), None);
        assert!(paths.read.contains(Path::new(".")));
        let write = ["/var/log/lw", "/run/lw", "."].map(PathBuf::from);
        assert_eq!(paths.write, write.into());
        assert!(paths.devices.is_empty());
        let paths =
            Paths::of(&plan("--tap lw0 --ip 10.0.0.2/24"), Some(Path::new("/etc/lw/a.toml")));
        assert_eq!(paths.devices, [PathBuf::from("/dev/net/tun")].into());
        assert!(paths.read.contains(Path::new("/etc/lw")));
    }
}
