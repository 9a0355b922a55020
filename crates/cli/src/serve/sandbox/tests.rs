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
        seccompiler::apply_filter(&filter().unwrap()).unwrap();
        let error = process::Command::new("true").spawn().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        assert_eq!(rustix::process::chroot("/").unwrap_err(), rustix::io::Errno::NOSYS);
        assert!(fs::metadata("/").is_ok());
        thread::spawn(|| 7).join().unwrap()
    });
    assert_eq!(filtered.join().unwrap(), 7);
}

/// What a filter of loads, comparisons, masks and returns says of a call with these flags as
/// its first argument. (Only unsafe code can make a call by its number.)
fn said(filter: &[seccompiler::sock_filter], number: u32, flags: u32) -> u32 {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
    let compare = |with: u32| libc::BPF_JMP | with | libc::BPF_K;
    let (mut at, mut held) = (0, 0);
    loop {
        let step = &filter[at];
        at += 1;
        let jump = |is: bool| usize::from(if is { step.jt } else { step.jf });
        match u32::from(step.code) {
            LOAD => {
                held = match step.k {
                    0 => number,
                    4 => ARCHITECTURE,
                    16 => flags,
                    other => panic!("byte {other}"),
                };
            }
            code if code == compare(libc::BPF_JEQ) => at += jump(held == step.k),
            code if code == compare(libc::BPF_JA) => at += step.k as usize,
            code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => held &= step.k,
            code if code == libc::BPF_RET | libc::BPF_K => return step.k,
            code => panic!("code {code:#x} of {}", step.k),
        }
    }
}

#[test]
fn what_the_list_lacks_is_not_there() {
    let none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let filter = filter().unwrap();
    let says = |number: u32, flags: libc::c_int| said(&filter, number, flags as u32);
    for (name, call) in ALLOWED.iter().chain(OF_PROCESSOR) {
        assert_eq!(says(*call as u32, 0), libc::SECCOMP_RET_ALLOW, "{name}");
        // As x32 numbers them.
        assert_eq!(says(*call as u32 | 0x4000_0000, 0), none, "{name}");
    }
    let gone = [libc::SYS_execve, libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_mount];
    for call in gone.into_iter().chain([libc::SYS_clone3, libc::SYS_kill, 10_000]) {
        assert_eq!(says(call as u32, 0), none, "{call}");
    }
    let clone = |flags| says(libc::SYS_clone as u32, flags);
    assert_eq!(clone(libc::CLONE_THREAD | libc::CLONE_VM), libc::SECCOMP_RET_ALLOW);
    assert_eq!(clone(libc::CLONE_VM), none);
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
fn the_manual_has_each_allowed_call() {
    let page = include_str!("../../../../../docs/serving.md");
    for (name, _) in ALLOWED.iter().chain(OF_PROCESSOR) {
        let name = name.strip_prefix("SYS_").unwrap();
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    let all: BTreeSet<_> = ALLOWED.iter().chain(OF_PROCESSOR).collect();
    assert_eq!(all.len(), ALLOWED.len() + OF_PROCESSOR.len());
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
    let paths = Paths::of(&plan("--tap lw0 --ip 10.0.0.2/24"), Some(Path::new("/etc/lw/a.toml")));
    assert_eq!(paths.devices, [PathBuf::from("/dev/net/tun")].into());
    assert!(paths.read.contains(Path::new("/etc/lw")));
}
