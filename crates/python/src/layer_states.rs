//! Hidden states and attention weights as Python sees them: for each step a tuple of arrays, shaped as
//! transformers shapes them.
//!
//! Positions of padding hold NaN, and as keys no weight. So do the rows of sequences that have ended.

use numpy::ndarray::{ArrayViewMut, Dimension, Ix3, Ix4};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arrays::array;
use super::errors::to_python;
use rsgen::engine;
use rsgen_core::memory;
use rsgen_core::types::LayerShape;
use rsgen_generation::LayerStates;

/// Hidden states and attention weights: for each step a tuple of arrays.
pub(super) type States<'py> = [Option<Bound<'py, PyTuple>>; 2];

/// The states of an output, which are taken out of it.
pub(super) fn of_output<'py>(
    py: Python<'py>,
    output: &mut engine::GenerationOutput,
) -> PyResult<States<'py>> {
    let kept: Option<Vec<_>> =
        output.sequences.iter_mut().map(|sequence| sequence.layer_states.take()).collect();
    let Some(kept) = kept.filter(|kept| !kept.is_empty()) else { return Ok([None, None]) };
    let num_steps = kept.iter().map(Vec::len).max().unwrap_or(0);
    let firsts: Vec<Option<&LayerStates>> =
        kept.iter().map(|steps| steps.first().map(|own| &**own)).collect();
    let width = firsts.iter().flatten().map(|first| first.prompt_mask.len()).max().unwrap_or(0);
    let columns: Vec<Vec<usize>> = firsts.iter().map(|first| columns(*first, width)).collect();
    let (mut hidden_states, mut attentions) = (Vec::new(), Vec::new());
    for step in 0..num_steps {
        let rows: Vec<Row<'_>> = kept
            .iter()
            .zip(&columns)
            .map(|(steps, columns)| Row { states: steps.get(step).map(|own| &**own), columns })
            .collect();
        let step = Step { rows: &rows, prompt_width: width, step };
        hidden_states.extend(step.hidden_states(py)?);
        attentions.extend(step.attentions(py)?);
    }
    let tuple = |steps: Vec<_>| (!steps.is_empty()).then(|| PyTuple::new(py, steps)).transpose();
    Ok([tuple(hidden_states)?, tuple(attentions)?])
}

/// The states of whole texts of one length.
pub(super) fn of_texts<'py>(py: Python<'py>, states: &[LayerStates]) -> PyResult<States<'py>> {
    let width = states.first().map_or(0, |first| first.num_tokens);
    let columns: Vec<usize> = (0..width).collect();
    let rows: Vec<Row<'_>> = states.iter().map(|own| Row { states: Some(own), columns: &columns }).collect();
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
        let (rows, len, size) = (self.rows.len(), self.len(), shape.hidden_size);
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
            filled(py, Ix3(rows, len, size), "hidden states", fill)
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
