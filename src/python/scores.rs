//! `Generator.score`: the log-probabilities of texts, and the class `TokenScores` with all that is known of their tokens.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::arrays::{array, wide};
use super::errors::{guarded, input_error};
use super::pickle::{self, Restored};
use super::progress::ListProgress;
use super::prompts;
use super::signals::interruptible;
use crate::engine::TokenScore;
use crate::generator::{Generator, Prompts};
use crate::types::TokenId;

/// How likely the tokens of a text are, each given those before it. ``len()`` is their number.
#[pyclass(module = "rsgen", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct TokenScores(Vec<TokenScore>);

/// A score as it is pickled.
type Plain = (u32, f32, usize, Vec<(u32, f32)>);

#[pymethods]
impl TokenScores {
    /// The tokens of the text, int64 ``[tokens]``.
    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| array(py, self.0.len(), self.0.iter().map(|score| wide(score.token_id)).collect()))
    }

    /// Their log-probabilities in nats, float32 ``[tokens]``; 0 for the first, which nothing predicts.
    #[getter]
    fn logprobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| array(py, self.0.len(), self.0.iter().map(|score| score.logprob).collect()))
    }

    /// Their places among all tokens by probability, int64 ``[tokens]``: 1 is the most probable; 0 for the first token.
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| array(py, self.0.len(), self.0.iter().map(|score| score.rank as i64).collect()))
    }

    /// For each token a dict from the ids of the most probable tokens in its place to their log-probabilities, the most
    /// probable first; empty for the first token.
    #[getter]
    fn top_logprobs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        guarded(|| {
            let dict = |score: &TokenScore| {
                let dict = PyDict::new(py);
                let mut tokens = score.top_logprobs.iter();
                tokens.try_for_each(|(token, logprob)| dict.set_item(token.0, logprob)).map(|()| dict)
            };
            self.0.iter().map(dict).collect()
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, Vec<Plain>>> {
        guarded(|| {
            let plain = |score: &TokenScore| {
                let top = score.top_logprobs.iter().map(|(token, logprob)| (token.0, *logprob)).collect();
                (score.token_id.0, score.logprob, score.rank, top)
            };
            Ok((pickle::restorer(slf)?, (slf.get().0.iter().map(plain).collect(),)))
        })
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, scores: Vec<Plain>) -> PyResult<Self> {
        guarded(|| {
            let score = |(token_id, logprob, rank, top): Plain| {
                let top = top.into_iter().map(|(token, logprob)| (TokenId(token), logprob)).collect();
                TokenScore { token_id: TokenId(token_id), logprob, rank, top_logprobs: top }
            };
            Ok(Self(scores.into_iter().map(score).collect()))
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        guarded(|| Ok(self.0.len()))
    }

    fn __repr__(&self) -> PyResult<String> {
        guarded(|| {
            let total: f64 = self.0.iter().map(|score| f64::from(score.logprob)).sum();
            Ok(format!("<rsgen.TokenScores of {} tokens: log-probability {total:.4}>", self.0.len()))
        })
    }
}

/// Scores a text, or each text of a list.
pub(super) fn score<'py>(
    py: Python<'py>,
    generator: &Generator,
    texts: &Bound<'py, PyAny>,
    top_logprobs: Option<usize>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (texts, is_list) = match prompts::prompts(texts, None)? {
        Prompts::One(text) => (vec![text], false),
        Prompts::List(texts) => (texts, true),
        Prompts::Batch(_) => {
            return Err(input_error(
                py,
                "`text` must have one dimension, got an array of two; give a list of its rows",
            ));
        }
    };
    let progress = ListProgress::new(progress, texts.len())?;
    let mut all = Vec::with_capacity(texts.len());
    let scored = interruptible(py, |interrupted| {
        let texts = texts.into_iter().map(Ok);
        generator.score_texts(texts, top_logprobs.unwrap_or(0), interrupted, &mut |index, scores| {
            all.push(
                scores
                    .map_err(|error| if is_list { error.context(format!("text {index}")) } else { error })?,
            );
            progress.step()
        })
    });
    progress.outcome(scored)?;
    let mut all = all.into_iter().map(|scores| match top_logprobs {
        Some(_) => TokenScores(scores).into_bound_py_any(py),
        None => array(py, scores.len(), scores.iter().map(|score| score.logprob).collect()),
    });
    match (is_list, all.next()) {
        (false, Some(one)) => one,
        (_, first) => first.into_iter().chain(all).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py),
    }
}
