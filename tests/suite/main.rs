//! Tests of the crate's public interface, in one binary, since each binary links the whole crate. A test that needs
//! its own process is a separate file beside this folder.
#![expect(clippy::unwrap_used, reason = "tests")]

mod adapters;
mod architecture;
mod assistant;
mod bad_input;
mod blocks;
mod cancel;
mod chat_limits;
mod chat_messages;
mod chat_templates;
mod continuous;
mod embedding;
mod encoders;
mod engine;
mod families;
mod family_states;
mod forward;
mod gguf;
mod gguf_t5;
mod gguf_tokenizers;
mod gguf_written;
mod golden;
mod golden_support;
mod healing;
mod in_memory;
mod inputs_embeds;
mod int8_arithmetic;
mod invariance;
mod kept_cache;
mod layer_states;
mod listed_differences;
mod loaded_adapters;
mod memory;
mod packed;
mod prefix_caching;
mod quantized;
mod rust_source;
mod scores;
#[cfg(feature = "serve")]
mod service;
mod sources;
mod strategies;
mod streaming_llm;
mod support;
mod tensor_groups;
mod thread_pool;
mod weight_files;
