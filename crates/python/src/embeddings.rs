//! The argument `inputs_embeds`, and the method `Generator.embed`, which returns the embeddings of tokens or texts.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use super::arrays::{array, numpy};
use super::errors::{concerning_prompt, guarded, input_error, numbered_prompt, to_python};
use super::generator::Generator;
use super::prompts::{self, mask_rows, sequences, shown, string};
use super::signals::{interruptible, polled};
use super::walk::{Text, Walk, to_array};
use rsgen::generator::{Pooling, Prompt, Prompts};
use rsgen_core::memory;
use rsgen_core::types::TokenId;
use rsgen_generation::{Embeddings, PromptBatch};

#[guarded]
#[pymethods]
impl Generator {
    /// Returns the embeddings of tokens, or with `pooling` one vector for each text.
    ///
    /// Those of tokens are the rows of the model's embedding matrix, as `get_input_embeddings()` of
    /// transformers gives them, to make a prompt of: see `inputs_embeds`.
    ///
    /// The vector of a text is made of the hidden states of one layer, of the encoder in a model that has
    /// one: to search, to cluster, or to train a classifier on. Texts of a list are computed together, and
    /// each gets the same vector as alone.
    ///
    /// Args:
    ///     ids (Prompt): Token ids as a sequence or array, or a text; or a list of them.
    ///     pooling (Literal["mean", "last", "cls"] | None): The mean over the tokens of a text, or the state
    ///         of its last or its first token. None gives the embeddings of tokens.
    ///     normalize (bool): Divides a text's vector by its length, so that a dot product is the cosine
    ///         similarity.
    ///     layer (int): The layer, as `hidden_states` of transformers counts: 0 is before the first, -1 after
    ///         the last and the final norm.
    ///     adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
    ///         names with weights.
    ///
    /// Returns:
    ///     Any: An array of float32. With `pooling` `[hidden]`, for a list or a two-dimensional array
    ///         `[texts, hidden]`; without it `[seq, hidden]`, for a two-dimensional array of ids
    ///         `[batch, seq, hidden]`, for a list a list of arrays.
    ///
    /// Raises:
    ///     InputError: An id is not in the vocabulary, or a text is longer than the model's context.
    ///     ConfigError: `pooling` is unknown, or the model has no such layer.
    ///
    /// Example:
    ///     >>> embeds = gen.embed("Once upon a time")
    ///     >>> gen.generate(inputs_embeds=embeds + 0.01, max_new_tokens=20).text
    ///     >>> vectors = gen.embed(["Tom had a dog.", "Tom had a cat."], pooling="mean")
    ///     >>> vectors[0] @ vectors[1]
    #[pyo3(
        signature = (ids, *, pooling=None, normalize=None, layer=None, adapter=None),
        text_signature = "($self, ids, *, pooling=None, normalize=True, layer=-1, adapter=None)"
    )]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        pooling: Option<Text<'_>>,
        normalize: Option<bool>,
        layer: Option<i64>,
        adapter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(pooling) = pooling else {
            for (name, is_given) in [("normalize", normalize.is_some()), ("layer", layer.is_some())] {
                if is_given {
                    return Err(config_error!(
                        py,
                        "`{name}` is for the vector of a text; set `pooling` as well, for example pooling=\"mean\""
                    ));
                }
            }
            return self.embed_tokens(py, ids);
        };
        let pooling = match pooling.0 {
            "mean" => Pooling::Mean,
            "last" => Pooling::Last,
            "cls" => Pooling::Cls,
            other => {
                return Err(config_error!(
                    py,
                    "`pooling` must be \"mean\", \"last\" or \"cls\", got {other:?}; leave it out for the embeddings of tokens"
                ));
            }
        };
        prompts::not_empty(ids, "ids")?;
        let (texts, is_one) = match prompts::prompts(ids, None)? {
            Prompts::One(text) => (vec![text], true),
            Prompts::List(texts) => (texts, false),
            Prompts::Batch(batch) => {
                (batch.rows().iter().map(|row| Prompt::Ids(row.input_ids.clone())).collect(), false)
            }
        };
        let count = texts.len();
        let (layer, normalize) = (layer.unwrap_or(-1), normalize.unwrap_or(true));
        let inner = self.adapted(py, adapter)?;
        let vectors = interruptible(py, |interrupted| {
            inner.embed_texts(texts, pooling, layer, normalize, interrupted)
        })?;
        let all = vectors.concat();
        let size = all.len() / count.max(1);
        if is_one { array(py, size, all) } else { array(py, (count, size), all) }
    }
}

impl Generator {
    /// The embeddings of tokens.
    fn embed_tokens<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        let of_ids = |ids: &[TokenId]| inner.embed(ids).map_err(|error| to_python(py, error));
        let size = inner.embedding_size();
        let of_prompt = |prompt: Prompt| {
            let ids = polled(py, |interrupted| inner.encode_text(prompt, true, interrupted))?;
            array(py, (ids.len(), size), of_ids(&ids)?)
        };
        match prompts::prompts(ids, None)? {
            Prompts::One(prompt) => of_prompt(prompt),
            Prompts::List(list) => {
                let of_list = |(index, prompt): (usize, Prompt)| {
                    of_prompt(prompt).map_err(|error| numbered_prompt(py, index, error))
                };
                list.into_iter().enumerate().map(of_list).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
            }
            Prompts::Batch(batch) => {
                let mut all = Vec::new();
                for (index, row) in batch.rows().iter().enumerate() {
                    let of_row = of_ids(&row.input_ids);
                    all.extend(of_row.map_err(|error| numbered_prompt(py, index, error))?);
                }
                array(py, (batch.rows().len(), batch.width(), size), all)
            }
        }
    }
}

/// The prompts of a call with `inputs_embeds`. `named` are the names under which the ids may be given that
/// they stand for.
///
/// # Errors
/// `TypeError` for what is no embedding; `InputError` for what cannot be used.
pub(super) fn of_call(
    embeds: &Bound<'_, PyAny>,
    named: [Option<Bound<'_, PyAny>>; 3],
    mask: Option<Bound<'_, PyAny>>,
) -> PyResult<Prompts> {
    let py = embeds.py();
    let (ids, mask) = prompts::ids_and_mask("ids were", named, mask)?;
    let ids = ids.map(|ids| sequences(&ids)).transpose()?.unwrap_or_default();
    if let Some(list) = list_of_arrays(embeds)? {
        if mask.is_some() {
            return Err(input_error(
                py,
                "`attention_mask` goes with an array of embeddings; the prompts of a list have no padding: leave it out",
            ));
        }
        if !ids.is_empty() && ids.len() != list.len() {
            return Err(input_error!(
                py,
                "`input_ids` beside a list of `inputs_embeds` must have a row for each of its {} prompts, got {}",
                list.len(),
                ids.len()
            ));
        }
        let ids = ids.into_iter().chain(std::iter::repeat(Vec::new()));
        let prompts = list.iter().zip(ids).enumerate().map(|(index, (prompt, input_ids))| {
            match &mut embeddings(prompt).map_err(|error| numbered_prompt(py, index, error))?[..] {
                [one] => Ok(Prompt::Embeddings { embeddings: one.clone(), input_ids }),
                all => {
                    let error = input_error!(
                        py,
                        "prompt {index} of the list of `inputs_embeds` must be an array [seq, hidden], got {} of them; give one \
                         array [batch, seq, hidden] alone, or a list of its rows",
                        all.len()
                    );
                    Err(concerning_prompt(py, error, Some(index)))
                }
            }
        });
        return prompts.collect::<PyResult<_>>().map(Prompts::List);
    }
    let embeddings = embeddings(embeds)?;
    // The mask of a single prompt may be a row.
    let dimensions = if embeddings.len() == 1 { 1 } else { 2 };
    let masks = mask.map(|mask| mask_rows(&mask, dimensions)).transpose()?;
    let batch = PromptBatch::with_embeddings(embeddings, ids, masks);
    batch.map(Prompts::Batch).map_err(|error| to_python(py, error))
}

/// The arrays of a list or tuple of them; `None` for a single array, and for lists of numbers.
fn list_of_arrays<'py>(embeds: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if embeds.hasattr("__array__")? || !super::abc::is_sequence(embeds)? {
        return Ok(None);
    }
    let items: Vec<_> = Walk::default().items(embeds)?.collect::<PyResult<_>>()?;
    // A list of vectors is one prompt.
    let is_prompt = |item: &Bound<'py, PyAny>| -> PyResult<bool> {
        Ok(item.hasattr("__array__")? && item.getattr("ndim")?.extract::<usize>()? > 1)
    };
    let all = items.iter().map(is_prompt).collect::<PyResult<Vec<_>>>()?;
    Ok((!all.is_empty() && all.iter().all(|&is_prompt| is_prompt)).then_some(items))
}

/// An array of floats, in the type that it has.
fn to_floats<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let mut value = value.clone();
    // numpy takes no tensor that has a gradient, and none of bfloat16.
    for method in ["detach", "float"] {
        if value.hasattr("detach")? && value.hasattr(method)? {
            value = value.call_method0(method)?;
        }
    }
    let array = to_array(&value)?;
    let dtype = array.getattr("dtype")?;
    if dtype.getattr("kind")?.extract::<String>()? != "f" {
        return Err(type_error!(
            "`inputs_embeds` must be an array of floats, [seq, hidden] or [batch, seq, hidden], got {} of {}; \
             gen.embed(ids) gives those of tokens",
            shown(&value),
            string(&dtype)?
        ));
    }
    Ok(array)
}

/// The prompts of an array `[seq, hidden]` or `[batch, seq, hidden]`.
fn embeddings(value: &Bound<'_, PyAny>) -> PyResult<Vec<Embeddings>> {
    let (py, array) = (value.py(), to_floats(value)?);
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let (count, len, hidden_size) = match shape[..] {
        [len, hidden_size] => (1, len, hidden_size),
        [count, len, hidden_size] => (count, len, hidden_size),
        _ => {
            return Err(input_error!(
                py,
                "`inputs_embeds` must have the shape [seq, hidden] or [batch, seq, hidden], got {} dimensions",
                shape.len()
            ));
        }
    };
    // What float32 cannot hold becomes infinite, which has an error of its own.
    let silent = numpy(py)?.call_method("errstate", (), Some(&[("over", "ignore")].into_py_dict(py)?))?;
    silent.call_method0("__enter__")?;
    let narrow = numpy(py)?.call_method1("ascontiguousarray", (array, "float32"));
    silent.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    let flat = narrow?.call_method1("reshape", (-1,))?;
    let flat = flat.cast_into::<PyArray1<f32>>()?.try_readonly()?;
    let values = flat.as_slice()?;
    let each = len * hidden_size;
    let made = (0..count.max(1)).map(|index| {
        let values = values.get(index * each..(index + 1) * each).unwrap_or_default();
        let made = memory::copied(values, "numbers of embeddings");
        made.and_then(|values| Embeddings::new(values, hidden_size))
            .map_err(|error| if count > 1 { error.of_prompt("prompt", index) } else { error })
            .map_err(|error| to_python(py, error))
    });
    made.collect()
}
