//! Whether lwIP is here: the crate that calls it has looked.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-check-cfg=cfg(lwip)");
    if std::env::var_os("DEP_LWIP_HERE").is_some() {
        println!("cargo::rustc-cfg=lwip");
    }
}
