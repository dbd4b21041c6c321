//! Adapters beside the model: low-rank products that are added for the rows that name them, as S-LoRA
//! (arXiv:2311.03285) has it. The model's own products are computed once, for all rows together.
//!
//! The products are computed in float32, whatever the weights are, and each row's is that of the row alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::linear::Linear;
use crate::rows::ActiveRows;
use crate::weights::{Factors, TensorNames};
use rsgen_core::adapters::{AdapterId, AdapterWeights};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::tensor::{ComputeDtype, DType, StoredMatrix};
use rsgen_kernels::{Inputs, MatrixOutput, PackedRows, Workers};

/// The number of the next adapter of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The linear maps of a layer that an adapter can change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Site {
    Qkv,
    Output,
    Up,
    Down,
}

/// The factors of an adapter that no map has taken yet.
pub(crate) struct Unused {
    /// By the number of the module in the adapter: its name there, and its factors.
    factors: BTreeMap<usize, (String, Factors)>,
    /// The number by each form of the name of its weights.
    by_form: HashMap<String, usize>,
}

impl Unused {
    /// Those of an adapter for a family, whose tensors have these names.
    pub(crate) fn new(factors: BTreeMap<String, Factors>, names: &TensorNames) -> Self {
        let mut by_form = HashMap::new();
        for (number, module) in factors.keys().enumerate() {
            let weights = format!("{module}.weight");
            for form in names.forms(&weights).into_iter().chain([weights]) {
                by_form.insert(form, number);
            }
        }
        Self { factors: factors.into_iter().enumerate().collect(), by_form }
    }

    /// Takes those of a module, which the adapter may call otherwise, as files do.
    fn take(&mut self, module: &str) -> Option<(String, Factors)> {
        let number = self.by_form.get(&format!("{module}.weight"))?;
        self.factors.remove(number)
    }
}

/// An adapter as the rows of a pass use it.
#[derive(Debug)]
pub struct LoadedAdapter {
    id: AdapterId,
    /// By layer and [`Site`].
    layers: Vec<[Option<LowRank>; 4]>,
}

/// The adapters that a row is computed with, and the weights of their products.
#[derive(Debug, Clone)]
pub struct WeightedAdapters {
    weights: AdapterWeights,
    /// In the order of the weights.
    adapters: Arc<[Arc<LoadedAdapter>]>,
}

/// Two are equal when they change a model alike.
impl PartialEq for WeightedAdapters {
    fn eq(&self, other: &Self) -> bool {
        self.weights == other.weights
    }
}

impl WeightedAdapters {
    /// Finds the adapters of these weights; `None` when there is none, or one is missing.
    pub fn find(
        weights: &AdapterWeights,
        find: impl Fn(AdapterId) -> Option<Arc<LoadedAdapter>>,
    ) -> Option<Self> {
        let adapters: Arc<[_]> = weights.iter().map(|(id, _)| find(id)).collect::<Option<_>>()?;
        (!adapters.is_empty()).then(|| Self { weights: weights.clone(), adapters })
    }

    /// The weights by the numbers of the adapters.
    pub fn weights(&self) -> &AdapterWeights {
        &self.weights
    }

    fn weight_of(&self, id: AdapterId) -> Option<f32> {
        self.weights.iter().find(|&(own, _)| own == id).map(|(_, weight)| weight)
    }
}

/// To `W x` comes `B (scale * A x)`, for each module of the map.
#[derive(Debug)]
struct LowRank {
    /// `[ranks, num_inputs]`: those of all modules.
    a: PackedMatrix,
    /// Of each rank.
    scales: Vec<f32>,
    modules: Vec<Module>,
    /// The output of each row of the modules; `None` where they are the same.
    outputs: Option<Vec<u32>>,
}

/// The factor of a module next to its outputs.
#[derive(Debug)]
struct Module {
    /// `[rows, rank]`
    b: PackedMatrix,
    /// Its first row among those of all modules.
    first_row: usize,
}

/// The memory of a product; passes reuse it.
#[derive(Default)]
pub(crate) struct LowRankMemory {
    /// The rows of one adapter, and its weight in each.
    rows: Vec<(usize, f32)>,
    inputs: Vec<f32>,
    ranks: Vec<f32>,
    products: Vec<f32>,
    packed: PackedRows,
}

/// The adapters of the rows of a pass, in one layer.
pub(crate) struct LowRankPass<'a> {
    pub(crate) rows: &'a ActiveRows<'a>,
    pub(crate) layer: usize,
    pub(crate) workers: &'a Workers,
}

impl LowRankPass<'_> {
    /// Whether a row's adapter changes one of these maps.
    pub(crate) fn changes(&self, sites: &[Site]) -> bool {
        let adapters = self.rows.batch().adapters;
        !adapters.is_empty()
            && self
                .rows
                .iter()
                .filter_map(|row| row.adapters)
                .flat_map(|own| adapters[own].adapters.iter())
                .any(|adapter| sites.iter().any(|&site| adapter.at(self.layer, site).is_some()))
    }

    /// The adapter with the next number after `last`. A row's products are so added in an order that does not depend
    /// on the other rows.
    fn next(&self, last: Option<AdapterId>) -> Option<&LoadedAdapter> {
        let all = self.rows.batch().adapters.iter().flat_map(|adapters| adapters.adapters.iter());
        let later = all.map(|adapter| &**adapter).filter(|adapter| Some(adapter.id) > last);
        later.min_by_key(|adapter| adapter.id)
    }

    /// Adds the products with the inputs of a map to its outputs.
    pub(crate) fn add(&self, site: Site, x: Inputs<'_>, memory: &mut LowRankMemory, out: &mut [f32]) {
        let num_rows = self.rows.len();
        let (num_inputs, num_outputs) = (x.values.len() / num_rows, out.len() / num_rows);
        let LowRankMemory { rows, inputs, ranks, products, packed } = memory;
        let all = self.rows.batch().adapters;
        let mut last = None;
        while let Some(adapter) = self.next(last) {
            last = Some(adapter.id);
            let Some(LowRank { a, scales, modules, outputs }) = adapter.at(self.layer, site) else {
                continue;
            };
            rows.clear();
            rows.extend(
                self.rows
                    .iter()
                    .enumerate()
                    .filter_map(|(place, row)| Some((place, all[row.adapters?].weight_of(adapter.id)?))),
            );
            if rows.is_empty() {
                continue;
            }
            inputs.clear();
            for &(row, _) in &*rows {
                inputs.extend_from_slice(&x.values[row * num_inputs..][..num_inputs]);
            }
            let num_ranks = scales.len();
            ranks.resize(rows.len() * num_ranks, 0.0);
            let x = Inputs { values: inputs, prologue: x.prologue };
            a.matmul(self.workers, x, packed, MatrixOutput::default(), ranks);
            for (ranks, (_, weight)) in ranks.chunks_exact_mut(num_ranks).zip(&*rows) {
                ranks.iter_mut().zip(scales).for_each(|(value, scale)| *value *= scale * weight);
            }
            let mut first_rank = 0;
            for Module { b, first_row } in modules {
                let (rank, width) = (b.num_inputs(), b.num_outputs());
                inputs.clear();
                for ranks in ranks.chunks_exact(num_ranks) {
                    inputs.extend_from_slice(&ranks[first_rank..][..rank]);
                }
                first_rank += rank;
                products.resize(rows.len() * width, 0.0);
                b.matmul(self.workers, inputs[..].into(), packed, MatrixOutput::default(), products);
                for (&(row, _), products) in rows.iter().zip(products.chunks_exact(width)) {
                    let out = &mut out[row * num_outputs..][..num_outputs];
                    match outputs {
                        None => {
                            let own = out[*first_row..].iter_mut().zip(products);
                            own.for_each(|(out, product)| *out += product);
                        }
                        Some(outputs) => {
                            let own = outputs[*first_row..].iter().zip(products);
                            own.for_each(|(&output, product)| out[output as usize] += product);
                        }
                    }
                }
            }
        }
    }
}

impl LoadedAdapter {
    /// Packs an adapter for the maps of a model's layers.
    ///
    /// # Errors
    /// `Load` when the model has no such map, or one of another shape; `Capacity` without memory.
    pub(crate) fn load<'m>(
        workers: &Workers,
        mut factors: Unused,
        layers: impl Iterator<Item = [Option<&'m Linear>; 4]>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let pack = |linear: Option<&Linear>, factors: &mut Unused| {
            linear.map_or(Ok(None), |linear| LowRank::pack(workers, linear, factors))
        };
        let layers = layers
            .map(|[qkv, output, up, down]| {
                if interrupted() {
                    return Err(Error::cancelled());
                }
                let [qkv, output] = [pack(qkv, &mut factors)?, pack(output, &mut factors)?];
                Ok([qkv, output, pack(up, &mut factors)?, pack(down, &mut factors)?])
            })
            .collect::<Result<_>>()?;
        match factors.factors.into_values().next() {
            None => Ok(Self { id: AdapterId(NEXT_ID.fetch_add(1, Ordering::Relaxed)), layers }),
            Some((left, _)) => Err(Error::load(format!(
                "it changes {}, which no adapter beside the model can, or which the model does not have; open the model with \
                 it, by the option `adapter`",
                escape::name(&left)
            ))),
        }
    }

    fn at(&self, layer: usize, site: Site) -> Option<&LowRank> {
        self.layers[layer][site as usize].as_ref()
    }

    /// Its number.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// The memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.layers.iter().flatten().flatten().map(LowRank::bytes).sum()
    }
}

impl LowRank {
    /// Takes the factors for a map's modules; `None` if there are none.
    fn pack(workers: &Workers, linear: &Linear, factors: &mut Unused) -> Result<Option<Self>> {
        let num_inputs = linear.num_inputs();
        let (mut parts, mut num_rows) = (Vec::new(), 0);
        for (module, rows) in linear.modules() {
            if let Some((name, own)) = factors.take(module) {
                let shapes = [own.a.len(), own.b.len()];
                if shapes != [own.rank * num_inputs, rows * own.rank] {
                    return Err(Error::load(format!(
                        "the factors of {} must be for a matrix of {num_inputs} inputs and {rows} outputs, but are for {} and {}; \
                         it belongs to another model",
                        escape::name(&name),
                        shapes[0] / own.rank,
                        shapes[1] / own.rank
                    )));
                }
                parts.push((num_rows, own));
            }
            num_rows += rows;
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let ranks = parts.iter().map(|(_, own)| own.rank).sum();
        let dtype = parts[0].1.dtype;
        let dtype = if parts.iter().all(|(_, own)| own.dtype == dtype) { dtype } else { DType::F32 };
        let (mut a, mut scales, mut modules) = (Vec::new(), Vec::new(), Vec::new());
        for (first_row, own) in parts {
            a.extend_from_slice(&own.a);
            scales.resize(scales.len() + own.rank, own.scale);
            let b = packed(workers, &own.b, own.b.len() / own.rank, own.rank, dtype)?;
            modules.push(Module { b, first_row });
        }
        let a = packed(workers, &a, ranks, num_inputs, dtype)?;
        Ok(Some(Self { a, scales, modules, outputs: outputs_of(linear, num_rows) }))
    }

    fn bytes(&self) -> usize {
        self.a.bytes() + self.modules.iter().map(|module| module.b.bytes()).sum::<usize>()
    }
}

/// The output of each row of a map's modules; `None` where they are the same.
fn outputs_of(linear: &Linear, num_rows: usize) -> Option<Vec<u32>> {
    if linear.order() == RowOrder::Stacked {
        return None;
    }
    let mut outputs = vec![0; num_rows];
    for output in 0..linear.num_outputs() {
        if let Some(row) = linear.order().row(output, num_rows) {
            outputs[row] = output as u32;
        }
    }
    Some(outputs)
}

/// A matrix in the type that the adapter holds it in.
fn packed(
    workers: &Workers,
    values: &[f32],
    num_rows: usize,
    num_columns: usize,
    dtype: DType,
) -> Result<PackedMatrix> {
    let bytes: Vec<u8> = values.iter().flat_map(|&value| dtype.to_le_bytes(value)).collect();
    let bytes = (&bytes[..]).into();
    let stored = StoredMatrix { encoding: dtype.into(), num_rows, num_columns, bytes, cancelled: None };
    PackedMatrix::pack(workers, &[stored], RowOrder::Stacked, None, ComputeDtype::F32)
}
