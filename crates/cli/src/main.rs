//! The program `lightwait`.
fn main() {}
