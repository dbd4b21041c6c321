//! Scores of texts: the log-probability of each token, given those before it.

use std::cell::RefCell;

use super::kept::Caches;
use super::{Generator, Prompt};
use crate::engine::{EvaluatedText, Interrupt, KeptCache, TokenScore};
use rsgen_core::{Error, Result, refuse_if};

impl Generator {
    /// The log-probability of each token of a text given those before it, in nats; 0 for the first.
    ///
    /// # Errors
    /// When the text cannot be encoded, is empty, or is longer than the context.
    pub fn score(&self, text: impl Into<Prompt>) -> Result<Vec<f32>> {
        let scores = self.token_scores([text], 0)?;
        Ok(scores.into_iter().flatten().map(|score| score.logprob).collect())
    }

    /// The tokens of texts, each with its log-probability, its rank and the `top_logprobs` most probable
    /// tokens at its position, given those before it. Texts are computed together; each gets the same scores
    /// as alone. What texts have in common at their beginning is computed once, in whatever order they come.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// let generator = rsgen::Generator::bundled()?;
    /// let texts = generator.token_scores(["Once upon a time", "Time a upon once"], 3)?;
    /// assert!(texts[0].iter().all(|token| token.rank <= 5));
    /// assert_eq!(texts[1][2].top_logprobs.len(), 3);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Generator::score`], for the first text that cannot be scored; `Config` when the vocabulary
    /// has fewer than `top_logprobs` tokens.
    pub fn token_scores(
        &self,
        texts: impl IntoIterator<Item = impl Into<Prompt>>,
        top_logprobs: usize,
    ) -> Result<Vec<Vec<TokenScore>>> {
        let texts: Vec<Result<Prompt>> = texts.into_iter().map(|text| Ok(text.into())).collect();
        let (many, mut all) = (texts.len() > 1, Vec::with_capacity(texts.len()));
        let mut done = |index, scores: Result<_>| {
            let named = |error: Error| if many { error.of_prompt("text", index) } else { error };
            scores.map(|scores| all.push(scores)).map_err(named)
        };
        self.score_texts(texts, top_logprobs, &mut || false, &mut done)?;
        Ok(all)
    }

    /// [`Generator::token_scores`], until `interrupted` returns true. `done` receives the scores of each
    /// text, or its error, in order and as soon as they are ready; an error that it returns stops the work.
    ///
    /// # Errors
    /// The error of `done`; `Config` when the vocabulary has fewer than `top_logprobs` tokens; `Cancelled`.
    pub fn score_texts(
        &self,
        texts: impl IntoIterator<Item = Result<Prompt>>,
        top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        let begin = |text: Result<Prompt>, _: usize, interrupted: &mut Interrupt<'_>| {
            self.encode_prompt(text?, None, interrupted).map(EvaluatedText::from)
        };
        self.score_encoded(texts, begin, top_logprobs, interrupted, done)
    }

    /// [`Generator::score_texts`] of what follows kept caches, one for all texts or one for each, which is not computed
    /// again: the scores are those of the texts' tokens, the first of which follows the last of the cache. A text is
    /// encoded without special tokens.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// let generator = rsgen::Generator::bundled()?;
    /// let story = generator.prefill("Once upon a time there was a")?;
    /// let mut sums = Vec::new();
    /// let ends = [" girl".into(), " banana".into()].map(Ok);
    /// generator.score_after(&[story], ends.into(), 0, &mut || false, &mut |_, scores| {
    ///     sums.push(scores?.iter().map(|token| token.logprob).sum::<f32>());
    ///     Ok(())
    /// })?;
    /// assert!(sums[0] > sums[1]);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Generator::score_texts`]; `Input` for caches of another generator, or of another number than texts.
    pub fn score_after(
        &self,
        caches: &[KeptCache],
        texts: Vec<Result<Prompt>>,
        top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        let caches = Caches::followed(caches);
        caches.check(self, texts.len(), None)?;
        caches.check_adapters(texts.len(), |_| &self.adapters)?;
        let begin = |text: Result<Prompt>, index: usize, interrupted: &mut Interrupt<'_>| {
            let token_ids = caches.encode(self, index, text?, None, interrupted)?;
            Ok(EvaluatedText { kept: caches.of(index).cloned(), ..token_ids.into() })
        };
        self.score_encoded(texts, begin, top_logprobs, interrupted, done)?;
        caches.renew();
        Ok(())
    }

    /// Scores texts, of which `encode` makes the tokens, with the number of each.
    fn score_encoded(
        &self,
        texts: impl IntoIterator<Item = Result<Prompt>>,
        encode: impl Fn(Result<Prompt>, usize, &mut Interrupt<'_>) -> Result<EvaluatedText>,
        top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        self.check_no_encoder("scoring a text alone", "give its source as well: `score_targets`")?;
        self.check_top_logprobs(top_logprobs)?;
        // Texts are encoded between passes, and both poll.
        let interrupted = RefCell::new(interrupted);
        let mut interrupted_too = || (interrupted.borrow_mut())();
        let texts = texts.into_iter().enumerate().map(|(index, text)| {
            let text = encode(text, index, &mut || (interrupted.borrow_mut())())?;
            let text = EvaluatedText { adapters: self.adapters.clone(), ..text };
            // Nothing follows the last token, so it takes no position.
            let (len, most) = (text.token_ids.len(), self.shared.config.context_len() + 1);
            if len > most {
                return Err(Error::input(format!(
                    "the text must fit the model's context and one token more, {most} tokens, got {len}; shorten it or \
                     score it in parts"
                )));
            }
            Ok(text)
        });
        self.engine().score_texts(texts, top_logprobs, &mut interrupted_too, done)
    }

    /// [`Generator::score_texts`] for models with an encoder: the scores of targets, each given its source.
    /// The decoder's start token has no score. A target as text ends with the tokenizer's special tokens.
    ///
    /// # Errors
    /// As for [`Generator::score_texts`]; `Input` for a model without an encoder.
    pub fn score_targets(
        &self,
        pairs: impl IntoIterator<Item = Result<(Prompt, Prompt)>>,
        top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        self.check_top_logprobs(top_logprobs)?;
        let interrupted = RefCell::new(interrupted);
        let mut interrupted_too = || (interrupted.borrow_mut())();
        let pairs = pairs.into_iter();
        let texts = pairs.map(|pair| self.target(pair?, &mut || (interrupted.borrow_mut())()));
        let mut without_start = |index, scores: Result<Vec<TokenScore>>| {
            done(index, scores.map(|scores| scores.into_iter().skip(1).collect()))
        };
        self.engine().score_texts(texts, top_logprobs, &mut interrupted_too, &mut without_start)
    }

    fn check_top_logprobs(&self, top_logprobs: usize) -> Result<()> {
        let vocab_size = self.engine().model().vocab_size();
        refuse_if(top_logprobs > vocab_size, "top_logprobs", || {
            format!(
                "must be at most the size of the model's vocabulary ({vocab_size}), but is \
                 {top_logprobs}; 5 is usual"
            )
        })
    }
}
