//! The tokens that a beam search emits before its end: the beginning of a prompt's best row that no later
//! step can change.

use rsgen_core::{FinishReason, Result, TokenId};

use super::super::super::output::SequenceScores;
use super::super::{SearchStep, TokenEvent};
use super::trace::Trace;

/// A sequence that may become the best row of its prompt, or the beginning of it.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    /// The generated tokens.
    pub(super) tokens: &'a [TokenId],
    pub(super) trace: &'a Trace,
    /// The scores of all sequences.
    pub(super) recorded: &'a [SequenceScores],
}

/// How many tokens of a row have been emitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Emitted(usize);

impl Path<'_> {
    /// An end-of-sequence token that was appended without being chosen has neither log-probability nor score.
    fn event(&self, row: usize, index: usize) -> Option<TokenEvent> {
        let (logprob, score) =
            self.trace.get(index).map_or((f32::NAN, f32::NAN), |token| (token.logprob, token.score));
        let token = *self.tokens.get(index)?;
        Some(TokenEvent { row, token, logprob, score, finish: None, top_logprobs: Vec::new() })
    }

    /// The event with the alternatives of its token.
    fn with_alternatives(&self, mut event: TokenEvent, index: usize) -> Result<TokenEvent> {
        let scores = self.trace.get(index).and_then(|token| self.recorded.get(token.sequence as usize));
        if let Some(scores) = scores {
            event.top_logprobs = scores.alternatives(Some(index))?;
        }
        Ok(event)
    }
}

impl Emitted {
    pub(super) fn len(self) -> usize {
        self.0
    }

    /// Emits the further tokens on which all `paths` agree. The best row must continue one of them, and end
    /// with a token that is not in it. Compares each token of a path once, and one more in each step.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for the alternatives of the tokens.
    pub(super) fn agree(&mut self, row: usize, paths: &[Path<'_>], step: &mut SearchStep) -> Result<()> {
        let Some((first, others)) = paths.split_first() else { return Ok(()) };
        while let Some(event) = first.event(row, self.0)
            && others.iter().all(|path| path.event(row, self.0).as_ref() == Some(&event))
        {
            step.events.push(first.with_alternatives(event, self.0)?);
            self.0 += 1;
        }
        Ok(())
    }

    /// Emits the rest of a row, which has ended.
    ///
    /// # Errors
    /// As for [`Emitted::agree`].
    pub(super) fn end(
        self,
        row: usize,
        path: Path<'_>,
        finish: FinishReason,
        step: &mut SearchStep,
    ) -> Result<()> {
        let first = step.events.len();
        for index in self.0..path.tokens.len() {
            if let Some(event) = path.event(row, index) {
                step.events.push(path.with_alternatives(event, index)?);
            }
        }
        if let Some(last) = step.events[first..].last_mut() {
            last.finish = Some(finish);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(scores: &[f32]) -> Trace {
        scores.iter().fold(Trace::default(), |trace, &score| trace.with(0, score, score))
    }

    #[test]
    fn tokens_are_emitted_once_all_paths_agree_on_them_and_their_scores() {
        let tokens = [4, 5, 6].map(TokenId);
        let other = [4, 5, 7].map(TokenId);
        let (same, scored) = (trace(&[-1.0, -2.0, -3.0]), trace(&[-1.0, -2.5, -3.0]));
        let mut emitted = Emitted::default();
        let mut agree = |paths: &[(&[TokenId], &Trace)]| {
            let mut step = SearchStep::default();
            let path = |&(tokens, trace)| Path { tokens, trace, recorded: &[] };
            emitted.agree(2, &paths.iter().map(path).collect::<Vec<_>>(), &mut step).unwrap();
            step.events.iter().map(|event| (event.row, event.token.0, event.score)).collect::<Vec<_>>()
        };
        assert_eq!(agree(&[(&tokens, &same), (&[], &same)]), []);
        assert_eq!(agree(&[(&tokens, &same), (&other, &scored)]), [(2, 4, -1.0)]);
        assert_eq!(agree(&[(&tokens, &same), (&other, &same)]), [(2, 5, -2.0)]);
        assert_eq!(agree(&[(&tokens, &same), (&other, &same)]), []);

        let mut step = SearchStep::default();
        let path = Path { tokens: &tokens, trace: &trace(&[-1.0, -2.0]), recorded: &[] };
        emitted.end(2, path, FinishReason::Eos, &mut step).unwrap();
        let [TokenEvent { token: TokenId(6), logprob, score, finish: Some(FinishReason::Eos), .. }] =
            step.events[..]
        else {
            panic!("{step:?}")
        };
        assert!(logprob.is_nan() && score.is_nan());
    }
}
