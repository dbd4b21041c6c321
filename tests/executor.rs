//! The tests of the extension's executor. The extension itself is a library for Python, which no test in Rust can load.

#[path = "../crates/python/src/executor.rs"]
#[allow(dead_code, unreachable_pub, reason = "code that only the extension uses")]
mod executor;
