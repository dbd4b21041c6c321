//! The tensors of a GGUF file that is written: which there are, by the table that files are read by, and their
//! bytes, by the order in which the reader would find their rows.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::super::architecture::Architecture;
use super::super::container::{Container, TensorInfo};
use super::super::store::{Made, Named, Order, Part, Source};
use super::super::types;
use super::entries::ALIGNMENT;
use crate::weights::safetensors::TensorView;
use crate::weights::shards::Weights;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::memory;
use rsgen_kernels::tensor::{DType, Encoding};

const F32: u32 = 0;
/// The most heads of a layer that have tensors of their own.
const MAX_HEADS: usize = 1 << 12;
/// The bytes of two tensors that are compared at a time.
const COMPARED_BYTES: usize = 1 << 24;
/// The stacks of experts: of the families that write them, and of all in transformers 5.
const STACKS: [[&str; 2]; 2] =
    [["experts.gate_up_proj", "experts.down_proj"], ["input_linear.weight", "output_linear.weight"]];

/// A tensor of the file: its place is counted from the first tensor.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) info: TensorInfo,
    /// Its bytes where the configuration gives them.
    pub(super) given: Option<Vec<u8>>,
}

/// What the tensors of a model are called, and how its experts are stored.
pub(super) struct Names<'a> {
    pub(super) weights: &'a Weights,
    pub(super) entry: &'a Architecture,
    pub(super) num_layers: usize,
    pub(super) num_experts: usize,
    /// Whether stacks of experts hold transposed matrices whose gates and ups take turns.
    pub(super) alternates: bool,
    /// Whether the head is the embedding.
    pub(super) is_tied: bool,
}

/// Where the numbers of a tensor of the reader are: in a tensor of the folder, from `first` on, a row and a
/// column being so many numbers apart.
struct Place {
    name: String,
    first: usize,
    row: usize,
    column: usize,
}

impl Names<'_> {
    /// All tensors of the file, in the order of the layers.
    ///
    /// # Errors
    /// `Load` when one is stored in blocks, or those of a stack do not belong together.
    pub(super) fn plan(&self) -> Result<Vec<Planned>> {
        let mut plan = Vec::new();
        for part in self.entry.parts() {
            let Some(known) = self.entry.name_of(part) else { continue };
            for suffix in ["weight", "bias"] {
                let name = format!("{known}.{suffix}");
                if !(part == "output" && suffix == "weight" && self.is_head_the_embedding(&name)?) {
                    self.whole(&mut plan, &format!("{part}.{suffix}"), &name)?;
                }
            }
        }
        for layer in 0..self.num_layers {
            self.plan_layer(&mut plan, layer)?;
        }
        let mut end = 0;
        for planned in &mut plan {
            let start = usize::next_multiple_of(end, ALIGNMENT);
            end = start + planned.info.place.len();
            planned.info.place = start..end;
        }
        Ok(plan)
    }

    fn plan_layer(&self, plan: &mut Vec<Planned>, layer: usize) -> Result<()> {
        let below = |name: &str| format!("{}.{layer}.{name}", self.entry.layers);
        for part in self.entry.parts() {
            let Some(known) = self.entry.name_of(part) else { continue };
            for suffix in ["weight", "bias"] {
                let stored = format!("blk.{layer}.{part}.{suffix}");
                let name = match (part, suffix) {
                    ("attn_sinks", "weight") => below(known),
                    _ => below(&format!("{known}.{suffix}")),
                };
                self.whole(plan, &stored, &name)?;
            }
        }
        if self.entry.model_type == "stablelm" {
            for (part, norm) in [("attn_q_norm", "q_layernorm"), ("attn_k_norm", "k_layernorm")] {
                let name = |head: usize| below(&format!("self_attn.{norm}.norms.{head}.weight"));
                let count = (0..MAX_HEADS).take_while(|&head| self.weights.contains(&name(head))).count();
                if let Some(first) = self.weights.tensor(&name(0))?.filter(|_| count > 0) {
                    let shape = vec![count, first.shape.iter().product()];
                    plan.push(planned(format!("blk.{layer}.{part}.weight"), shape, F32)?);
                }
            }
        }
        if let Some(both) = self.weights.tensor(&below("shared_mlp.input_linear.weight"))? {
            let &[rows, columns] = both.shape else { return Err(wrong_shape(&both)) };
            for part in ["ffn_gate_shexp", "ffn_up_shexp"] {
                let name = format!("blk.{layer}.{part}.weight");
                plan.push(planned(name, vec![rows / 2, columns], type_of(&both)?)?);
            }
        }
        let experts = &self.entry.experts;
        for suffix in ["weight", "bias"] {
            let router = below(&format!("{}.{suffix}", experts.router));
            self.whole(plan, &format!("blk.{layer}.ffn_gate_inp.{suffix}"), &router)?;
            for (own, part) in experts.parts.iter().zip(["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]) {
                let name = |index: usize| below(&format!("{}.experts.{index}.{own}.{suffix}", experts.scope));
                let mut shapes = BTreeSet::new();
                for index in 0..self.num_experts {
                    if let Some((tensor, shape, _)) = self.numbers(&name(index))? {
                        shapes.insert((shape, type_of(&tensor)?));
                    }
                }
                let mut kinds: Vec<u32> = shapes.iter().map(|(_, kind)| *kind).collect();
                kinds.dedup();
                let Some((shape, kind)) = shapes.pop_first() else { continue };
                let kind = if kinds.len() == 1 && shape.len() > 1 { kind } else { F32 };
                let shape = [vec![self.num_experts], shape].concat();
                plan.push(planned(format!("blk.{layer}.{part}.{suffix}"), shape, kind)?);
            }
        }
        Ok(())
    }

    /// Adds a tensor that is one of the folder, if that has it.
    fn whole(&self, plan: &mut Vec<Planned>, stored: &str, name: &str) -> Result<()> {
        let Some((tensor, shape, _)) = self.numbers(name)? else { return Ok(()) };
        // What is added, multiplied by element or decides, llama.cpp wants in float32.
        let always = ["_norm.", "norm_2.", "ffn_gate_inp", "position_embd"];
        let is_wide = shape.len() < 2 || always.iter().any(|part| stored.contains(part));
        let kind = if is_wide { F32 } else { type_of(&tensor)? };
        plan.push(planned(stored.to_owned(), shape, kind)?);
        Ok(())
    }

    /// Whether the head of this name has the numbers of the embedding, which it is tied to.
    fn is_head_the_embedding(&self, head: &str) -> Result<bool> {
        let embedding = self.entry.name_of("token_embd").map(|name| format!("{name}.weight"));
        let (Some(head), Some(embedding)) =
            (self.weights.tensor(head)?, self.weights.tensor(&embedding.unwrap_or_default())?)
        else {
            return Ok(false);
        };
        if !self.is_tied || head.shape != embedding.shape || head.encoding != embedding.encoding {
            return Ok(false);
        }
        for start in (0..head.bytes.len()).step_by(COMPARED_BYTES) {
            let range = start..head.bytes.len().min(start + COMPARED_BYTES);
            if head.bytes.part(range.clone()).to_vec()? != embedding.bytes.part(range).to_vec()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The tensor of the folder that has the numbers of a tensor of the reader, the shape of the latter, and where
    /// they are.
    fn numbers(&self, name: &str) -> Result<Option<(TensorView<'_>, Vec<usize>, Place)>> {
        if let Some(tensor) = self.weights.tensor(name)? {
            let is_turned = self.weights.is_transposed_in_class(name) && !tensor.is_transposed;
            let (shape, row, column) = match *tensor.shape {
                [inputs, outputs] if is_turned => (vec![outputs, inputs], 1, outputs),
                [_, columns] => (tensor.shape.to_vec(), columns, 1),
                _ => (tensor.shape.to_vec(), 1, 1),
            };
            let place = Place { name: name.to_owned(), first: 0, row, column };
            return Ok(Some((tensor, shape, place)));
        }
        self.expert(name)
    }

    /// The same of an expert in a stack.
    fn expert(&self, name: &str) -> Result<Option<(TensorView<'_>, Vec<usize>, Place)>> {
        let Some((scope, rest)) = name.split_once(".experts.") else { return Ok(None) };
        let mut parts = rest.split('.');
        let (index, part, suffix) = (parts.next(), parts.next(), parts.next());
        let index: Option<usize> = index.and_then(|index| index.parse().ok());
        let at = self.entry.experts.parts.iter().position(|own| Some(*own) == part);
        let (Some(index), Some(at)) = (index, at) else { return Ok(None) };
        for stack in STACKS.map(|stacks| stacks[usize::from(at == 2)]) {
            let ending = if suffix == Some("bias") { "_bias" } else { "" };
            let stack = format!("{scope}.{stack}{ending}");
            let Some(tensor) = self.weights.tensor(&stack)? else { continue };
            let is_pair = at < 2;
            let place = |first, row, column| Place { name: stack, first, row, column };
            let (shape, place) = match *tensor.shape {
                [experts, _] | [experts, _, _] if index >= experts => return Err(wrong_shape(&tensor)),
                // Biases take turns where matrices do.
                [_, outputs] if is_pair => (vec![outputs / 2], place(index * outputs + at, 2, 1)),
                [_, outputs] => (vec![outputs], place(index * outputs, 1, 1)),
                [_, inputs, outputs] if self.alternates => {
                    let (rows, step, first) = if is_pair { (outputs / 2, 2, at) } else { (outputs, 1, 0) };
                    (vec![rows, inputs], place(index * inputs * outputs + first, step, outputs))
                }
                [_, outputs, inputs] => {
                    let rows = if is_pair { outputs / 2 } else { outputs };
                    let first = (index * outputs + if is_pair { at * rows } else { 0 }) * inputs;
                    (vec![rows, inputs], place(first, inputs, 1))
                }
                _ => return Err(wrong_shape(&tensor)),
            };
            return Ok(Some((tensor, shape, place)));
        }
        Ok(None)
    }

    /// Checks that each tensor of the reader has its numbers in the folder, in the same shape.
    pub(super) fn check(&self, named: &[Named]) -> Result<()> {
        for Named { name, shape, source, .. } in named {
            let found = self.numbers(name)?.map(|(_, shape, _)| shape);
            if !matches!(source, Source::Memory(_)) && found.as_ref() != Some(shape) {
                return Err(Error::load(format!(
                    "{}: its shape must be {shape:?} in a GGUF file of this architecture, found {found:?}",
                    escape::name(name)
                )));
            }
        }
        Ok(())
    }

    /// The bytes of a tensor of the file. `kept` is the tensor of the folder that was read last.
    pub(super) fn bytes(
        &self,
        planned: &Planned,
        named: &[Named],
        kept: &mut Option<(String, DType, Vec<u8>)>,
    ) -> Result<Vec<u8>> {
        if let Some(bytes) = &planned.given {
            return Ok(bytes.clone());
        }
        let mut out = Vec::new();
        memory::reserve(&mut out, planned.info.place.len(), "bytes of a tensor")?;
        out.resize(planned.info.place.len(), 0);
        for tensor in named {
            let whole;
            let (parts, order, minus_one) = match &tensor.source {
                Source::Stored(part) => {
                    whole = [part.clone()];
                    (&whole[..], Order::Same, false)
                }
                Source::Made(Made { parts, order, minus_one, .. }) => (&parts[..], *order, *minus_one),
                Source::Memory(_) => continue,
            };
            let within = |part: &Part| contains(&planned.info.place, &part.place);
            if parts.iter().any(within) {
                self.fill(&mut out, planned, tensor, parts, order, minus_one, kept)
                    .context(|| escape::name(&tensor.name).into_owned())?;
            }
        }
        Ok(out)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one tensor")]
    fn fill(
        &self,
        out: &mut [u8],
        planned: &Planned,
        tensor: &Named,
        parts: &[Part],
        order: Order,
        plus_one: bool,
        kept: &mut Option<(String, DType, Vec<u8>)>,
    ) -> Result<()> {
        let gone = || Error::internal("a planned tensor is in the folder");
        let (view, shape, place) = self.numbers(&tensor.name)?.ok_or_else(gone)?;
        let dtype = dtype_of(&view)?;
        if kept.as_ref().is_none_or(|(name, ..)| *name != place.name) {
            *kept = None;
            *kept = Some((place.name.clone(), dtype, view.bytes.to_vec()?));
        }
        let (_, _, numbers) = kept.as_ref().ok_or_else(gone)?;
        let kind = types::encoding(planned.info.type_id).and_then(Encoding::dtype);
        let kind = kind.ok_or_else(gone)?;
        let (size, own) = (kind.bytes(), dtype.bytes());
        let row_bytes = parts.first().map_or(1, |part| part.row_bytes);
        let (in_row, columns) = (row_bytes / size, shape.last().copied().filter(|_| shape.len() > 1));
        let columns = columns.unwrap_or(1);
        let count: usize = shape.iter().product();
        for row in 0..count / in_row.max(1) {
            let mut at = order.stored_row(row) * row_bytes;
            let part = parts.iter().find(|part| {
                let is_here = at < part.place.len();
                if !is_here {
                    at -= part.place.len();
                }
                is_here
            });
            let part = part.ok_or_else(gone)?;
            if !contains(&planned.info.place, &part.place) {
                continue;
            }
            let start = part.place.start + at - planned.info.place.start;
            let to = &mut out[start..start + row_bytes];
            let first = row * in_row;
            let index =
                |number: usize| place.first + number / columns * place.row + number % columns * place.column;
            if kind == dtype && !plus_one && place.column == 1 && first % columns + in_row <= columns {
                let from = index(first) * own;
                to.copy_from_slice(&numbers[from..from + row_bytes]);
                continue;
            }
            for (number, to) in (first..).zip(to.chunks_exact_mut(size)) {
                let from = &numbers[index(number) * own..][..own];
                if kind == dtype && !plus_one {
                    to.copy_from_slice(from);
                } else {
                    let value = dtype.to_f32(from).next().unwrap_or_default();
                    to.copy_from_slice(&(value + f32::from(u8::from(plus_one))).to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

/// The tensors as those of a file, for the reader to name them.
pub(super) fn container(
    name: &str,
    metadata: super::super::value::Metadata,
    plan: &[Planned],
) -> Arc<[Container]> {
    let tensors = plan.iter().map(|planned| {
        let TensorInfo { name, shape, type_id, place } = &planned.info;
        TensorInfo { name: name.clone(), shape: shape.clone(), type_id: *type_id, place: place.clone() }
    });
    let tensors = tensors.collect();
    Arc::new([Container { name: name.to_owned(), bytes: Vec::new().into(), metadata, tensors }])
}

/// A tensor of this type.
fn planned(name: String, shape: Vec<usize>, type_id: u32) -> Result<Planned> {
    let size = types::block(type_id).map_or(1, |(_, bytes)| bytes);
    let count = shape.iter().product::<usize>();
    if count == 0 {
        return Err(Error::load(format!("{} may not be empty", escape::name(&name))));
    }
    Ok(Planned { info: TensorInfo { name, shape, type_id, place: 0..count * size }, given: None })
}

/// A small tensor of these numbers.
pub(super) fn given(name: &str, numbers: &[f32]) -> Result<Planned> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(Planned { given: Some(bytes), ..planned(name.to_owned(), vec![numbers.len()], F32)? })
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn dtype_of(tensor: &TensorView<'_>) -> Result<DType> {
    tensor.encoding.dtype().ok_or_else(|| {
        Error::load(format!(
            "{} is stored as {}, and only float32, bfloat16 and float16 are written to GGUF files; convert the model \
             before it was quantized",
            escape::name(tensor.name),
            tensor.encoding
        ))
    })
}

fn type_of(tensor: &TensorView<'_>) -> Result<u32> {
    Ok(match dtype_of(tensor)? {
        DType::F32 => F32,
        DType::F16 => 1,
        DType::Bf16 => 30,
    })
}

#[cold]
fn wrong_shape(tensor: &TensorView<'_>) -> Error {
    Error::load(format!(
        "{}: no GGUF file has a tensor of the shape {:?} there",
        escape::name(tensor.name),
        tensor.shape
    ))
}
