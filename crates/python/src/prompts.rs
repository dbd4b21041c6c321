//! Prompts of Python: text, ids, arrays, or a list of those.
//!
//! Types are checked here, and that ids are in the range of an id; the layers below check them against the
//! vocabulary.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use super::abc::{is_mapping, is_sequence};
use super::arrays::numpy;
use super::errors::{input_error, message, numbered, numbered_prompt, replaced, to_python};
use super::signals::keep;
use super::walk::{Walk, to_array};
use rsgen::generator::{Prompt, Prompts};
use rsgen_core::escape;
use rsgen_core::types::TokenId;
use rsgen_generation::PromptBatch;

/// Half of the bytes that a prompt of a list takes, with its request: room for as many again is asked for.
const REQUEST_BYTES: usize = 2048;
/// The keys of ids and mask in the encodings of tokenizers.
const IDS: &str = "input_ids";
const MASK: &str = "attention_mask";

/// The prompts of a call, given under one of three names: the first argument (which may be an encoding),
/// `inputs` or `input_ids`. Without any the text begins at its beginning.
///
/// # Errors
/// As for [`prompts`], and `TypeError` for a prompt given twice.
pub(super) fn of_call(named: [Given<'_>; 3], mask: Given<'_>) -> PyResult<Prompts> {
    match ids_and_mask("prompt was", named, mask)? {
        (Some(prompt), mask) => prompts(&prompt, mask.as_ref()),
        (None, _) => Ok(Prompts::One(Prompt::Ids(Vec::new()))),
    }
}

/// An argument that may be left out.
pub(super) type Given<'py> = Option<Bound<'py, PyAny>>;

/// The prompt of a call and its mask, which an encoding holds both.
pub(super) fn ids_and_mask<'py>(
    what: &str,
    named: [Given<'py>; 3],
    mask: Given<'py>,
) -> PyResult<(Given<'py>, Given<'py>)> {
    let mut given = named.into_iter().flatten();
    let prompt = given.next();
    if given.next().is_some() {
        let remedy = "give one of the first argument, `inputs` and `input_ids`";
        return Err(type_error!("the {what} given twice; {remedy}"));
    }
    let encoding = match prompt {
        Some(prompt) if is_mapping(&prompt)? => prompt,
        prompt => return Ok((prompt, mask)),
    };
    if !encoding.contains(IDS)? {
        return Err(type_error!(
            "a prompt must be a text, token ids, or what a tokenizer returns, with `{IDS}`, got {}; messages go to `chat`",
            shown(&encoding)
        ));
    }
    let mask = match mask {
        None if encoding.contains(MASK)? => Some(encoding.get_item(MASK)?),
        mask => mask,
    };
    Ok((Some(encoding.get_item(IDS)?), mask))
}

/// The prompts of a value, and of the mask that goes with ids.
///
/// # Errors
/// `TypeError` for what is no prompt; `InputError` for a prompt that cannot be used.
pub(super) fn prompts(prompt: &Bound<'_, PyAny>, mask: Option<&Bound<'_, PyAny>>) -> PyResult<Prompts> {
    let py = prompt.py();
    let walk = &Walk::default();
    if let Some(list) = list_of_objects(walk, prompt)? {
        return prompts(&list, mask);
    }
    if let Some(array) = array_of_ids(prompt)? {
        let dimensions = dimensions(&array)?;
        if dimensions != 1 && dimensions != 2 {
            return Err(wrong_dimensions(py, dimensions));
        }
        return batch(py, rows_of_array(walk, &array)?, dimensions, mask);
    }
    let is_ids = !prompt.is_instance_of::<PyString>()
        && {
            let first = walk.items(sequence(prompt)?)?.next().transpose()?.ok_or_else(|| {
            input_error(
                py,
                "the prompt must hold at least one token, or a list at least one prompt, got an empty list; give \"\" to \
                 begin with the model's beginning-of-sequence token",
            )
        })?;
            is_number(&first)?
        };
    if is_ids {
        return batch(py, vec![ids_of_list(walk, prompt)?], 1, mask);
    }
    if let Some(mask) = mask {
        if let Some(rows) = rectangle(walk, prompt)? {
            return batch(py, rows, 2, Some(mask));
        }
        return Err(input_error(
            py,
            "`attention_mask` goes with ids, or with rows of ids of one length; a text, and each prompt of a list, has \
             no padding: leave it out, or pad the rows: tokenizer(texts, padding=True)",
        ));
    }
    if let Ok(prompt) = prompt.cast() {
        return walk.text(prompt).map(Prompt::Text).map(Prompts::One);
    }
    let requests = &Walk::weighing(REQUEST_BYTES);
    let items = requests.items(sequence(prompt)?)?.enumerate();
    let prompts =
        items.map(|(index, item)| single(walk, &item?).map_err(|error| numbered_prompt(py, index, error)));
    prompts.collect::<PyResult<_>>().map(Prompts::List)
}

/// The elements of an array of texts or of other objects, such as ids of several lengths; a text for an array
/// that is a single one. Columns of polars and Arrow become arrays of numpy's.
fn list_of_objects<'py>(walk: &Walk, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyString>() || !value.hasattr("__array__")? {
        return Ok(None);
    }
    if let Some(kind) = kind_of(value)? {
        return holds_objects(&kind).then(|| walk.array_as_list(value)).transpose();
    }
    if value.hasattr("to_list")? || value.hasattr("to_pylist")? {
        let array = numpy(value.py())?.call_method1("asarray", (value,))?;
        let is_column = kind_of(&array)?.is_some_and(|kind| holds_objects(&kind));
        return is_column.then(|| walk.array_as_list(&array)).transpose();
    }
    Ok(None)
}

/// The kind of numpy's types that the elements of an array are of. Tensors have types of their own.
fn kind_of(array: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if !array.hasattr("tolist")? {
        return Ok(None);
    }
    let Some(dtype) = array.getattr_opt("dtype")? else { return Ok(None) };
    Ok(dtype.getattr_opt("kind")?.and_then(|kind| kind.extract().ok()))
}

fn holds_objects(kind: &str) -> bool {
    ["U", "T", "O"].contains(&kind)
}

/// # Errors
/// `InputError` that names the argument, for a list or an array of nothing.
pub(super) fn not_empty(given: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if given.is_instance_of::<PyString>() || !is_sequence(given)? || given.len()? > 0 {
        return Ok(());
    }
    Err(input_error!(given.py(), "`{name}` must not be empty: give at least one text, or ids"))
}

/// The rows of a list of lists of ids, if they are of one length.
fn rectangle(walk: &Walk, rows: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Vec<TokenId>>>> {
    if rows.is_instance_of::<PyString>() {
        return Ok(None);
    }
    let rows: Vec<_> = walk.items(sequence(rows)?)?.collect::<PyResult<_>>()?;
    if rows.iter().any(pyo3::prelude::PyAnyMethods::is_instance_of::<PyString>) {
        return Ok(None);
    }
    let rows = rows.iter().map(|row| ids(walk, row)).collect::<PyResult<Vec<_>>>()?;
    Ok(rows.windows(2).all(|pair| pair[0].len() == pair[1].len()).then_some(rows))
}

/// A single prompt: text, or ids in one dimension.
///
/// # Errors
/// As for [`prompts`].
fn single(walk: &Walk, prompt: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    if let Ok(prompt) = prompt.cast() {
        return walk.text(prompt).map(Prompt::Text);
    }
    ids(walk, prompt).map(Prompt::Ids)
}

/// Ids in one dimension: a sequence of integers or an array.
///
/// # Errors
/// As for [`prompts`].
pub(super) fn ids(walk: &Walk, ids: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
    match array_of_ids(ids)? {
        None => ids_of_list(walk, ids),
        Some(array) => match dimensions(&array)? {
            1 => Ok(rows_of_array(walk, &array)?.concat()),
            dimensions => Err(input_error!(
                ids.py(),
                "a single prompt must have one dimension, got an array of {dimensions}; give a row of it"
            )),
        },
    }
}

/// What `decode` takes: a token id, ids in one dimension, or rows of them; and whether it is a single row.
///
/// # Errors
/// `TypeError` and `InputError` that speak of ids.
pub(super) fn rows_to_decode<'py>(given: &Bound<'py, PyAny>) -> PyResult<(Vec<Vec<TokenId>>, bool)> {
    let walk = &Walk::default();
    let plain = |value: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        if !value.hasattr("__array__")? {
            return Ok(value.clone());
        }
        walk.array_as_list(&numpy(value.py())?.call_method1("asarray", (value,))?)
    };
    let row = |value: &Bound<'py, PyAny>| -> PyResult<Vec<TokenId>> {
        if !is_sequence(value)? {
            return Err(type_error!(
                "`token_ids` must be a token id, a sequence of token ids or several such sequences, got {}",
                shown(value)
            ));
        }
        ids_of_list(walk, value)
    };
    let given = plain(given)?;
    if is_number(&given)? {
        return Ok((vec![vec![token_id(&given, 0)?]], true));
    }
    let first = if is_sequence(&given)? { walk.items(&given)?.next().transpose()? } else { None };
    if !first.as_ref().map_or(Ok(false), holds_several)? {
        return Ok((vec![row(&given)?], true));
    }
    let py = given.py();
    let rows = walk.items(&given)?.enumerate().map(|(index, value)| {
        let value = value?;
        plain(&value).and_then(|value| row(&value)).map_err(|error| numbered(py, "row", index, error))
    });
    Ok((rows.collect::<PyResult<_>>()?, false))
}

/// A token id, if the value is a number.
///
/// # Errors
/// As for [`rows_to_decode`].
pub(super) fn single_id(value: &Bound<'_, PyAny>) -> PyResult<Option<TokenId>> {
    is_number(value)?.then(|| token_id(value, 0)).transpose()
}

/// Sequences of ids: one in one dimension, or several.
///
/// # Errors
/// As for [`prompts`].
pub(super) fn sequences(sequences: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<TokenId>>> {
    if sequences.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "expected token ids, got a text; encode it: gen.tokenizer.encode(text)",
        ));
    }
    match prompts(sequences, None)? {
        Prompts::One(Prompt::Ids(ids)) => Ok(vec![ids]),
        Prompts::Batch(batch) => Ok(batch.rows().iter().map(|row| row.input_ids.clone()).collect()),
        Prompts::List(list) => list
            .into_iter()
            .map(|prompt| match prompt {
                Prompt::Ids(ids) => Ok(ids),
                Prompt::Text(_) | Prompt::Embeddings { .. } => Err(PyTypeError::new_err(
                    "expected token ids, got a text; encode it: gen.tokenizer.encode(text)",
                )),
            })
            .collect(),
        Prompts::One(Prompt::Text(_) | Prompt::Embeddings { .. }) => Ok(Vec::new()),
    }
}

/// A numpy array of integers, if the value is an array of numpy's or one that numpy understands, such as a
/// tensor.
fn array_of_ids<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // Scalars of numpy's have it, too, but are integers here.
    if value.is_instance_of::<PyString>()
        || value.getattr_opt("__array__")?.is_none()
        || value.hasattr("__index__")? && !value.hasattr("__len__")?
    {
        return Ok(None);
    }
    let py = value.py();
    let array = numpy(py)?.call_method1("asarray", (value,))?;
    let dtype = array.getattr("dtype")?;
    let kind: String = dtype.getattr("kind")?.extract()?;
    if array.getattr("size")?.extract::<usize>()? == 0 {
        return Err(input_error(py, "the prompt must hold at least one token, got an empty array"));
    }
    if kind != "i" && kind != "u" {
        return Err(type_error!(
            "token ids must be integers, got an array of {}; convert it: ids.astype(\"int64\")",
            string(&dtype)?
        ));
    }
    Ok(Some(array))
}

fn dimensions(array: &Bound<'_, PyAny>) -> PyResult<usize> {
    array.getattr("ndim")?.extract()
}

fn wrong_dimensions(py: Python<'_>, dimensions: usize) -> PyErr {
    input_error!(py, "an array of ids must have one or two dimensions, got {dimensions}")
}

/// One prompt, or a rectangle of them, with its mask.
fn batch(
    py: Python<'_>,
    mut rows: Vec<Vec<TokenId>>,
    dimensions: usize,
    mask: Option<&Bound<'_, PyAny>>,
) -> PyResult<Prompts> {
    let batch = match mask {
        Some(mask) => PromptBatch::with_mask(rows, mask_rows(mask, dimensions)?),
        None if dimensions == 1 => return Ok(Prompts::One(Prompt::Ids(rows.pop().unwrap_or_default()))),
        None => PromptBatch::rectangular(rows),
    };
    batch.map(Prompts::Batch).map_err(|error| to_python(py, error))
}

/// The mask of the decoder's ids: a row, or rows.
///
/// # Errors
/// As for [`prompts`].
pub(super) fn mask_of_decoder(mask: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<bool>>> {
    mask_rows(mask, to_array(mask)?.getattr("ndim")?.extract()?)
}

/// The mask of ids that have this many dimensions.
pub(super) fn mask_rows(mask: &Bound<'_, PyAny>, dimensions: usize) -> PyResult<Vec<Vec<bool>>> {
    let (py, walk) = (mask.py(), &Walk::default());
    let array = to_array(mask).map_err(|error| {
        replaced(py, error, |error| {
            input_error!(py, "`attention_mask` must have rows of one length: {}", message(py, error))
        })
    })?;
    let list = walk.array_as_list(&array)?;
    match (array.getattr("ndim")?.extract::<usize>()?, dimensions) {
        (1, 1) => Ok(vec![mask_row(walk, &list)?]),
        (2, _) => walk.items(sequence(&list)?)?.map(|row| mask_row(walk, &row?)).collect(),
        (given, _) => Err(input_error!(
            py,
            "`attention_mask` must have the shape of the ids, which have {dimensions} dimensions, got {given}"
        )),
    }
}

fn mask_row(walk: &Walk, row: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    let entry = |entry: Bound<'_, PyAny>| {
        let wrong = || {
            let rule = "`attention_mask` must hold 1 for a token and 0 for padding";
            input_error!(row.py(), "{rule}, got {}", shown(&entry))
        };
        match entry.extract::<f64>() {
            Ok(0.0) => Ok(false),
            Ok(1.0) => Ok(true),
            Ok(_) => Err(wrong()),
            Err(error) => Err(replaced(row.py(), error, |_| wrong())),
        }
    };
    walk.items(sequence(row)?)?.map(|each| entry(each?)).collect()
}

/// The rows of an array of integers of one or two dimensions.
fn rows_of_array(walk: &Walk, array: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<TokenId>>> {
    let py = array.py();
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    walk.take(py, shape.iter().product())?;
    let ids =
        numpy(py)?.call_method1("ascontiguousarray", (array, "int64"))?.call_method1("reshape", (-1,))?;
    let ids = ids.cast_into::<PyArray1<i64>>()?.try_readonly()?;
    let width = shape.last().copied().unwrap_or(1).max(1);
    // An id that is out of range is shown as it was given.
    let id = |(index, &id): (usize, &i64)| match u32::try_from(id) {
        Ok(id) => Ok(TokenId(id)),
        Err(_) => token_id(&array.call_method1("item", (index,))?, index % width),
    };
    let ids = ids.as_slice()?.iter().enumerate().map(id).collect::<PyResult<Vec<_>>>()?;
    Ok(ids.chunks(width).map(<[_]>::to_vec).collect())
}

fn ids_of_list(walk: &Walk, ids: &Bound<'_, PyAny>) -> PyResult<Vec<TokenId>> {
    walk.items(sequence(ids)?)?.enumerate().map(|(position, id)| token_id(&id?, position)).collect()
}

fn token_id(id: &Bound<'_, PyAny>, position: usize) -> PyResult<TokenId> {
    let (py, given) = (id.py(), || format!("got {} at position {position}", shown(id)));
    if id.is_instance_of::<PyBool>() {
        return Err(type_error!("token ids must be integers, {}", given()));
    }
    let wrong = |error: &PyErr| {
        if error.is_instance_of::<PyTypeError>(py) {
            return type_error!("token ids must be integers, {}", given());
        }
        input_error!(py, "token ids must be 0 or more, and less than the size of the vocabulary, {}", given())
    };
    id.extract().map(TokenId).map_err(|error| replaced(py, error, wrong))
}

/// Whether it is a single number, an integer or (to be refused with a clear message) another one.
fn is_number(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok((value.hasattr("__index__")? || value.hasattr("__float__")?) && !value.hasattr("__len__")?)
}

/// Whether it is a sequence or an array.
fn holds_several(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_sequence(value)? || value.hasattr("__len__")?)
}

fn sequence<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyAny>> {
    if is_sequence(value)? {
        return Ok(value);
    }
    Err(type_error!(
        "a prompt must be a text, token ids (a sequence of integers or a numpy array), or a list of those, got {}",
        shown(value)
    ))
}

/// `str(value)`. Formatting the value itself would swallow what a signal handler raises meanwhile.
pub(super) fn string(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.str()?.extract()
}

/// A value as a message shows it: its beginning, and its type.
pub(super) fn shown(value: &Bound<'_, PyAny>) -> String {
    const SHOWN: usize = 60;
    let or = |text: PyResult<Bound<'_, PyString>>, otherwise: &str| {
        keep(value.py(), text)
            .map_or_else(|| otherwise.to_owned(), |text| text.to_string_lossy().into_owned())
    };
    let (text, kind) = (or(value.repr(), "…"), or(value.get_type().name(), "object"));
    let text = match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({kind})", &text[..end]),
        None => format!("{text} ({kind})"),
    };
    escape::name(&text).into_owned()
}
