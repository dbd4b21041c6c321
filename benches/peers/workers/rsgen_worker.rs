//! rsgen as a worker of the peer benchmark, and the plain read that it is held against.
//!
//! `cargo bench --bench rsgen_worker -- serve FOLDER THREADS [PRECISION [calls]]`, then one JSON request per line:
//! `{"prompts": [[ids]], "new_tokens": n, "num_beams": n}`. The precision is `float32` for that arithmetic, `file` for the
//! weights of a GGUF file with activations of 8 bits, or a type of weights for bfloat16 arithmetic. The prompts are one call; with `calls`, each has a thread and a call of its own. With `"clients": n` in the
//! request, so many threads send them one by one, each of them a little later than the one before; with
//! `"lookup": n`, prompt lookup drafts up to so many tokens; with `"since_first": 1`, the time counts from the first new token on.
//!
//! `cargo bench --bench rsgen_worker -- pack FOLDER OUT WEIGHTS` writes a model in the packed form.
//!
//! `cargo bench --bench rsgen_worker -- read BYTES THREADS`: every line is a request to read that many bytes.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use rsgen::generation::{AssistantTokensSchedule, OneOrMany};
use rsgen::generator::ComputeDtype;
use rsgen::{GenerationConfig, Generator, GeneratorOptions, TokenId, WeightType};
use rsgen_kernels::{Isa, Workers, read_all};
use serde_json::{Value, json};

/// The time between the first prompts of two clients.
const APART: Duration = Duration::from_millis(20);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let begin = Instant::now();
    match arguments[..] {
        ["serve", folder, threads, ref rest @ ..] => {
            let options = options(threads.parse()?, rest.first().copied())?;
            let generator = Generator::open_with(folder, &options)?;
            let each_alone = rest.get(1) == Some(&"calls");
            let load_seconds = begin.elapsed().as_secs_f64();
            let model = generator.engine().model();
            let ready = json!({
                "load_seconds": load_seconds,
                "weight_bytes": model.weight_bytes(),
                "matrix_bytes": model.matrix_bytes(),
            });
            answer_all(&ready, |request| generate(&generator, request, each_alone))
        }
        ["pack", folder, out, weights] => {
            let options = GeneratorOptions::new().dtype(weights.parse::<WeightType>()?);
            rsgen::pack(folder, out, &options)?;
            Ok(())
        }
        ["read", bytes, threads] => {
            let workers = Workers::new(threads.parse()?, Isa::select()?)?;
            let values = vec![1.0f32; bytes.parse::<usize>()? / 4];
            let ready = json!({"load_seconds": begin.elapsed().as_secs_f64()});
            answer_all(&ready, |_| {
                let begin = Instant::now();
                std::hint::black_box(read_all(&workers, &values));
                Ok(json!({"seconds": begin.elapsed().as_secs_f64()}))
            })
        }
        // `cargo test --benches` runs this without arguments: nothing to measure.
        _ => Ok(()),
    }
}

/// Says how it got ready, then answers each line of standard input.
fn answer_all(ready: &Value, answer: impl Fn(&Value) -> Result<Value, Failure>) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{ready}")?;
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", answer(&serde_json::from_str(&line?)?)?)?;
        out.flush()?;
    }
    Ok(())
}

fn options(num_threads: usize, precision: Option<&str>) -> rsgen::Result<GeneratorOptions> {
    let (compute_dtype, dtype) = match precision {
        None | Some("float32") => (ComputeDtype::F32, None),
        Some("file") => (ComputeDtype::Int8, None),
        Some(weights) => (ComputeDtype::Bf16, Some(weights.parse::<WeightType>()?)),
    };
    Ok(GeneratorOptions::new().num_threads(num_threads).compute_dtype(compute_dtype).dtype(dtype))
}

/// Greedy or with beams, with the end of the sequence disabled; the time is that of the whole run.
fn generate(generator: &Generator, request: &Value, each_alone: bool) -> Result<Value, Failure> {
    let number = |name: &str| request[name].as_u64().map(|number| number as usize);
    let prompts: Vec<Vec<TokenId>> = serde_json::from_value::<Vec<Vec<u32>>>(request["prompts"].clone())?
        .into_iter()
        .map(|prompt| prompt.into_iter().map(TokenId).collect())
        .collect();
    let mut config = GenerationConfig::new().max_new_tokens(number("new_tokens").unwrap_or(1));
    config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
    if let Some(lookup) = number("lookup") {
        config = config
            .prompt_lookup_num_tokens(lookup)
            .num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive);
    }
    let beams = number("num_beams").filter(|&beams| beams > 1);
    if let Some(beams) = beams {
        config = config.num_beams(beams);
    }
    if number("since_first").is_some() {
        return since_first(generator, prompts, &config);
    }
    let begin = Instant::now();
    let tokens = match number("clients") {
        Some(count) => clients(generator, &prompts, &config, count, APART)?,
        None if each_alone => clients(generator, &prompts, &config, prompts.len(), Duration::ZERO)?,
        None => call(generator, prompts, &config)?,
    };
    Ok(json!({"seconds": begin.elapsed().as_secs_f64(), "tokens": tokens}))
}

/// A single prompt, with the time from its first new token on.
fn since_first(
    generator: &Generator,
    prompts: Vec<Vec<TokenId>>,
    config: &GenerationConfig,
) -> Result<Value, Failure> {
    let [prompt] = <[_; 1]>::try_from(prompts).map_err(|_| "`since_first` is for a single prompt")?;
    let mut stream = generator.stream(prompt, config)?;
    let mut tokens = vec![stream.next().ok_or("no token came")??.id.0];
    let begin = Instant::now();
    for token in stream {
        tokens.push(token?.id.0);
    }
    Ok(json!({"seconds": begin.elapsed().as_secs_f64(), "tokens": [tokens]}))
}

/// All prompts in one call.
fn call(
    generator: &Generator,
    prompts: Vec<Vec<TokenId>>,
    config: &GenerationConfig,
) -> rsgen::Result<Vec<Vec<u32>>> {
    let output = generator.generate(prompts, config)?;
    let tokens = output.rows.iter().map(|row| row.generated.token_ids.iter().map(|token| token.0).collect());
    Ok(tokens.collect())
}

/// Threads that send the prompts one by one, the first of each `apart` later than that of the one before.
fn clients(
    generator: &Generator,
    prompts: &[Vec<TokenId>],
    config: &GenerationConfig,
    count: usize,
    apart: Duration,
) -> rsgen::Result<Vec<Vec<u32>>> {
    let client = |number: usize| {
        std::thread::sleep(apart * number as u32);
        let own = prompts.iter().skip(number).step_by(count);
        own.map(|prompt| Ok(call(generator, vec![prompt.clone()], config)?.remove(0))).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || client(number))).collect();
        let mut tokens = vec![Vec::new(); prompts.len()];
        for (number, thread) in threads.into_iter().enumerate() {
            let answers: rsgen::Result<Vec<_>> = thread.join().expect("a call does not panic");
            for (place, answer) in tokens.iter_mut().skip(number).step_by(count).zip(answers?) {
                *place = answer;
            }
        }
        Ok(tokens)
    })
}
