//! Sets `lwip` if the crate that calls lwIP has found it.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-check-cfg=cfg(lwip)");
    if std::env::var_os("DEP_LWIP_HERE").is_some() {
        println!("cargo::rustc-cfg=lwip");
    }
}
