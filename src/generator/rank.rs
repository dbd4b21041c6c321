//! Candidates after a context: which of them the model finds most probable.

use super::{Generator, Prompt};
use crate::engine::{Interrupt, TokenScore};
use rsgen_core::{Error, Result, TokenId};

/// What the log-probabilities of a candidate's tokens are summed up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Normalization {
    /// Their sum: the log-probability of the candidate.
    #[default]
    Sum,
    /// Their mean.
    Mean,
    /// Their sum over the bytes of the candidate's text, which does not depend on the tokenizer.
    Bytes,
}

/// A candidate of [`Generator::rank`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RankedCandidate {
    /// Its place among the candidates that were given.
    pub index: usize,
    /// What it is ranked by.
    pub score: f64,
    /// The log-probability of its tokens given the context, in nats.
    pub logprob: f64,
    /// Its number of tokens.
    pub num_tokens: usize,
}

/// The tokens of a context that candidates follow.
struct Context {
    ids: Vec<TokenId>,
    /// How many of them are before a candidate as text, which has the white space at their end.
    kept: usize,
}

impl Generator {
    /// Ranks candidates by how probable the model finds them after a context, the most probable first; equal ones in
    /// their order. The context is computed once. In a model with an encoder it is the source.
    ///
    /// A candidate as text continues the text of the context, as lm-eval has it: white space at the end of the context
    /// belongs to the candidate, and the candidate's tokens are those of both texts together after as many as the
    /// context alone has.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// use rsgen::generator::Normalization;
    ///
    /// let generator = rsgen::Generator::bundled()?;
    /// let ranked = generator.rank("Once upon a", [" time", " banana"], Normalization::Sum, &mut || false)?;
    /// assert_eq!(ranked[0].index, 0);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Input` when the context or a candidate has no token, or both do not fit the model's context; `Cancelled` when
    /// interrupted.
    pub fn rank(
        &self,
        context: impl Into<Prompt>,
        candidates: impl IntoIterator<Item = impl Into<Prompt>>,
        normalization: Normalization,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<RankedCandidate>> {
        let context = context.into();
        let candidates: Vec<Prompt> = candidates.into_iter().map(Into::into).collect();
        let mut ranked = Vec::with_capacity(candidates.len());
        // The scores of a candidate come after those of `first` tokens.
        let mut rank = |index: usize, scores: Result<Vec<TokenScore>>, first: usize| {
            let scores = scores.map_err(|error| error.of_prompt("candidate", index))?;
            let own = &scores[first..];
            let logprob: f64 = own.iter().map(|score| f64::from(score.logprob)).sum();
            let score = match normalization {
                Normalization::Sum => logprob,
                Normalization::Mean => logprob / own.len() as f64,
                Normalization::Bytes => logprob / self.num_bytes(&candidates[index])?.max(1) as f64,
            };
            ranked.push(RankedCandidate { index, score, logprob, num_tokens: own.len() });
            Ok(())
        };
        if self.has_encoder() {
            let pairs = candidates.iter().map(|candidate| Ok((context.clone(), candidate.clone())));
            self.score_targets(pairs, 0, interrupted, &mut |index, scores| rank(index, scores, 0))?;
        } else {
            let of_context = self.context(&context, interrupted)?;
            let (mut texts, mut firsts) = (Vec::new(), Vec::new());
            for (index, candidate) in candidates.iter().enumerate() {
                let continued = self.continued(&context, &of_context, candidate, interrupted);
                let (ids, first) = continued.map_err(|error| error.of_prompt("candidate", index))?;
                texts.push(Ok(Prompt::Ids(ids)));
                firsts.push(first);
            }
            self.score_texts(texts, 0, interrupted, &mut |index, scores| rank(index, scores, firsts[index]))?;
        }
        // Stable: equal ones stay in their order.
        ranked.sort_by(|one, other| other.score.total_cmp(&one.score));
        Ok(ranked)
    }

    /// The probabilities of labels after a context, in their order: the softmax of what [`Generator::rank`] ranks them
    /// by. With a `content_free` context, such as "N/A" in place of the text, they are divided by their probabilities
    /// there and add up to 1 again: the contextual calibration of Zhao et al., arXiv:2102.09690.
    ///
    /// # Errors
    /// As for [`Generator::rank`]; `Input` without a label.
    pub fn classify(
        &self,
        context: impl Into<Prompt>,
        labels: &[Prompt],
        content_free: Option<Prompt>,
        normalization: Normalization,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<f64>> {
        if labels.is_empty() {
            return Err(Error::input("the list of labels is empty; give at least one"));
        }
        let mut scores = |context: Prompt| -> Result<Vec<f64>> {
            let ranked = self.rank(context, labels.iter().cloned(), normalization, interrupted)?;
            let mut scores = vec![0.0; labels.len()];
            for candidate in ranked {
                scores[candidate.index] = candidate.score;
            }
            Ok(scores)
        };
        let mut of_labels = scores(context.into())?;
        if let Some(content_free) = content_free {
            for (score, base) in of_labels.iter_mut().zip(scores(content_free)?) {
                *score -= base;
            }
        }
        let most = of_labels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = of_labels.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        Ok(weights.into_iter().map(|weight| weight / sum).collect())
    }

    fn context(&self, context: &Prompt, interrupted: &mut Interrupt<'_>) -> Result<Context> {
        let ids = self.encode_text(context.clone(), true, interrupted)?;
        let kept = match context {
            Prompt::Text(text) if text.trim_end() != text => {
                self.encode_text(text.trim_end().into(), true, interrupted)?.len()
            }
            _ => ids.len(),
        };
        Ok(Context { ids, kept })
    }

    /// The tokens of a context and a candidate after it, and the number of those before the candidate's.
    fn continued(
        &self,
        context: &Prompt,
        of_context: &Context,
        candidate: &Prompt,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(Vec<TokenId>, usize)> {
        let (ids, first) = if let (Prompt::Text(context), Prompt::Text(candidate)) = (context, candidate) {
            let whole = format!("{context}{candidate}");
            (self.encode_text(whole.into(), true, interrupted)?, of_context.kept)
        } else {
            let own = self.encode_text(candidate.clone(), false, interrupted)?;
            ([&of_context.ids[..], &own].concat(), of_context.ids.len())
        };
        if first == 0 {
            return Err(Error::input(
                "the context must have at least one token, got none; begin with the bos token",
            ));
        }
        if ids.len() <= first {
            return Err(Error::input("it adds no token to the context; give a candidate that is not empty"));
        }
        Ok((ids, first))
    }

    /// The bytes of a candidate's text.
    fn num_bytes(&self, candidate: &Prompt) -> Result<usize> {
        match candidate {
            Prompt::Text(text) => Ok(text.len()),
            Prompt::Ids(ids) => {
                self.tokenizer().map_or(Ok(0), |tokenizer| Ok(tokenizer.decode(ids, true)?.len()))
            }
            Prompt::Embeddings { .. } => Ok(0),
        }
    }
}
