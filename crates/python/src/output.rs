//! The class `GenerationOutput`: the result of a finished call.

use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString, PyTuple, PyType};

use super::arrays::{array, ids, numpy, wide};
use super::errors::{exception, guarded, input_error, to_python};
use super::json;
use super::kept_cache::KeptCache;
use super::layer_states::{self, AllStates};
use super::output_type::OutputType;
use super::output_values::{entry_value, total_logprob};
use super::pickle::{self, Restored};
use super::results;
use super::tool_calls::{Reading, Replies, Reply};
use rsgen::engine;
use rsgen_core::error::ErrorKind;
use rsgen_core::memory;
use rsgen_core::sync::Mutex;
use rsgen_core::types::TokenId;
use rsgen_generation::output::transition_scores;

/// The result of a call.
///
/// It is a list of rows: iteration and `out[0]` give each as a `GeneratedRow`, `len()` is their number.
/// Each prompt has `num_return_sequences` rows, the prompts in order. `str()` is the text of the first.
/// Its values have names besides, as in a mapping: `out["scores"]`, `out.keys()`, `dict(out)`.
///
/// Example:
///     >>> out = gen.generate("Once upon a time", max_new_tokens=60)
///     >>> out.text, out.finish_reasons, out.usage.generated_tokens
///     >>> for row in out:
///     ...     print(row.text, row.token_ids, row.score, row.finish_reason)
#[pyclass(module = "rsgen", name = "GenerationOutput", frozen)]
pub(super) struct GenerationOutput {
    pub(super) output: engine::GenerationOutput,
    /// One array for each step, when they were asked for.
    pub(super) scores: Option<Py<PyList>>,
    pub(super) logits: Option<Py<PyList>>,
    /// What layers computed, when it was asked for: see [`layer_states::of_output`].
    states: [Option<Py<PyTuple>>; 6],
    sequences: PyOnceLock<Py<PyAny>>,
    pub(super) output_type: Option<OutputType>,
    /// The values of the texts, from their first access on. Its lock is taken as those of slots are.
    pub(super) parsed: Mutex<Option<Py<PyList>>>,
    /// Its calls of tools.
    pub(super) replies: Replies,
    /// The kept caches of the rows, until their Python handles are made.
    pub(super) kept: Mutex<Vec<Option<engine::KeptCache>>>,
    pub(super) caches: PyOnceLock<Vec<Py<KeptCache>>>,
}

/// The pickled form of an output: its values, its scores and logits, its hidden states and attention weights, its
/// output type, its reply and the messages of its rounds.
type OutputValues<'py> =
    (Bound<'py, PyAny>, [Option<Bound<'py, PyList>>; 2], AllStates<'py>, Option<ReadValues>);
type ReadValues = (Option<Py<PyAny>>, Option<Reply>, Option<Py<PyList>>);

impl GenerationOutput {
    pub(super) fn new(
        py: Python<'_>,
        mut output: engine::GenerationOutput,
        reading: Reading,
    ) -> PyResult<Self> {
        let states = layer_states::of_output(py, &mut output)?;
        let states = states.map(|states| states.map(Bound::unbind));
        // Numbers that become arrays are moved out of the output, not copied.
        let (scores, logits) = output
            .sequences
            .iter_mut()
            .map(|sequence| (sequence.scores.take(), sequence.logits.take()))
            .unzip();
        Ok(Self {
            scores: steps(py, scores)?,
            logits: steps(py, logits)?,
            states,
            kept: Mutex::new(output.rows.iter_mut().map(|row| row.cache.take()).collect()),
            caches: PyOnceLock::new(),
            replies: Replies::new(&reading, &output),
            output,
            output_type: reading.output_type,
            parsed: Mutex::default(),
            sequences: PyOnceLock::new(),
        })
    }
}

impl GenerationOutput {
    fn state(&self, py: Python<'_>, index: usize) -> Option<Py<PyTuple>> {
        self.states[index].as_ref().map(|states| states.clone_ref(py))
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.scores)?;
        visit.call(&self.logits)?;
        self.output_type.as_ref().map_or(Ok(()), |output_type| output_type.traverse(&visit))?;
        self.replies.traverse(&visit)?;
        self.parsed.try_lock().map_or(Ok(()), |parsed| visit.call(&*parsed))?;
        self.states.iter().try_for_each(|states| visit.call(states))
    }

    /// str: The continuation of the first row, without special tokens. A stop string is kept.
    #[getter]
    fn text(&self) -> &str {
        self.output.text()
    }

    /// list[str]: The continuations of all rows.
    #[getter]
    fn texts(&self) -> Vec<&str> {
        self.output.texts().collect()
    }

    /// NDArray[np.int64]: Prompts and continuations, `[rows, width]`, as transformers gives them.
    ///
    /// Prompts are padded on the left to equal width, continuations on the right. Padding is
    /// the `pad_token_id`, or 0 when there is none.
    #[getter]
    pub(super) fn sequences<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let made = self.sequences.get_or_try_init(py, || sequences(py, &self.output).map(Bound::unbind));
        Ok(made?.bind(py).clone())
    }

    /// list[NDArray[np.int64]]: The tokens of each continuation, `[tokens]`, with the token that ended it.
    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list(py, self.output.rows.iter().map(|row| ids(py, &row.generated.token_ids)))
    }

    /// list[NDArray[np.float32]]: The log-probability of each token under the model's own logits, in nats.
    ///
    /// One array for each row, `[tokens]`.
    #[getter]
    fn logprobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.output.rows.iter().map(|row| &row.generated.logprobs);
        list(py, rows.map(|logprobs| array(py, logprobs.len(), logprobs.clone())))
    }

    /// list[list[dict[int, float]]] | None: The most probable tokens at each step, with `top_logprobs=N`.
    ///
    /// For each token of each row a dict of N ids with their log-probabilities under the model's
    /// own logits, the most probable first.
    #[getter]
    fn top_logprobs<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let rows: Option<Vec<_>> =
            (0..self.output.rows.len()).map(|row| self.output.top_logprobs(row)).collect();
        let of_row = |row: Vec<&[(TokenId, f32)]>| {
            list(py, row.into_iter().map(|top| results::top_logprobs(py, top))).map(Bound::into_any)
        };
        rows.map(|rows| list(py, rows.into_iter().map(of_row))).transpose()
    }

    /// Returns the processed score that each token was chosen by.
    ///
    /// With beams the scores of a row sum up to its entry of `sequences_scores`, before the
    /// division by the length penalty.
    ///
    /// Args:
    ///     normalize_logits (bool): Returns the logarithm of the scores' softmax.
    ///
    /// Returns:
    ///     NDArray[np.float32]: The scores, `[rows, longest]`, 0 after the end of a row.
    ///
    /// Raises:
    ///     InputError: The call was without `output_scores=True`.
    #[pyo3(signature = (normalize_logits=false))]
    fn compute_transition_scores<'py>(
        &self,
        py: Python<'py>,
        normalize_logits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(scores) = &self.scores else {
            return Err(input_error(
                py,
                "transition scores are made from the scores of every step, which were not kept; call with \
                     output_scores=True",
            ));
        };
        numpy(py)?;
        let changed = |_| input_error(py, "the arrays of `scores` have been changed into others");
        let steps: Vec<PyReadonlyArray2<'_, f32>> =
            scores.bind(py).iter().map(|step| step.extract().map_err(changed)).collect::<PyResult<_>>()?;
        let row = |step: usize, sequence: usize| {
            let step: &PyReadonlyArray2<'_, f32> = steps.get(step)?;
            let vocab_size = step.shape()[1];
            step.as_slice().ok()?.get(sequence * vocab_size..(sequence + 1) * vocab_size)
        };
        let rows = self.output.rows.iter().map(|row| &row.generated);
        let rows = transition_scores(rows, normalize_logits, row);
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut all = vec![0.0_f32; rows.len() * width];
        for (place, row) in all.chunks_exact_mut(width.max(1)).zip(&rows) {
            place[..row.len()].copy_from_slice(row);
        }
        array(py, (rows.len(), width), all)
    }

    /// NDArray[np.float32] | None: The score of each row, `[rows]`. None without beams.
    ///
    /// It is the sum of the processed log-probabilities, divided by the length to the power of
    /// `length_penalty`.
    #[getter]
    fn sequences_scores<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let scores: Option<Vec<f32>> = self.output.rows.iter().map(|row| row.generated.score).collect();
        scores.map(|scores| array(py, scores.len(), scores)).transpose()
    }

    /// list[Any] | None: The entry of the catalogue that each row is. None without `allowed_sequences`.
    ///
    /// It is the payload of the entry, or its index in a catalogue without payloads, and None for a
    /// row that was cut before the token that ends an entry. With beams an entry is named once for each
    /// prompt, at its best row: where beams outnumber the entries, further rows repeat them.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(entries) = &self.output.entries else { return Ok(None) };
        list(py, entries.iter().map(|entry| entry_value(py, entry.as_ref()))).map(Some)
    }

    /// NDArray[np.float32] | None: The log-probability of each row under the model's own logits, `[rows]`. None
    /// without `allowed_sequences`.
    ///
    /// It is the sum of its `logprobs`, that of the token that ends the entry included.
    #[getter]
    fn entry_logprobs<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let sums: Vec<f32> = self.output.rows.iter().map(total_logprob).collect();
        self.output.entries.as_ref().map(|_| array(py, sums.len(), sums)).transpose()
    }

    /// NDArray[np.int32] | None: The row of `scores` that each token was chosen from. None without beams.
    ///
    /// The shape is `[rows, longest]`, with -1 after the end of a row.
    #[getter]
    fn beam_indices<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = &self.output.rows;
        if rows.iter().any(|row| row.generated.score.is_none()) {
            return Ok(None);
        }
        let width = rows.iter().map(|row| row.generated.beam_indices.len()).max().unwrap_or(0);
        let mut all = vec![-1_i32; rows.len() * width];
        for (place, row) in all.chunks_exact_mut(width.max(1)).zip(rows) {
            for (slot, &sequence) in place.iter_mut().zip(&row.generated.beam_indices) {
                *slot = sequence as i32;
            }
        }
        array(py, (rows.len(), width), all).map(Some)
    }

    /// list[FinishReason]: Why each row ended: "eos", "stop", "length", "time" or "cancelled".
    #[getter]
    fn finish_reasons(&self) -> Vec<&str> {
        self.output.rows.iter().map(|row| row.generated.finish_reason.as_str()).collect()
    }

    /// list[int]: The index of the prompt that each row continues.
    #[getter]
    fn prompt_indices(&self) -> Vec<usize> {
        self.output.rows.iter().map(|row| row.generated.prompt_index).collect()
    }

    /// list[NDArray[np.float32]] | None: The processed scores of each step, with `output_scores=True`.
    ///
    /// Each array is `[rows, vocab_size]`. With beams the rows are the beams of each prompt, and
    /// the scores are log-probabilities. Rows that have ended hold NaN.
    #[getter]
    pub(super) fn scores(&self, py: Python<'_>) -> Option<Py<PyList>> {
        self.scores.as_ref().map(|scores| scores.clone_ref(py))
    }

    /// list[NDArray[np.float32]] | None: The model's own logits of each step, with `output_logits=True`.
    ///
    /// The shapes are those of `scores`.
    #[getter]
    pub(super) fn logits(&self, py: Python<'_>) -> Option<Py<PyList>> {
        self.logits.as_ref().map(|logits| logits.clone_ref(py))
    }

    /// tuple[tuple[NDArray[np.float32], ...], ...] | None: The states of each step, with
    /// `output_hidden_states=True`.
    ///
    /// For each step those before each layer, and after the last and the norm: of the prompt
    /// `[rows, width, hidden_size]`, then of each new token `[rows, 1, hidden_size]`. The rows
    /// are those of `scores`. Padding and rows that have ended hold NaN.
    #[getter]
    pub(super) fn hidden_states(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 0)
    }

    /// tuple[tuple[NDArray[np.float32], ...], ...] | None: The weights of each step, with
    /// `output_attentions=True`.
    ///
    /// For each step those of each layer: of the prompt `[rows, num_heads, width, width]`, then
    /// of each new token `[rows, num_heads, 1, width + step]`. A layer with a sliding window keeps
    /// no more columns than that after the prompt. Padding has no weight, and holds NaN as a query.
    #[getter]
    pub(super) fn attentions(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 1)
    }

    /// tuple[tuple[NDArray[np.float32], ...], ...] | None: `hidden_states` of a model with an encoder, as
    /// transformers names them.
    #[getter]
    fn decoder_hidden_states(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 3).and_then(|_| self.state(py, 0))
    }

    /// tuple[tuple[NDArray[np.float32], ...], ...] | None: `attentions` of a model with an encoder, as
    /// transformers names them.
    #[getter]
    fn decoder_attentions(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 4).and_then(|_| self.state(py, 1))
    }

    /// tuple[tuple[NDArray[np.float32], ...], ...] | None: The weights of each step over the source, of a model
    /// with an encoder and `output_attentions=True`.
    ///
    /// For each step those of each layer, `[rows, num_heads, tokens, source]`, with the tokens of `attentions`.
    /// Padding of a source has no weight.
    #[getter]
    pub(super) fn cross_attentions(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 2)
    }

    /// tuple[NDArray[np.float32], ...] | None: The encoder's states of the sources, with
    /// `output_hidden_states=True`.
    ///
    /// Those before each layer, and after the last and the norm, `[prompts, source, hidden_size]`. Padding holds
    /// NaN.
    #[getter]
    pub(super) fn encoder_hidden_states(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 3)
    }

    /// tuple[NDArray[np.float32], ...] | None: The encoder's weights, with `output_attentions=True`.
    ///
    /// Those of each layer, `[prompts, num_heads, source, source]`. Padding has no weight, and holds NaN as a
    /// query.
    #[getter]
    pub(super) fn encoder_attentions(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 4)
    }

    /// tuple[NDArray[np.float32], ...] | None: How the tokens of each row follow from its source, of a model with
    /// an encoder and `output_attentions=True`.
    ///
    /// For each row `[tokens, source tokens]`, padding left out: the weights over the source by which each token was
    /// chosen, in the decoder's last layer, averaged over all its heads. `argmax(-1)` is the source token that each
    /// token looks at most.
    #[getter]
    pub(super) fn alignments(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state(py, 5)
    }

    /// int | None: The seed of the first prompt. None when nothing was drawn.
    #[getter]
    fn seed(&self) -> Option<u64> {
        self.output.seeds.first().copied()
    }

    /// list[int]: The seeds of all prompts. Empty when nothing was drawn.
    #[getter]
    fn seeds(&self) -> Vec<u64> {
        self.output.seeds.clone()
    }

    /// Usage: The number of tokens in and out.
    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        results::usage(py, &self.output.usage)
    }

    /// DraftStats | None: What became of drafts, in assisted decoding and prompt lookup.
    #[getter]
    fn draft_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.output.draft_stats.as_ref().map(|stats| results::draft_stats(py, stats)).transpose()
    }

    /// Timings: Where the time went.
    #[getter]
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        results::timings(py, &self.output.timings)
    }

    fn __len__(&self) -> usize {
        self.output.rows.len()
    }

    fn __str__(&self) -> &str {
        self.output.text()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        const SHOWN: usize = 60;
        let text = self.output.text();
        let beginning: String = text.chars().take(SHOWN).collect();
        Ok(format!(
            "GenerationOutput(text={}{}, rows={}, generated_tokens={}, finish_reasons={})",
            PyString::new(py, &beginning).repr()?,
            if beginning.len() < text.len() { "…" } else { "" },
            self.output.rows.len(),
            self.output.usage.generated_tokens,
            PyList::new(py, self.finish_reasons()?)?.repr()?
        ))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[Any]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Restored<'py, OutputValues<'py>>> {
        let (py, this) = (slf.py(), slf.get());
        let output = serde_json::to_value(&this.output)
            .map_err(|error| exception(py, ErrorKind::Internal, error.to_string()))?;
        let lists = [&this.scores, &this.logits].map(|list| list.as_ref().map(|list| list.bind(py).clone()));
        let states = this.states.each_ref().map(|own| own.as_ref().map(|own| own.bind(py).clone()));
        let output_type = this.output_type.as_ref().map(|output_type| output_type.object().clone_ref(py));
        let history = this.replies.history.lock().as_ref().map(|history| history.clone_ref(py));
        let read = (output_type, this.replies.first.clone(), history);
        Ok((pickle::restorer(slf)?, ((json::to_python(py, output)?, lists, states, Some(read)),)))
    }

    #[classmethod]
    fn _restore(class: &Bound<'_, PyType>, values: OutputValues<'_>) -> PyResult<Self> {
        let (output, lists, states, read) = values;
        let (output_type, first, history) = read.unwrap_or_default();
        let output: engine::GenerationOutput = serde_json::from_value(json::from_python(&output)?)
            .map_err(|error| input_error!(class.py(), "this is no pickled output: {error}"))?;
        let [scores, logits] = lists.map(|list| list.map(Bound::unbind));
        let states = states.map(|own| own.map(Bound::unbind));
        let (sequences, caches) = (PyOnceLock::new(), PyOnceLock::new());
        let kept = Mutex::new(vec![None; output.rows.len()]);
        let (output_type, parsed) = (output_type.map(OutputType::of_object), Mutex::default());
        let replies = Replies { first, history: Mutex::new(history) };
        Ok(Self { output, scores, logits, states, sequences, output_type, parsed, replies, kept, caches })
    }
}

fn list<'py>(
    py: Python<'py>,
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// `[rows, width]`: the prompts, padded on the left, and the continuations, padded on the right.
fn sequences<'py>(py: Python<'py>, output: &engine::GenerationOutput) -> PyResult<Bound<'py, PyAny>> {
    let pad = output.pad_token_id.map_or(0, wide);
    let prompt_width = output.rows.iter().map(|row| row.prompt_ids.len()).max().unwrap_or(0);
    let longest = output.rows.iter().map(|row| row.generated.token_ids.len()).max().unwrap_or(0);
    let width = prompt_width + longest;
    let mut all = vec![pad; output.rows.len() * width];
    for (place, row) in all.chunks_exact_mut(width.max(1)).zip(&output.rows) {
        let row_ids = row.prompt_ids.iter().chain(&row.generated.token_ids).copied();
        for (slot, id) in place[prompt_width - row.prompt_ids.len()..].iter_mut().zip(row_ids) {
            *slot = wide(id);
        }
    }
    array(py, (output.rows.len(), width), all)
}

/// Step by step `[rows, vocab_size]`, NaN where a row has ended before; `None` when no row kept any.
fn steps(py: Python<'_>, mut rows: Vec<Option<Vec<Vec<f32>>>>) -> PyResult<Option<Py<PyList>>> {
    if rows.iter().all(Option::is_none) {
        return Ok(None);
    }
    let longest = rows.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let vocab_size = rows.iter().flatten().flatten().map(Vec::len).next().unwrap_or(0);
    let (num_rows, list) = (rows.len(), PyList::empty(py));
    for step in 0..longest {
        let mut values =
            rows.iter_mut().map(|row| row.as_mut().and_then(|steps| steps.get_mut(step)).map(std::mem::take));
        // A single row becomes the array without a copy.
        let mut all = if num_rows == 1 { values.next().flatten().unwrap_or_default() } else { Vec::new() };
        let rest = num_rows * vocab_size - all.len();
        memory::reserve(&mut all, rest, "scores").map_err(|error| to_python(py, error))?;
        for values in values {
            match values {
                Some(values) => all.extend(values),
                None => all.resize(all.len() + vocab_size, f32::NAN),
            }
        }
        list.append(array(py, (num_rows, vocab_size), all)?)?;
    }
    Ok(Some(list.unbind()))
}
