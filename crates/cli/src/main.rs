//! The `sherman` command.
fn main() {}
