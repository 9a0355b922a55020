//! The program as a user meets it: bad command lines, failures, help.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// The build script, which finds the commit.
#[allow(dead_code, reason = "its main is cargo's to call")]
#[path = "../build.rs"]
mod build;

fn lightwait(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lightwait")).args(arguments).output().unwrap()
}

/// The exit status and what was said on standard error.
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = lightwait(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_bad_command_line_prints_one_helpful_line_and_exits_2() {
    for (arguments, help) in [
        (&["serve", "--tapp", "x"][..], "--tap"),
        (&["serve", "--ip", "10.0.0.2"], "such as 10.9.0.2/24"),
        (&["serve", "--tap", "t"], "--ip A/N"),
        (&["serve", "--tap", "t", "--ip", "10.0.0.255/24"], "broadcast"),
        (&["serve", "--fault", "loss=200%"], "expected 1%"),
        (&["serve", "--tap", "t", "--ip", "10.0.0.1/32"], "larger"),
        (&["serve", "--mtu", "1500"], "--tap NAME"),
        (&["serve", "one", "two"], "two"),
        (&["serve", "--set", "time_wait"], "NAME=VALUE"),
        (&["serve", "--set", "time_wait=30s"], "did you mean time_wait.length"),
        (&["knobs", "rto.flor"], "rto.floor"),
        (&["knobs", "foo"], "no group \"foo\""),
        (&["serve", "--set", "pacing=on"], "did you mean congestion.pacing?"),
        (
            &["serve", "--set", "time_wait.length=30"],
            "--set time_wait.length=30: the value must be a time",
        ),
        (&["load"], "lightwait load --help"),
        (&["wan", "lw0"], "lightwait wan --help"),
        (&["wan", "lw0", "lw0"], "A and B are both `lw0`"),
        (&["wan", "lw0", "lw1", "--delay", "30"], "such as 30ms"),
        (&["tunnel", "--tun", "lw0"], "--to"),
        (&["tunnel", "--tun", "lw0", "--to", "127.0.0.1:1080"], "expected socks5://"),
        (&["tunnel", "--tun", "lw0", "--to", "socks4://127.0.0.1:1080"], "no scheme `socks4`"),
        (&["tunnel", "--tun", "lw0", "--to", "socks5://127.0.0.1"], "is no HOST:PORT"),
        (&["tunnel", "--tun", "lw0", "--to", "direct", "--mtu", "1279"], "1280"),
        (&["tunnel", "--tun", "lw0", "--to", "direct", "--take", "10.0.0.0"], "10.9.0.2/24"),
        (&["lod"], "load"),
        (&["load", "merge"], "(see `lightwait load merge --help`)"),
        (&["load", "merge", "a.json", "--csv", "x", "--html", "x"], "load merge --help"),
        (&["knobs", "--all"], "(see `lightwait knobs --help`)"),
        (&["serve", "--mtu", "1500"], "(see `lightwait serve --help`)"),
        (&[], "lightwait serve"),
        (&[], "(see `lightwait --help`)"),
    ] {
        let (status, text) = refusal(arguments);
        assert_eq!(status, 2, "{arguments:?}: {text}");
        assert!(text.starts_with("lightwait: ") && text.contains(help), "{arguments:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{arguments:?}: {text}");
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_named_once() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--pcap", "/no/such/file"];
    let (status, text) = refusal(&arguments);
    let expected = "lightwait: /no/such/file: cannot be written: No such file or directory";
    assert!(status == 1 && text.starts_with(expected), "{status}: {text}");
    assert_eq!(text.matches("/no/such/file").count(), 1, "{text}");
}

#[test]
fn help_that_nobody_reads_is_no_failure() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["--version"], &["knobs"], &["man"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait"));
        let output = program.args(arguments).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["load", "--help"],
        &["knobs"],
        &["knobs", "rto.floor"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait"));
        let output = program.args(arguments).stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        let begin = "lightwait: standard output: cannot be written: ";
        assert!(text.starts_with(begin) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}

#[test]
fn a_directory_that_cannot_be_served_is_named() {
    let (status, text) = refusal(&["serve", "no/such/directory"]);
    assert_eq!(status, 1);
    assert!(text.contains("no/such/directory: no such directory"), "{text}");
    let (status, text) = refusal(&["serve", env!("CARGO_BIN_EXE_lightwait")]);
    assert_eq!(status, 1);
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn a_taken_port_is_named_with_the_command_that_finds_its_owner() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, text) = refusal(&["serve", "--listen", &address]);
    assert_eq!(status, 1);
    assert!(text.contains(&address) && text.contains("ss -ltnp"), "{text}");
    let (status, text) = refusal(&["serve", "--listen", "192.0.2.1:8080"]);
    assert_eq!(status, 1);
    assert!(text.contains("not an address of this machine"), "{text}");
}

#[test]
fn help_and_version_are_no_failures() {
    let help = lightwait(&["serve", "--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for flag in [
        "--listen",
        "--tap",
        "--af-packet",
        "--ip",
        "--port",
        "--pcap",
        "--json",
        "--set",
        "SIGUSR1",
        "SIGHUP",
        "--access-log",
    ] {
        assert!(text.contains(flag), "{flag}");
    }
    assert!(lightwait(&["--version"]).status.success());
}

#[test]
fn completions_name_the_commands_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = lightwait(&["completions", shell]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for word in ["serve", "merge", "file-io", "io-uring"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let (status, text) = refusal(&["completions", "csh"]);
    assert!(status == 2 && text.contains("[possible values: bash, "), "{text}");
}

#[test]
fn bash_completes_a_flag() {
    if Command::new("bash").arg("--version").output().is_err() {
        println!("left out: no bash");
        return;
    }
    let script = r#"
        eval "$("$1" completions bash)"
        COMP_WORDS=(lightwait serve --file-i) COMP_CWORD=2
        _lightwait lightwait --file-i serve
        echo "${COMPREPLY[@]}""#;
    let program = env!("CARGO_BIN_EXE_lightwait");
    let output = Command::new("bash").args(["-c", script, "bash", program]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--file-io", "{output:?}");
}

#[test]
fn the_manual_is_printed_or_written_a_page_for_each_command() {
    let printed = lightwait(&["man"]);
    assert!(printed.status.success());
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains(".TH lightwait 1"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("share/man1");
    let output = lightwait(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    assert_eq!(page("lightwait.1"), text);
    assert!(page("lightwait-serve.1").contains(r"\-\-file\-io"));
    assert!(page("lightwait-load-merge.1").contains(".TH lightwait-load-merge 1"));

    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("pages are in ") && text.contains("share/man1"), "{text}");

    // A command is no directory, and neither is one that was mistyped.
    let man = |what: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait"));
        program.args(["man", what]).current_dir(dir.path()).output().unwrap()
    };
    assert_eq!(String::from_utf8(man("serve").stdout).unwrap(), page("lightwait-serve.1"));
    let mistyped = man("sreve");
    let text = String::from_utf8(mistyped.stderr).unwrap();
    assert!(
        mistyped.status.code() == Some(2) && text.contains("sreve: neither a command"),
        "{text}"
    );
    assert!(!dir.path().join("serve").exists() && !dir.path().join("sreve").exists());
    assert!(man("./serve").status.success() && dir.path().join("serve/lightwait.1").exists());

    let taken = pages.join("lightwait.1");
    let (status, text) = refusal(&["man", taken.to_str().unwrap()]);
    assert!(status == 1 && text.contains("lightwait.1: cannot be written"), "{text}");
}

/// Runs git on the repository at `dir`, and returns its output.
fn git(dir: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        git.env(format!("{name}_NAME"), "a").env(format!("{name}_EMAIL"), "a@example.com");
    }
    git.env("GIT_COMMITTER_DATE", "2026-11-27T12:00:00Z").arg("-C").arg(dir);
    let output = git.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn the_version_has_the_commit_and_its_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = String::from_utf8(lightwait(&["--version"]).stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = match build::commit(&root) {
        Some(commit) => format!("lightwait {version} ({commit})\n"),
        None => format!("lightwait {version}\n"),
    };
    assert_eq!(output, expected);
}

#[test]
fn the_commit_is_that_of_the_repository_whose_top_is_built() {
    if Command::new("git").arg("--version").output().is_err() {
        println!("left out: no git");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    assert_eq!((build::commit(&root), build::watched(&root).len()), (None, 0), "a tarball");
    git(&root, &["init", "--quiet", "--initial-branch", "part/one"]);
    assert_eq!((build::commit(&root), build::watched(&root).len()), (None, 0), "nothing yet");
    git(&root, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    let short = git(&root, &["rev-parse", "--short=10", "HEAD"]);
    assert_eq!(build::commit(&root), Some(format!("{short} 2026-11-27")));
    let inner = root.join("unpacked");
    fs::create_dir(&inner).unwrap();
    assert_eq!(build::commit(&inner), None, "a tarball within a repository of others");
}

#[test]
fn what_a_build_watches_exists_and_changes_with_each_commit() {
    if Command::new("git").arg("--version").output().is_err() {
        println!("left out: no git");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("main");
    fs::create_dir(&root).unwrap();
    git(&root, &["init", "--quiet", "--initial-branch", "part/one"]);
    git(&root, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    git(&root, &["worktree", "add", "--quiet", "-b", "two", "../worktree"]);
    let tree = dir.path().join("worktree");
    let git_dir = root.join(".git").canonicalize().unwrap();
    let watched = |root: &Path| {
        let paths = build::watched(root);
        paths.iter().map(|path| path.canonicalize().unwrap()).collect::<Vec<_>>()
    };
    let of = |names: &[&str]| names.iter().map(|name| git_dir.join(name)).collect::<Vec<_>>();
    assert_eq!(watched(&root), of(&["HEAD", "refs/heads/part/one"]));
    assert_eq!(watched(&tree), of(&["worktrees/worktree/HEAD", "refs/heads/two"]));
    git(&root, &["pack-refs", "--all", "--prune"]);
    // The next commit makes the branch's file in that directory.
    assert_eq!(watched(&root)[..2], of(&["HEAD", "packed-refs"]));
    assert!(git_dir.join("refs/heads/part/one").starts_with(&watched(&root)[2]));
    git(&tree, &["checkout", "--quiet", "--detach"]);
    assert_eq!(watched(&tree), of(&["worktrees/worktree/HEAD", "packed-refs"]));
}
