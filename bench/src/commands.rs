//! The benches on the command line: what each is told, and how it prints what it found. Each
//! `run` returns false if something that was asked for could not be measured.

pub(crate) mod connections;
pub(crate) mod timers;
