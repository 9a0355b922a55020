//! The output of results. A closed pipe ends the program silently.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// The exit status after the signal of a closed pipe, in the shells' notation: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// Prints to the standard output. If its reader is gone (`… | head`) the program ends silently,
/// like others.
///
/// # Panics
/// If the output cannot be written for another reason.
pub fn print(text: Arguments<'_>) {
    match stdout().lock().write_fmt(text) {
        Ok(()) => {}
        Err(why) if why.kind() == ErrorKind::BrokenPipe => exit(CLOSED_PIPE),
        Err(why) => panic!("the standard output: {why}"),
    }
}

/// Prints like `print!`, by [`output::print`](crate::output::print).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints and ends the line, like `println!`.
#[macro_export]
macro_rules! say_line {
    () => { $crate::say!("\n") };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
