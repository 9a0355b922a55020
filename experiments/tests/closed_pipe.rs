//! A reader that closes the pipe (`lightwait-experiments list | head -1`) causes no complaint.

use std::process::Command;

#[test]
fn a_closed_pipe_ends_the_program_without_a_word() {
    for id in ["list", "a-fig11"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait-experiments"));
        let output = program.arg(id).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{id}");
        assert_eq!(output.status.code(), Some(128 + 13), "{id}: as of SIGPIPE");
    }
}
