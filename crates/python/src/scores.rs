//! The methods `forward` and `score` of `Generator`.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use super::arrays::array;
use super::errors::guarded;
use super::field_values::count;
use super::generator::Generator;
use super::progress::ListProgress;
use super::prompts;
use super::signals::interruptible;
use super::{kept_cache, layer_states, results};
use rsgen::generator::{Prompt, Prompts};
use rsgen_core::error::Error;

#[guarded]
#[pymethods]
impl Generator {
    /// Returns the model's logits after each token, and what its layers compute.
    ///
    /// Args:
    ///     ids (Ids | Sequence[Ids]): Token ids as a sequence, which is a batch of one, several
    ///         sequences of one length, or a two-dimensional array.
    ///     output_hidden_states (bool): Returns the states before each layer and after the last as well.
    ///     output_attentions (bool): Returns the attention weights of each layer as well.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     NDArray[np.float32] | ModelOutput: The logits, `[batch, seq, vocab_size]`; in an object
    ///         with what else was asked for.
    ///
    /// Raises:
    ///     InputError: The lengths differ, or an id is not in the vocabulary.
    ///
    /// Example:
    ///     >>> logits = gen.forward(gen.tokenizer.encode("Once upon a"))
    ///     >>> gen.tokenizer.decode(logits[0, -1].argmax())  # the most probable next token
    #[pyo3(signature = (ids, *, output_hidden_states=false, output_attentions=false, adapter=None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        output_hidden_states: bool,
        output_attentions: bool,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sequences = prompts::sequences(ids)?;
        let inner = self.adapted(py, adapter)?;
        let (logits, states) = interruptible(py, |interrupted| {
            inner.forward_states(&sequences, output_hidden_states, output_attentions, interrupted)
        })?;
        let (rows, len) = (sequences.len(), sequences.first().map_or(0, Vec::len));
        let logits = array(py, (rows, len, logits.len() / (rows * len).max(1)), logits)?;
        if !output_hidden_states && !output_attentions {
            return Ok(logits);
        }
        let [hidden_states, attentions] = layer_states::of_texts(py, &states)?;
        results::made(py, "ModelOutput", (logits, hidden_states, attentions))
    }

    /// Returns the log-probability of each token of a text given those before it.
    ///
    /// The texts of a list are computed together.
    ///
    /// Args:
    ///     text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of
    ///         them.
    ///     target (str | Ids | Sequence[str] | Sequence[Ids] | None): For a model with an encoder, what
    ///         is scored: `text` is its source then. A list holds one for each source.
    ///     cache (KeptCache | Sequence[KeptCache] | None): What the texts continue, one for all or one for
    ///         each: it is not computed again, and only the tokens after it are scored. Texts are encoded
    ///         without special tokens then.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///     top_logprobs (int | None): The number of most probable tokens to return for each token;
    ///         0 returns the ranks alone.
    ///     progress (bool | Callable[[int, int], object] | None): True shows a progress bar. A
    ///         function is called with the number of texts done, and of all.
    ///
    /// Returns:
    ///     NDArray[np.float32] | list[NDArray[np.float32]] | TokenScores | list[TokenScores]: Log-probabilities
    ///         in nats, `[tokens]`, and with `top_logprobs` more about each token; a list for a
    ///         list. The first is 0, because nothing predicts the first token; not of a `target`,
    ///         whose first token follows the start token of the decoder, nor of what follows a `cache`.
    ///
    /// Raises:
    ///     InputError: A text is longer than the model's context.
    ///
    /// Example:
    ///     >>> gen.score("Once upon a time").sum()
    ///     >>> gen.score(["One day", "Tom had"], top_logprobs=5)[0].ranks
    ///     >>> story = gen.prefill("Once upon a time, there was a")
    ///     >>> [logprobs.sum() for logprobs in gen.score([" girl", " dog"], cache=story)]
    #[pyo3(signature = (text, target=None, *, cache=None, adapter=None, top_logprobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn score<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyAny>,
        target: Option<&Bound<'py, PyAny>>,
        cache: Option<&Bound<'py, PyAny>>,
        adapter: Option<&Bound<'_, PyAny>>,
        top_logprobs: Option<&Bound<'py, PyAny>>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let top_logprobs = top_logprobs.map(|given| count(given, "top_logprobs")).transpose()?;
        let (texts, is_list) = texts(text, "text")?;
        let targets = target.map(|target| self::texts(target, "target")).transpose()?;
        let caches = cache.map(|cache| kept_cache::several(cache, "cache")).transpose()?.unwrap_or_default();
        if targets.is_some() && !caches.is_empty() {
            return Err(config_error!(
                py,
                "`cache` holds what a text continues, and a `target` follows its source; leave one of them out"
            ));
        }
        if let Some((targets, _)) = &targets
            && targets.len() != texts.len()
        {
            return Err(input_error!(
                py,
                "`target` must hold one target for each of the {} sources, got {}",
                texts.len(),
                targets.len()
            ));
        }
        let progress = ListProgress::new(progress, texts.len())?;
        let generator = self.adapted(py, adapter)?;
        let mut all = Vec::with_capacity(texts.len());
        let scored = interruptible(py, |interrupted| {
            let mut done = |index, scores: rsgen_core::error::Result<_>| {
                let named = |error: Error| if is_list { error.of_prompt("text", index) } else { error };
                all.push(scores.map_err(named)?);
                progress.step()
            };
            let count = top_logprobs.unwrap_or(0);
            match targets {
                None if caches.is_empty() => {
                    generator.score_texts(texts.into_iter().map(Ok), count, interrupted, &mut done)
                }
                None => {
                    let texts = texts.into_iter().map(Ok).collect();
                    generator.score_after(&caches, texts, count, interrupted, &mut done)
                }
                Some((targets, _)) => {
                    let pairs = texts.into_iter().zip(targets).map(Ok);
                    generator.score_targets(pairs, count, interrupted, &mut done)
                }
            }
        });
        progress.outcome(py, scored)?;
        let mut all = all.into_iter().map(|scores| match top_logprobs {
            Some(_) => results::token_scores(py, &scores),
            None => array(py, scores.len(), scores.iter().map(|score| score.logprob).collect()),
        });
        match (is_list, all.next()) {
            (false, Some(one)) => one,
            (_, first) => first.into_iter().chain(all).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py),
        }
    }
}

/// A text or several, and whether they are a list.
pub(super) fn texts(given: &Bound<'_, PyAny>, name: &str) -> PyResult<(Vec<Prompt>, bool)> {
    prompts::not_empty(given, name)?;
    match prompts::prompts(given, None)? {
        Prompts::One(text) => Ok((vec![text], false)),
        Prompts::List(texts) => Ok((texts, true)),
        Prompts::Batch(_) => Err(input_error!(
            given.py(),
            "`{name}` must have one dimension, got an array of two; give a list of its rows"
        )),
    }
}
