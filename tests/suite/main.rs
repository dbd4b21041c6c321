//! Tests through the public doors of the crate, in one program, since each program links the whole crate. A test that needs
//! a process of its own is a file of its own beside this folder.
#![expect(clippy::unwrap_used, reason = "tests")]

mod architecture;
mod bad_input;
mod cancel;
mod chat_limits;
mod chat_messages;
mod chat_templates;
mod embedding;
mod engine;
mod forward;
mod fuzz_corpus;
mod golden;
mod golden_support;
mod invariance;
mod listed_differences;
mod rust_source;
mod sse_service;
mod strategies;
mod support;
mod thread_pool;
