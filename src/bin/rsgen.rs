//! The `rsgen` command.
fn main() {}
