//! Writes a story as it is generated, leaves it after three sentences, and says what it was made of.
//!
//! `cargo run --release --example streaming`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io::Write;

use rsgen::{GenerationConfig, GenerationOutput, Generator};

fn main() -> rsgen::Result<()> {
    let output = three_sentences("Once upon a time")?;
    let row = &output.rows[0].generated;
    println!("\n{} tokens, ended because: {}", row.token_ids.len(), row.finish_reason);
    Ok(())
}

fn three_sentences(prompt: &str) -> rsgen::Result<GenerationOutput> {
    let generator = Generator::bundled()?;
    let config = GenerationConfig::new().do_sample(true).temperature(0.8).seed(1);
    let mut stream = generator.stream(prompt, &config)?;
    print!("{prompt}");
    let mut sentences = 0;
    for token in stream.by_ref() {
        let token = token?;
        print!("{}", token.text);
        // A terminal shows whole lines only, unless it is told to show what there is.
        let _ = std::io::stdout().flush();
        sentences += token.text.matches('.').count();
        if sentences >= 3 {
            break;
        }
    }
    // Dropping the stream would end the work too; closing it also gives what there is so far.
    stream.close();
    let output = stream.output().cloned();
    output.ok_or_else(|| rsgen::Error::internal("a closed stream has an output"))
}

#[test]
fn the_story_is_left_after_three_sentences() {
    let output = three_sentences("Once upon a time").unwrap();
    assert_eq!(output.text().matches('.').count(), 3, "{output}");
    assert_eq!(output.rows[0].generated.finish_reason, rsgen::FinishReason::Cancelled);
    main().unwrap();
}
