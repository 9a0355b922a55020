//! Builds the applications that run on lwIP, if its header files are here (Debian: liblwip-dev).
#![forbid(unsafe_code)]

use std::path::Path;

/// Debian's directory of the header files.
const INCLUDE: &str = "/usr/include/lwip";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(lwip)");
    println!("cargo::rerun-if-changed=src/applications.c");
    println!("cargo::rerun-if-changed=src/port.c");
    println!("cargo::rerun-if-changed={INCLUDE}");
    if !Path::new(INCLUDE).join("lwipopts.h").exists() {
        return;
    }
    println!("cargo::rustc-cfg=lwip");
    println!("cargo::metadata=here=yes");
    cc::Build::new()
        .file("src/applications.c")
        .file("src/port.c")
        .include(INCLUDE)
        .opt_level(3)
        .cargo_metadata(false)
        .compile("lightwait_lwip");
    // Link all of it: else the library's own functions would be used instead of ours.
    println!("cargo::rustc-link-search=native={}", std::env::var("OUT_DIR").unwrap_or_default());
    println!("cargo::rustc-link-lib=static:+whole-archive=lightwait_lwip");
    println!("cargo::rustc-link-lib=lwip");
}
