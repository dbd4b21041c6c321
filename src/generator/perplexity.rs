//! The perplexity of texts of any length, in windows.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::{Generator, Prompt};
use crate::engine::{Interrupt, TokenScore};
use rsgen_core::{Error, Result, refuse_if};

impl Generator {
    /// The perplexity of texts together: e to the mean of their tokens' negative log-probabilities.
    ///
    /// A text that is longer than `window` tokens (the model's context if `None`) is cut into windows that begin every
    /// `stride` tokens (half a window if `None`), and each token counts in the first window that has it. A smaller
    /// stride gives each token more of the text before it, and takes longer. The sums are those of
    /// "Perplexity of fixed-length models" in the documentation of transformers, whose mean gives each window the weight of
    /// one token less than it has.
    ///
    /// # Errors
    /// `Config` when `window` is not from 2 to the model's context, or `stride` not from 1 to `window`; `Input` when no
    /// text has two tokens; `Cancelled` when interrupted.
    pub fn perplexity(
        &self,
        texts: impl IntoIterator<Item = impl Into<Prompt>>,
        window: Option<usize>,
        stride: Option<NonZeroUsize>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<f64> {
        let context = self.config().context_len();
        let window = window.unwrap_or(context);
        refuse_if(!(2..=context).contains(&window), "window", || {
            format!("must be from 2 to the model's context ({context}), but is {window}")
        })?;
        let stride = stride.map_or(window.div_ceil(2), NonZeroUsize::get);
        refuse_if(stride > window, "stride", || {
            format!("must be at most the window ({window}), so that no token is left out, but is {stride}")
        })?;
        let (mut parts, mut counted) = (Vec::new(), Vec::new());
        let texts: Vec<Prompt> = texts.into_iter().map(Into::into).collect();
        let are_many = texts.len() > 1;
        let named =
            |index: usize, error: Error| if are_many { error.of_prompt("text", index) } else { error };
        for (index, text) in texts.into_iter().enumerate() {
            let token_ids = match text {
                Prompt::Text(text) => self.tokenizer()?.encode_interruptible(&text, true, interrupted),
                other => self.encode_text(other, true, interrupted),
            };
            let token_ids = token_ids.map_err(|error| named(index, error))?;
            for (part, count) in windows(token_ids.len(), window, stride) {
                parts.push(Ok(Prompt::Ids(token_ids[part].to_vec())));
                counted.push((index, count));
            }
        }
        let (mut nll, mut num_tokens) = (0.0, 0_usize);
        let mut done = |index: usize, scores: Result<Vec<TokenScore>>| {
            let (text, count): (usize, usize) = counted[index];
            let scores = scores.map_err(|error| named(text, error))?;
            let scored = &scores[1..];
            let own = &scored[scored.len() - count.min(scored.len())..];
            let sum: f64 = own.iter().map(|score| -f64::from(score.logprob)).sum();
            let weight = count - 1;
            nll += if own.is_empty() { 0.0 } else { sum / own.len() as f64 * weight as f64 };
            num_tokens += weight;
            Ok(())
        };
        self.score_texts(parts, 0, interrupted, &mut done)?;
        if num_tokens == 0 {
            return Err(Error::input(
                "a text must have at least two tokens to have a perplexity, got none that has",
            ));
        }
        Ok((nll / num_tokens as f64).exp())
    }
}

/// The windows of so many tokens, and how many at the end of each are in no earlier one.
fn windows(len: usize, window: usize, stride: usize) -> Vec<(Range<usize>, usize)> {
    let (mut windows, mut seen) = (Vec::new(), 0);
    for begin in (0..len).step_by(stride) {
        let end = len.min(begin + window);
        windows.push((begin..end, end - seen));
        seen = end;
        if end == len {
            break;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::windows;

    #[test]
    fn each_token_counts_in_the_first_window_that_has_it() {
        assert_eq!(windows(10, 4, 2), [(0..4, 4), (2..6, 2), (4..8, 2), (6..10, 2)]);
        assert_eq!(windows(7, 4, 4), [(0..4, 4), (4..7, 3)]);
        assert_eq!(windows(3, 4, 1), [(0..3, 3)]);
        assert!(windows(0, 4, 1).is_empty());
    }
}
