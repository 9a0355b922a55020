//! Fuzz targets: functions from any bytes to nothing, which panic when something is wrong.
//!
//! - [`wire()`](wire::run): every parser, on arbitrary bytes. A packet that parses and can be
//!   emitted must parse to the same packet again.
//! - [`host()`](host::run): sequences of frames, calls and lapses of time on two hosts, with
//!   invariants that hold after each step.
//!
//! The program `lightwait-fuzz` drives them: `cargo run -p lightwait-fuzz --release -- host
//! --seconds 60`. The corpora are under `fuzz/corpus/`.
#![forbid(unsafe_code)]

pub mod host;
pub mod seal;
pub mod source;
pub mod wire;

/// A fuzz target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every parser.
    Wire,
    /// Two hosts.
    Host,
}

impl Target {
    /// Both.
    pub const ALL: [Target; 2] = [Target::Wire, Target::Host];

    /// Its name on the command line, and of its corpus directory.
    pub fn name(self) -> &'static str {
        match self {
            Target::Wire => "wire",
            Target::Host => "host",
        }
    }

    /// Runs it on one input; panics when something is wrong. With `trace`, prints each step.
    pub fn run(self, input: &[u8], trace: bool) {
        match self {
            Target::Wire => wire::run(input, trace),
            Target::Host => host::run(input, trace),
        }
    }
}
