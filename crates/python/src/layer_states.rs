//! Hidden states and attention weights as Python sees them: for each step a tuple of arrays, shaped as
//! transformers shapes them.
//!
//! Positions of padding hold NaN, and as keys no weight. So do the rows of sequences that have ended.

use std::sync::Arc;

use numpy::ndarray::{ArrayViewMut, Dimension, Ix1, Ix3, Ix4};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arrays::array;
use super::errors::to_python;
use rsgen::engine;
use rsgen_core::memory;
use rsgen_core::types::LayerShape;
use rsgen_generation::{LayerStates, SourceStates};

/// Hidden states and attention weights: for each step a tuple of arrays.
pub(super) type States<'py> = [Option<Bound<'py, PyTuple>>; 2];

/// Those of an output, the weights over the sources, the hidden states and attention weights of the encoder, and the
/// alignment of each row.
pub(super) type AllStates<'py> = [Option<Bound<'py, PyTuple>>; 6];

/// The states of an output, which are taken out of it.
pub(super) fn of_output<'py>(
    py: Python<'py>,
    output: &mut engine::GenerationOutput,
) -> PyResult<AllStates<'py>> {
    let alignments = alignments(py, output)?;
    let sources = std::mem::take(&mut output.source_states);
    let kept: Option<Vec<_>> =
        output.sequences.iter_mut().map(|sequence| sequence.layer_states.take()).collect();
    let Some(kept) = kept.filter(|kept| !kept.is_empty()) else {
        return Ok([const { None }; 6]);
    };
    let num_steps = kept.iter().map(Vec::len).max().unwrap_or(0);
    let firsts: Vec<Option<&LayerStates>> =
        kept.iter().map(|steps| steps.first().map(|own| &**own)).collect();
    let width = firsts.iter().flatten().map(|first| first.prompt_mask.len()).max().unwrap_or(0);
    let columns: Vec<Vec<usize>> = firsts.iter().map(|first| columns(*first, width)).collect();
    let source_width = sources.iter().map(|source| source.width).max().unwrap_or(0);
    // The sequences of each source are adjacent, and as many.
    let sequences_each = kept.len() / sources.len().max(1);
    let (mut hidden_states, mut attentions, mut cross) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..num_steps {
        let rows: Vec<Row<'_>> = kept
            .iter()
            .zip(&columns)
            .enumerate()
            .map(|(index, (steps, columns))| Row {
                states: steps.get(step).map(|own| &**own),
                columns,
                slots: sources.get(index / sequences_each.max(1)).map_or(&[], |source| &source.slots[..]),
            })
            .collect();
        let step = Step { rows: &rows, prompt_width: width, step };
        hidden_states.extend(step.hidden_states(py)?);
        attentions.extend(step.attentions(py)?);
        cross.extend(step.cross_attentions(py, source_width)?);
    }
    let tuple = |steps: Vec<_>| (!steps.is_empty()).then(|| PyTuple::new(py, steps)).transpose();
    let [of_encoder, weights] = of_sources(py, &sources, source_width)?;
    Ok([tuple(hidden_states)?, tuple(attentions)?, tuple(cross)?, of_encoder, weights, alignments])
}

/// The hidden states and attention weights of sources, padded to a width: for each layer an array.
fn of_sources<'py>(py: Python<'py>, sources: &[Arc<SourceStates>], width: usize) -> PyResult<States<'py>> {
    let Some(shape) = sources.first().map(|source| &*source.shape) else { return Ok([None, None]) };
    let (rows, heads) = (sources.len(), shape.num_heads);
    let has = |numbers: fn(&SourceStates) -> &[f32]| sources.iter().any(|source| !numbers(source).is_empty());
    let hidden = |layer: usize| {
        let fill = |mut all: ArrayViewMut<'_, f32, Ix3>| {
            for (index, source) in sources.iter().enumerate() {
                for (token, &slot) in source.slots.iter().enumerate() {
                    let state = source.hidden_state(token, layer).unwrap_or_default();
                    let mut place = all.slice_mut(numpy::ndarray::s![index, slot, ..]);
                    place.iter_mut().zip(state).for_each(|(place, &number)| *place = number);
                }
            }
        };
        filled(py, Ix3(rows, width, shape.size_of(layer)), "hidden states", fill)
    };
    let weights = |layer: usize| {
        let fill = |mut all: ArrayViewMut<'_, f32, Ix4>| {
            for (index, source) in sources.iter().enumerate() {
                for (token, &slot) in source.slots.iter().enumerate() {
                    for head in 0..heads {
                        let mut place = all.slice_mut(numpy::ndarray::s![index, head, slot, ..]);
                        let weights = source.attention(token, layer, head).unwrap_or_default();
                        scatter(&mut place, weights, &source.slots);
                    }
                }
            }
        };
        filled(py, Ix4(rows, heads, width, width), "attention weights", fill)
    };
    let tuple =
        |arrays: Option<PyResult<Vec<_>>>| arrays.transpose()?.map(|all| PyTuple::new(py, all)).transpose();
    Ok([
        tuple(has(|source| &source.hidden_states).then(|| (0..=shape.num_layers()).map(hidden).collect()))?,
        tuple(has(|source| &source.attentions).then(|| (0..shape.num_layers()).map(weights).collect()))?,
    ])
}

/// Writes weights to their columns; others have none.
fn scatter(place: &mut ArrayViewMut<'_, f32, Ix1>, weights: &[f32], columns: &[usize]) {
    place.fill(0.0);
    for (&weight, &column) in weights.iter().zip(columns) {
        place[column] = weight;
    }
}

/// The alignment of each row, where there are any.
fn alignments<'py>(
    py: Python<'py>,
    output: &engine::GenerationOutput,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let rows: Option<Vec<_>> = (0..output.rows.len()).map(|row| output.alignment(row)).collect();
    let Some(rows) = rows.filter(|rows| !rows.is_empty()) else { return Ok(None) };
    let of_row = |rows: Vec<Vec<f32>>| {
        let shape = (rows.len(), rows.first().map_or(0, Vec::len));
        array(py, shape, rows.concat())
    };
    PyTuple::new(py, rows.into_iter().map(of_row).collect::<PyResult<Vec<_>>>()?).map(Some)
}

/// The states of whole texts of one length.
pub(super) fn of_texts<'py>(py: Python<'py>, states: &[LayerStates]) -> PyResult<States<'py>> {
    let width = states.first().map_or(0, |first| first.num_tokens);
    let columns: Vec<usize> = (0..width).collect();
    let rows: Vec<Row<'_>> =
        states.iter().map(|own| Row { states: Some(own), columns: &columns, slots: &[] }).collect();
    let step = Step { rows: &rows, prompt_width: width, step: 0 };
    Ok([step.hidden_states(py)?, step.attentions(py)?])
}

/// The columns of the real positions of a prompt that is padded to a width.
fn columns(first: Option<&LayerStates>, width: usize) -> Vec<usize> {
    let mask = first.map(|first| &first.prompt_mask[..]).unwrap_or_default();
    let real = mask.iter().enumerate().filter(|(_, real)| **real);
    real.map(|(index, _)| width - mask.len() + index).collect()
}

/// A sequence in a step.
struct Row<'a> {
    /// `None` once it has ended.
    states: Option<&'a LayerStates>,
    /// The columns of its prompt.
    columns: &'a [usize],
    /// The columns of its source.
    slots: &'a [usize],
}

#[expect(clippy::struct_field_names, reason = "it is one of the sizes of a step")]
struct Step<'a> {
    rows: &'a [Row<'a>],
    prompt_width: usize,
    step: usize,
}

impl Row<'_> {
    /// The column of a position: that of the padded prompt, then one for each new token.
    fn column(&self, position: usize, prompt_width: usize) -> usize {
        self.columns.get(position).copied().unwrap_or(prompt_width + position - self.columns.len())
    }
}

impl Step<'_> {
    fn shape(&self) -> Option<&LayerShape> {
        self.rows.iter().find_map(|row| row.states).map(|states| &*states.shape)
    }

    /// The tokens of each row.
    fn len(&self) -> usize {
        if self.step == 0 { self.prompt_width } else { 1 }
    }

    /// The place of a row's token among those of the step.
    fn place(&self, row: &Row<'_>, token: usize) -> usize {
        if self.step == 0 { row.columns[token] } else { 0 }
    }

    /// A tuple of `[rows, len, hidden_size]`.
    fn hidden_states<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(shape) = self.shape().filter(|_| self.has(|states| !states.hidden_states.is_empty())) else {
            return Ok(None);
        };
        let (rows, len) = (self.rows.len(), self.len());
        let layers = (0..=shape.num_layers()).map(|layer| {
            let fill = |mut all: ArrayViewMut<'_, f32, Ix3>| {
                for (index, row) in self.rows.iter().enumerate() {
                    let Some(states) = row.states else { continue };
                    for token in 0..states.num_tokens {
                        let mut place = all.slice_mut(numpy::ndarray::s![index, self.place(row, token), ..]);
                        let state = states.hidden_state(token, layer).unwrap_or_default();
                        place.iter_mut().zip(state).for_each(|(place, &number)| *place = number);
                    }
                }
            };
            filled(py, Ix3(rows, len, shape.size_of(layer)), "hidden states", fill)
        });
        PyTuple::new(py, layers.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    /// A tuple of `[rows, num_heads, len, columns]`: after the prompt a layer with a window has that many
    /// columns at most.
    fn attentions<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(shape) = self.shape().filter(|_| self.has(|states| !states.attentions.is_empty())) else {
            return Ok(None);
        };
        let (rows, len, heads) = (self.rows.len(), self.len(), shape.num_heads);
        let all_columns = self.prompt_width + self.step;
        let layers = shape.windows.iter().enumerate().map(|(layer, window)| {
            let first_column = match window {
                Some(window) if self.step > 0 => all_columns.saturating_sub(*window),
                _ => 0,
            };
            let fill = |mut all: ArrayViewMut<'_, f32, Ix4>| {
                for (index, row) in self.rows.iter().enumerate() {
                    let Some(states) = row.states else { continue };
                    for (token, head) in
                        (0..states.num_tokens).flat_map(|token| (0..heads).map(move |head| (token, head)))
                    {
                        let query = self.place(row, token);
                        let mut place = all.slice_mut(numpy::ndarray::s![index, head, query, ..]);
                        place.fill(0.0);
                        let weights = states.attention(token, layer, head).unwrap_or_default();
                        for (position, &weight) in weights.iter().enumerate() {
                            let column = row.column(position, self.prompt_width);
                            if let Some(column) = column.checked_sub(first_column) {
                                place[column] = weight;
                            }
                        }
                    }
                }
            };
            filled(py, Ix4(rows, heads, len, all_columns - first_column), "attention weights", fill)
        });
        PyTuple::new(py, layers.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    /// A tuple of `[rows, num_heads, len, width]`: the weights over sources of this width.
    fn cross_attentions<'py>(&self, py: Python<'py>, width: usize) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(shape) = self.shape().filter(|_| self.has(|states| !states.cross_attentions.is_empty()))
        else {
            return Ok(None);
        };
        let (rows, len, heads) = (self.rows.len(), self.len(), shape.num_heads);
        let layers = (0..shape.num_layers()).map(|layer| {
            let fill = |mut all: ArrayViewMut<'_, f32, Ix4>| {
                for (index, row) in self.rows.iter().enumerate() {
                    let Some(states) = row.states else { continue };
                    for token in 0..states.num_tokens {
                        for head in 0..heads {
                            let query = self.place(row, token);
                            let mut place = all.slice_mut(numpy::ndarray::s![index, head, query, ..]);
                            let weights = states.cross_attention(token, layer, head).unwrap_or_default();
                            scatter(&mut place, weights, row.slots);
                        }
                    }
                }
            };
            filled(py, Ix4(rows, heads, len, width), "attention weights", fill)
        });
        PyTuple::new(py, layers.collect::<PyResult<Vec<_>>>()?).map(Some)
    }

    fn has(&self, holds: impl Fn(&LayerStates) -> bool) -> bool {
        self.rows.iter().filter_map(|row| row.states).any(holds)
    }
}

/// An array of a shape, filled from NaN.
fn filled<'py, D: Dimension>(
    py: Python<'py>,
    shape: D,
    what: &str,
    fill: impl FnOnce(ArrayViewMut<'_, f32, D>),
) -> PyResult<Bound<'py, PyAny>> {
    let (len, mut values) = (shape.size(), Vec::new());
    memory::reserve(&mut values, len, what).map_err(|error| to_python(py, error))?;
    values.resize(len, f32::NAN);
    if let Ok(view) = ArrayViewMut::from_shape(shape.clone(), &mut values) {
        fill(view);
    }
    array(py, shape, values)
}
