//! The program as a user meets it: bad command lines, failures, help.

use std::net::TcpListener;
use std::process::{Command, Output};

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
        (
            &["serve", "--set", "time_wait.length=30"],
            "--set time_wait.length=30: the value must be a time",
        ),
        (&["load"], "lightwait load --help"),
        (&["wan", "lw0"], "lightwait wan --help"),
        (&["wan", "lw0", "lw0"], "A and B are both `lw0`"),
        (&["wan", "lw0", "lw1", "--delay", "30"], "such as 30ms"),
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
    for arguments in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait"));
        let output = program.args(arguments).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
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
