//! What programs print: results on the standard output.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// The status of a program that the signal of a closed pipe ends, as shells tell it: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// Prints to the standard output. If nobody reads it any more (`… | head`) the program ends without
/// a word, as others do that no longer have anyone to tell.
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

/// Prints what is formatted, as `print!` does, by [`output::print`](crate::output::print).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// The same, and ends the line.
#[macro_export]
macro_rules! say_line {
    () => { $crate::say!("\n") };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
