//! A reader that closes the pipe (`lightwait-bench … | head -1`) ends the program without a
//! complaint.

use std::process::Command;

#[test]
fn a_closed_pipe_ends_the_program_without_a_word() {
    for arguments in [
        &["memory", "--count=1000"][..],
        &["memory", "--count=1000", "--json"],
        &["connections", "--count=100"],
        &["time-wait", "--count=10000"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait-bench"));
        let output = program.args(arguments).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(128 + 13), "{arguments:?}: as of SIGPIPE");
    }
}
