//! A mixture of experts: a router chooses some MLPs for each row, and their results are summed in the order
//! of the router's scores.
//!
//! Rows of the same expert are computed together. A product depends on its row alone, and the sums of a row
//! follow its own slots, so results do not depend on the batch.
//!
//! Experts of many rows have their products on all threads, one expert after the other. A few rows are so little work
//! that threads would wait for each other: then each thread computes whole experts.

use super::{Mlp, MlpMemory, Norm};
use crate::context::{Experts as Memory, ForwardContext, Scratch, sized};
use crate::loader::{Loader, Part};
use crate::spec::{ExpertLayout, ExpertsSpec};
use crate::timing::Stage;
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::{MatrixOutput, PackedRows, Routing, Work, Workers, add_weighted, route, sigmoid};

/// The router, the experts, and the expert of all tokens.
#[derive(Debug)]
pub(crate) struct Experts {
    /// In float32, `[experts, hidden_size]`.
    router: PackedMatrix,
    router_bias: Option<Vec<f32>>,
    routing: Routing,
    mlps: Vec<Mlp>,
    /// How many a row takes.
    num_slots: usize,
    shared: Option<Shared>,
    hidden_size: usize,
}

#[derive(Debug)]
struct Shared {
    mlp: Mlp,
    /// Its factor is the sigmoid of a projection.
    gate: Option<PackedMatrix>,
}

/// The rows of one expert; passes reuse their memory.
#[derive(Default)]
pub(crate) struct ExpertRows {
    /// `[num_rows, hidden_size]`
    inputs: Vec<f32>,
    packed: PackedRows,
    mlp: MlpMemory,
    /// `[num_rows, hidden_size]`
    results: Vec<f32>,
}

impl ExpertRows {
    /// Computes the results of an expert for some rows, each of which is a slice.
    fn compute<'a>(&mut self, workers: &Workers, expert: &Mlp, inputs: impl Iterator<Item = &'a [f32]>) {
        self.inputs.clear();
        inputs.for_each(|row| self.inputs.extend_from_slice(row));
        let results = sized(&mut self.results, self.inputs.len());
        expert.expand(workers, self.inputs[..].into(), &mut self.packed, &mut self.mlp);
        expert.contract(workers, &mut self.packed, &self.mlp, false, results);
    }
}

/// The rows of an expert up to which a thread computes all of it.
const FEW_ROWS: usize = 16;

/// Whether threads compute whole experts, `groups` being the slots of each: all of few rows, and so many that no thread
/// waits long for the last one.
fn are_side_by_side(workers: &Workers, groups: &[&[usize]]) -> bool {
    let num_threads = workers.num_threads();
    let is_balanced = groups.len() >= 2 * num_threads || groups.len().is_multiple_of(num_threads);
    is_balanced && groups.iter().all(|group| group.len() <= FEW_ROWS)
}

impl Experts {
    /// Loads the experts of a layer.
    pub(crate) fn load(layer: &Loader<'_>, config: &ModelConfig, spec: &ExpertsSpec) -> Result<Self> {
        let hidden_size = config.hidden_size;
        let scope = if layer.has_any(&format!("{}.", spec.scope)) { spec.scope } else { SCOPE };
        let scope = layer.child(scope);
        let shared = spec.shared.map(|shared| {
            let gate = shared.gate.map(|name| scope.pack_float(&format!("{name}.weight"), 1, hidden_size));
            let loader = layer.child(shared.scope);
            let mlp = Mlp::load(&loader, config, shared.mlp, false, shared.intermediate_size)?;
            Ok::<_, rsgen_core::error::Error>(Shared { mlp, gate: gate.transpose()? })
        });
        // Each matrix of a packed stack is called by its place.
        let is_stacked = scope.contains(STACKS[0]) || scope.contains(&format!("{}.0", STACKS[0]));
        let is_listed = scope.contains(&format!("experts.0.{}.weight", LISTED[0]));
        let layout = match spec.layout {
            ExpertLayout::Listed(_) | ExpertLayout::Stacked(_) if is_stacked => ExpertLayout::Stacked(STACKS),
            // GGUF files and MLX have them one by one in all families.
            _ if is_listed => ExpertLayout::Listed(LISTED),
            layout => layout,
        };
        let experts =
            (0..spec.num_experts).map(|index| load_expert(&scope, spec, layout, index, hidden_size));
        let bias = spec.router_bias.map(|name| scope.floats(name, &[spec.num_experts]));
        let router = ROUTERS.into_iter().find(|name| scope.contains(name)).unwrap_or(spec.router);
        Ok(Self {
            router: scope.pack_float(router, spec.num_experts, hidden_size)?,
            router_bias: bias.transpose()?,
            routing: spec.routing,
            mlps: experts.collect::<Result<_>>()?,
            num_slots: spec.num_experts_per_tok,
            shared: shared.transpose()?,
            hidden_size,
        })
    }

    /// Computes the rows in `scratch.hidden`, normalized by `norm`, into `scratch.experts.sums`.
    pub(crate) fn forward(&self, norm: Option<&Norm>, context: &mut ForwardContext<'_>) -> Result<()> {
        let (workers, width) = (context.workers, self.hidden_size);
        let Scratch { hidden, packed, mlp, experts, .. } = &mut *context.scratch;
        let Memory { inputs, scores, picks, by_expert, rows, slots, shared, sums } = experts;
        let num_rows = hidden.len() / width;
        inputs.clear();
        inputs.extend_from_slice(hidden);
        if let Some(norm) = norm {
            workers.for_each_chunk(inputs, width, |_, row| norm.forward_heads(workers.isa(), row, width));
        }

        let scores = sized(scores, num_rows * self.mlps.len());
        let output = MatrixOutput { bias: self.router_bias.as_deref(), accumulate: false, columns: None };
        self.router.matmul(workers, inputs[..].into(), packed, output, scores);
        picks.resize(num_rows * self.num_slots, (0, 0.0));
        for (scores, picks) in
            scores.chunks_exact_mut(self.mlps.len()).zip(picks.chunks_exact_mut(self.num_slots))
        {
            route(self.routing, scores, picks);
        }

        // The slots of an expert side by side, ascending.
        by_expert.clear();
        by_expert.extend(0..picks.len());
        by_expert.sort_by_key(|&slot| picks[slot].0);
        let groups: Vec<&[usize]> = by_expert.chunk_by(|&a, &b| picks[a].0 == picks[b].0).collect();
        let at_once = if are_side_by_side(workers, &groups) { groups.len().max(1) } else { 1 };
        if rows.len() < at_once {
            rows.resize_with(at_once, ExpertRows::default);
        }
        let slots = sized(slots, picks.len() * width);
        let mut work = Work::default();
        for groups in groups.chunks(at_once) {
            let rows = &mut rows[..groups.len()];
            // A single chunk has the products within it on all threads; those of several are on the chunk's thread.
            workers.for_each_chunk(rows, 1, |i, rows| {
                let of_slot = |&slot: &usize| &inputs[slot / self.num_slots * width..][..width];
                rows[0].compute(workers, &self.mlps[picks[groups[i][0]].0], groups[i].iter().map(of_slot));
            });
            for (group, rows) in groups.iter().zip(rows) {
                for (slot, result) in group.iter().zip(rows.results.chunks_exact(width)) {
                    slots[slot * width..][..width].copy_from_slice(result);
                }
                self.mlps[picks[group[0]].0].work(group.len()).into_iter().for_each(|part| work += part);
            }
        }

        let sums = sized(sums, num_rows * width);
        sums.fill(0.0);
        let (isa, slots) = (workers.isa(), &*slots);
        workers.for_each_chunk(sums, width, |row, sum| {
            for slot in row * self.num_slots..(row + 1) * self.num_slots {
                add_weighted(isa, &slots[slot * width..][..width], picks[slot].1, sum);
            }
        });
        if let Some(Shared { mlp: expert, gate }) = &self.shared {
            let results = sized(shared, num_rows * width);
            expert.expand(workers, inputs[..].into(), packed, mlp);
            expert.contract(workers, packed, mlp, false, results);
            let mut factors = vec![1.0; num_rows];
            if let Some(gate) = gate {
                gate.matmul(workers, inputs[..].into(), packed, MatrixOutput::default(), &mut factors);
                for factor in &mut factors {
                    *factor = sigmoid(*factor);
                }
            }
            let results = &*results;
            workers.for_each_chunk(sums, width, |row, sum| {
                add_weighted(isa, &results[row * width..][..width], factors[row], sum);
            });
            expert.work(num_rows).into_iter().for_each(|part| work += part);
        }
        context.timing.lap(Stage::Experts, || work);
        context.check()
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let experts: usize = self.mlps.iter().map(Mlp::bytes).sum();
        experts + self.router.bytes() + self.shared_bytes()
    }

    /// What a pass over one token reads, in bytes.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let expert = self.mlps.first().map_or(0, Mlp::bytes);
        expert * self.num_slots + self.router.bytes() + self.shared_bytes()
    }

    fn shared_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.mlp.bytes())
    }
}

/// The scope of experts in transformers 5, its names of their stacks, and those of routers.
const SCOPE: &str = "mlp";
const STACKS: [&str; 2] = ["experts.gate_up_proj", "experts.down_proj"];
const ROUTERS: [&str; 2] = ["gate.weight", "router.weight"];
/// The names of the matrices of one expert.
const LISTED: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

fn load_expert(
    scope: &Loader<'_>,
    spec: &ExpertsSpec,
    layout: ExpertLayout,
    index: usize,
    hidden_size: usize,
) -> Result<Mlp> {
    let (width, activation, count) = (spec.intermediate_size, spec.activation, spec.num_experts);
    let stacked = |name: &str, num_outputs, is_transposed| Part {
        weight: name.to_owned(),
        bias: format!("{name}_bias"),
        num_outputs,
        is_transposed,
        place: Some((index, count)),
    };
    match layout {
        ExpertLayout::Listed([gate, up, down]) => {
            let parts = [gate, up].map(|name| Part::new(name, width));
            let (expert, down) = (scope.child("experts").index(index), Part::new(down, hidden_size));
            let bias = matches!(spec.layout, ExpertLayout::Alternating(_));
            Mlp::load_gated(&expert, &parts, RowOrder::Gated, &down, activation, bias)
        }
        ExpertLayout::Stacked([gate_up, down]) => {
            let parts = [stacked(gate_up, 2 * width, false)];
            let down = stacked(down, hidden_size, false);
            Mlp::load_gated(scope, &parts, RowOrder::Gated, &down, activation, false)
        }
        ExpertLayout::Alternating([gate_up, down]) => {
            let parts = [stacked(gate_up, 2 * width, true)];
            let down = stacked(down, hidden_size, true);
            Mlp::load_gated(scope, &parts, RowOrder::GatedPairs, &down, activation, true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_kernels::Isa;

    #[test]
    fn threads_take_whole_experts_of_few_rows_where_none_waits_long() {
        let slots: Vec<usize> = (0..=FEW_ROWS).collect();
        let are_side_by_side = |num_threads, counts: &[usize]| {
            let workers = Workers::new(num_threads, Isa::select().unwrap()).unwrap();
            let groups: Vec<&[usize]> = counts.iter().map(|&count| &slots[..count]).collect();
            are_side_by_side(&workers, &groups)
        };
        assert!(are_side_by_side(2, &[1, 1]) && are_side_by_side(2, &[1, 2, 1, FEW_ROWS, 1]));
        assert!(!are_side_by_side(2, &[1]) && !are_side_by_side(2, &[1, 1, 1]));
        assert!(are_side_by_side(4, &[1; 4]) && !are_side_by_side(8, &[1; 4]));
        assert!(!are_side_by_side(2, &[1, 1, FEW_ROWS + 1, 1]));
    }
}
