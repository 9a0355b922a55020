//! The project checks.
fn main() {}
