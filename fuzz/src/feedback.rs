//! The targets in the form that libFuzzer needs. `lightwait-fuzz` builds this with counters and
//! runs it; an environment variable names the target.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use lightwait_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("LIGHTWAIT_FUZZ_TARGET").unwrap_or_default();
    let target = Target::ALL.into_iter().find(|target| target.name() == name);
    target.expect("LIGHTWAIT_FUZZ_TARGET names a target")
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    TARGET.run(input, false);
});
