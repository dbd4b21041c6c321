//! rsgen as a worker of the peer benchmark, and the plain read that it is held against.
//!
//! `cargo bench --bench rsgen_worker -- FOLDER THREADS [COMPUTE_DTYPE]`, then one JSON request per line:
//! `{"prompts": [[ids]], "new_tokens": n, "num_beams": n}` generates, `{"read": true}` reads as many bytes as the model's
//! matrices take.

use std::io::{BufRead, Write};
use std::time::Instant;

use rsgen::generation::OneOrMany;
use rsgen::generator::ComputeDtype;
use rsgen::kernels::read_all;
use rsgen::{GenerationConfig, Generator, GeneratorOptions, TokenId};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [folder, threads, rest @ ..] = &arguments[..] else {
        // `cargo test --benches` runs this without arguments: nothing to measure.
        return Ok(());
    };
    let begin = Instant::now();
    let options = options(threads.parse()?, rest.first().map(String::as_str))?;
    let generator = Generator::open_with(folder, &options)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({"load_seconds": begin.elapsed().as_secs_f64()}))?;

    let engine = generator.engine();
    // An untied embedding is looked up, not read.
    let values = vec![1.0f32; engine.model().matrix_bytes() / 4];
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = if request["prompts"].is_array() {
            generate(&generator, &request)?
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

fn options(num_threads: usize, compute_dtype: Option<&str>) -> Result<GeneratorOptions, String> {
    let compute_dtype = match compute_dtype {
        None | Some("float32") => ComputeDtype::F32,
        Some("bfloat16") => ComputeDtype::Bf16,
        Some(other) => return Err(format!("no such arithmetic: {other}")),
    };
    Ok(GeneratorOptions { num_threads: Some(num_threads), compute_dtype, ..GeneratorOptions::default() })
}

/// Greedy or with beams, with the end of the sequence disabled; the time is that of the whole call.
fn generate(generator: &Generator, request: &Value) -> Result<Value, Box<dyn std::error::Error>> {
    let number = |name: &str| request[name].as_u64().map(|number| number as usize);
    let prompts: Vec<Vec<TokenId>> = serde_json::from_value::<Vec<Vec<u32>>>(request["prompts"].clone())?
        .into_iter()
        .map(|prompt| prompt.into_iter().map(TokenId).collect())
        .collect();
    let mut config = GenerationConfig::new().max_new_tokens(number("new_tokens").unwrap_or(1));
    config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
    let beams = number("num_beams").filter(|&beams| beams > 1);
    if let Some(beams) = beams {
        config = config.num_beams(beams);
    }
    let begin = Instant::now();
    let output = generator.generate(prompts, &config)?;
    let seconds = begin.elapsed().as_secs_f64();
    let tokens: Vec<Vec<u32>> =
        output.rows.iter().map(|row| row.generated.token_ids.iter().map(|token| token.0).collect()).collect();
    Ok(json!({"seconds": seconds, "tokens": tokens}))
}
