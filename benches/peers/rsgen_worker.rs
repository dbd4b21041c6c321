//! rsgen as a worker of the peer benchmark, and the plain read that it is held against.
//!
//! `cargo bench --bench rsgen_worker -- FOLDER THREADS`, then one JSON request per line: `{"prompt": [ids]}` decodes,
//! `{"read": true}` reads as many bytes as the model's matrices take.

use std::io::{BufRead, Write};
use std::time::Instant;

use rsgen::generation::OneOrMany;
use rsgen::kernels::read_all;
use rsgen::{GenerationConfig, Generator, GeneratorOptions, TokenId};
use serde_json::{Value, json};

const NEW_TOKENS: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [folder, threads] = &arguments[..] else {
        // `cargo test --benches` runs this without arguments: nothing to measure.
        return Ok(());
    };
    let begin = Instant::now();
    let options = GeneratorOptions { num_threads: Some(threads.parse()?), ..GeneratorOptions::default() };
    let generator = Generator::open_with(folder, &options)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({"load_seconds": begin.elapsed().as_secs_f64()}))?;

    let engine = generator.engine();
    // An untied embedding is looked up, not read.
    let values = vec![1.0f32; engine.model().matrix_bytes() / 4];
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = if let Some(prompt) = request["prompt"].as_array() {
            let prompt: Vec<TokenId> =
                prompt.iter().filter_map(Value::as_u64).map(|id| TokenId(id as u32)).collect();
            let begin = Instant::now();
            generate(&generator, &prompt, 1)?;
            let middle = Instant::now();
            let tokens = generate(&generator, &prompt, 1 + NEW_TOKENS)?;
            let seconds = middle.elapsed().as_secs_f64() - (middle - begin).as_secs_f64();
            json!({"seconds": seconds / NEW_TOKENS as f64, "tokens": tokens})
        } else {
            let begin = Instant::now();
            std::hint::black_box(read_all(engine.workers(), &values));
            json!({"seconds": begin.elapsed().as_secs_f64(), "bytes": 4 * values.len()})
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// Greedy, with the end of the sequence disabled.
fn generate(generator: &Generator, prompt: &[TokenId], new_tokens: usize) -> rsgen::Result<Vec<u32>> {
    let mut config = GenerationConfig::new().max_new_tokens(new_tokens);
    config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
    let output = generator.greedy_search(prompt, &config)?;
    Ok(output.token_ids().iter().map(|token| token.0).collect())
}
