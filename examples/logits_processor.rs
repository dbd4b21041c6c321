//! Writes a story without a certain letter, by a logits processor that forbids every token with that letter.
//!
//! `cargo run --release --example logits_processor`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use rsgen::generation::{LogitsProcessor, RowContext};
use rsgen::text::Tokenizer;
use rsgen::{GenerationConfig, Generator, TokenId};

/// Forbids tokens whose text has a certain letter. One object serves all rows of a request.
struct WithoutLetter {
    forbidden: Vec<TokenId>,
}

impl WithoutLetter {
    fn new(tokenizer: &Tokenizer, letter: u8) -> Self {
        let has_letter = |token: &TokenId| {
            let bytes = tokenizer.token_bytes(*token).unwrap_or_default();
            bytes.iter().any(|byte| byte.eq_ignore_ascii_case(&letter))
        };
        let ids = 0..u32::try_from(tokenizer.len()).unwrap_or(u32::MAX);
        // The end of the story is a token as well, `</s>`, and stays allowed.
        let forbidden = ids.map(TokenId).filter(|token| has_letter(token) && !tokenizer.is_special(*token));
        Self { forbidden: forbidden.collect() }
    }
}

impl LogitsProcessor for WithoutLetter {
    fn name(&self) -> &'static str {
        "without_letter"
    }

    /// `scores` is `[vocab_size]`; minus infinity makes a token impossible.
    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> rsgen::Result<()> {
        for token in &self.forbidden {
            scores[token.index()] = f32::NEG_INFINITY;
        }
        Ok(())
    }
}

fn main() -> rsgen::Result<()> {
    let prompt = "Once upon a time";
    println!("{prompt}{}", story_without(prompt, b'g')?);
    Ok(())
}

fn story_without(prompt: &str, letter: u8) -> rsgen::Result<String> {
    let generator = Generator::bundled()?;
    let processor = WithoutLetter::new(generator.tokenizer()?, letter);
    let config = GenerationConfig::new().max_new_tokens(80);
    let output = generator.call(prompt).config(&config).processor(Arc::new(processor)).run()?;
    Ok(output.text().to_owned())
}

#[test]
fn the_letter_does_not_occur() {
    let usual = Generator::bundled().unwrap();
    let usual = usual.generate("Once upon a time", &GenerationConfig::new().max_new_tokens(80)).unwrap();
    assert!(usual.text().contains('g'), "the letter would occur: {usual}");
    let story = story_without("Once upon a time", b'g').unwrap();
    assert!(!story.is_empty() && !story.contains(['g', 'G']), "{story}");
    main().unwrap();
}
