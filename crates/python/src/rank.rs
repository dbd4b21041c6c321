//! The methods `rank`, `classify` and `perplexity` of `Generator`.

use std::num::NonZeroUsize;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::guarded;
use super::field_values::count;
use super::generator::Generator;
use super::results;
use super::scores::texts;
use super::signals::interruptible;
use rsgen::generator::{Normalization, Prompt};

#[guarded]
#[pymethods]
impl Generator {
    /// Ranks candidates by how probable the model finds them after a context.
    ///
    /// The context is computed once. In a model with an encoder it is the source. A candidate as text
    /// continues the text of the context as in lm-eval: white space at the end of the context belongs to
    /// the candidate.
    ///
    /// Args:
    ///     context (str | Ids): A text or its token ids.
    ///     candidates (Sequence[str] | Sequence[Ids]): What may follow.
    ///     normalization (Literal["sum", "mean", "bytes"]): What candidates are ranked by: the sum of their
    ///         tokens' log-probabilities, its mean over tokens, or the sum over the bytes of their text.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     list[RankedCandidate]: The most probable first, equal ones in their order.
    ///
    /// Raises:
    ///     InputError: The context or a candidate has no token, or both do not fit the model's context.
    ///
    /// Example:
    ///     >>> best = gen.rank("Once upon a", [" time", " banana"])[0]
    ///     >>> best.index, round(best.logprob, 2)
    #[pyo3(signature = (context, candidates, *, normalization=None, adapter=None), text_signature = "($self, context, candidates, *, normalization=\"sum\", adapter=None)")]
    fn rank<'py>(
        &self,
        py: Python<'py>,
        context: &Bound<'py, PyAny>,
        candidates: &Bound<'py, PyAny>,
        normalization: Option<&str>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (context, candidates) = (one(context, "context")?, list(candidates, "candidates")?);
        let normalization = normalization_of(py, normalization)?;
        let inner = self.adapted(py, adapter)?;
        let ranked =
            interruptible(py, |interrupted| inner.rank(context, candidates, normalization, interrupted))?;
        let made = |candidate: rsgen::generator::RankedCandidate| {
            let values = (candidate.index, candidate.score, candidate.logprob, candidate.num_tokens);
            results::made(py, "RankedCandidate", values)
        };
        ranked.into_iter().map(made).collect()
    }

    /// Returns the probabilities of labels after a context.
    ///
    /// They are the softmax of what `rank` ranks the labels by.
    ///
    /// Args:
    ///     context (str | Ids): A text that ends where a label follows, or its token ids.
    ///     labels (Sequence[str]): The labels, as they would follow; for example " positive".
    ///     content_free (str | Ids | None): The context with "N/A" or nothing in place of the text to
    ///         classify. The probabilities are divided by those after it, and add up to 1 again: the
    ///         contextual calibration of Zhao et al., arXiv:2102.09690.
    ///     normalization (Literal["sum", "mean", "bytes"]): As for `rank`.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     dict[str, float]: The probability of each label, in the order of `labels`. They add up to 1.
    ///
    /// Raises:
    ///     InputError: There is no label, or a text cannot be scored.
    ///
    /// Example:
    ///     >>> gen.classify("The sun is", [" hot", " cold"])
    #[pyo3(
        signature = (context, labels, *, content_free=None, normalization=None, adapter=None),
        text_signature = "($self, context, labels, *, content_free=None, normalization=\"sum\", adapter=None)"
    )]
    fn classify<'py>(
        &self,
        py: Python<'py>,
        context: &Bound<'py, PyAny>,
        labels: &Bound<'py, PyAny>,
        content_free: Option<&Bound<'py, PyAny>>,
        normalization: Option<&str>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (context, prompts) = (one(context, "context")?, list(labels, "labels")?);
        let content_free = content_free.map(|given| one(given, "content_free")).transpose()?;
        let normalization = normalization_of(py, normalization)?;
        let names: Vec<String> = prompts
            .iter()
            .map(|label| match label {
                Prompt::Text(text) => Ok(text.clone()),
                _ => Err(pyo3::exceptions::PyTypeError::new_err(
                    "`labels` must be texts, got token ids; decode them",
                )),
            })
            .collect::<PyResult<_>>()?;
        let inner = self.adapted(py, adapter)?;
        let probabilities = interruptible(py, |interrupted| {
            inner.classify(context, &prompts, content_free, normalization, interrupted)
        })?;
        let of_labels = PyDict::new(py);
        for (name, probability) in names.into_iter().zip(probabilities) {
            if of_labels.contains(&name)? {
                return Err(input_error!(
                    py,
                    "`labels` must be different, got {name:?} twice; leave one out"
                ));
            }
            of_labels.set_item(name, probability)?;
        }
        Ok(of_labels)
    }

    /// Returns the perplexity of a text of any length, or of several together.
    ///
    /// It is e to the mean of the tokens' negative log-probabilities. A longer text than `window` is cut
    /// into windows that begin every `stride` tokens, and each token counts in the first window that has
    /// it, as in transformers' documentation, "Perplexity of fixed-length models".
    ///
    /// Args:
    ///     text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of them.
    ///     stride (int | None): The tokens between the beginnings of windows, at most `window`. A smaller
    ///         one gives each token more of the text before it, and takes longer. None is half a window.
    ///     window (int | None): The tokens of a window. None is the model's context.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     float: The perplexity: 1 when each token was certain.
    ///
    /// Raises:
    ///     ConfigError: `window` or `stride` is out of range.
    ///     InputError: No text has two tokens.
    ///
    /// Example:
    ///     >>> gen.perplexity("Once upon a time, there was a little girl.")
    #[pyo3(signature = (text, *, stride=None, window=None, adapter=None))]
    fn perplexity<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyAny>,
        stride: Option<&Bound<'py, PyAny>>,
        window: Option<&Bound<'py, PyAny>>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let (texts, _) = texts(text, "text")?;
        let window = window.map(|given| count(given, "window")).transpose()?;
        let stride = stride.map(|given| count(given, "stride")).transpose()?;
        let stride = stride
            .map(|stride| {
                let rule = "`stride` must be an integer of 1 or more, got 0; None is half a window";
                NonZeroUsize::new(stride).ok_or_else(|| config_error!(py, "{rule}"))
            })
            .transpose()?;
        let inner = self.adapted(py, adapter)?;
        interruptible(py, |interrupted| inner.perplexity(texts, window, stride, interrupted))
    }
}

fn one(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Prompt> {
    match texts(given, name)? {
        (mut one, false) => Ok(one.swap_remove(0)),
        _ => {
            Err(input_error!(given.py(), "`{name}` must be one text or its token ids, got several; give one"))
        }
    }
}

fn list(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<Prompt>> {
    match texts(given, name)? {
        (list, true) => Ok(list),
        _ => Err(input_error!(
            given.py(),
            "`{name}` must be a list of texts or of sequences of ids, got one; put it in a list"
        )),
    }
}

fn normalization_of(py: Python<'_>, given: Option<&str>) -> PyResult<Normalization> {
    match given {
        None | Some("sum") => Ok(Normalization::Sum),
        Some("mean") => Ok(Normalization::Mean),
        Some("bytes") => Ok(Normalization::Bytes),
        Some(other) => Err(config_error!(
            py,
            "`normalization` must be \"sum\", \"mean\" or \"bytes\", got {other:?}; leave it out for the sum"
        )),
    }
}
