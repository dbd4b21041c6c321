//! Opens the story model that is built in, or the model named on the command line, and continues a text.
//!
//! `cargo run --release --example quickstart`
//! `cargo run --release --example quickstart -- path/to/llama`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use rsgen::{GenerationConfig, Generator};

fn main() -> rsgen::Result<()> {
    match std::env::args().nth(1) {
        Some(folder) => tell(&Generator::open(folder)?),
        None => tell(&Generator::bundled()?),
    }
}

fn tell(generator: &Generator) -> rsgen::Result<()> {
    let prompt = "Once upon a time";

    // The most likely token at each step.
    let output = generator.greedy_search(prompt, &GenerationConfig::new().max_new_tokens(60))?;
    println!("{prompt}{output}\n");

    // Tokens drawn at random: three variants, the same with each run of this program.
    let config = GenerationConfig::new().top_p(0.9).seed(7).num_return_sequences(3).max_new_tokens(30);
    let output = generator.sample(prompt, &config)?;
    for row in &output.rows {
        println!("{prompt}{} [{}]", row.text.as_deref().unwrap_or_default(), row.generated.finish_reason);
    }

    // Prompts given as a list are computed together, and each gives what it gives alone.
    let prompts = ["The little fox", "One rainy day"];
    let output = generator.generate(prompts.map(String::from).to_vec(), &GenerationConfig::new())?;
    for (prompt, text) in prompts.iter().zip(output.texts()) {
        println!("\n{prompt}{text} …");
    }
    Ok(())
}

#[test]
fn the_example_runs() {
    tell(&Generator::bundled().unwrap()).unwrap();
}
