//! The tensors of a GGUF file under the names and with the rows that transformers has: what llama.cpp's
//! converter did is undone, by the order in which rows are read.

use std::ops::Range;
use std::sync::Arc;

use super::architecture::{Architecture, Rows};
use super::config::Description;
use super::container::{Container, TensorInfo};
use super::store::{Made, Named, Order, Part, Source};
use super::types;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// The parts of an expert, and of one of all tokens: gate, up and down.
const EXPERTS: [&str; 3] = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"];
/// Those of files that have each expert by itself, `ffn_gate.0` and so on: of Mixtral before stacks.
const LISTED_EXPERTS: [&str; 3] = ["ffn_gate", "ffn_up", "ffn_down"];
const FUSED_EXPERTS: &str = "ffn_gate_up_exps";
const FUSED_HEADS: &str = "attn_qkv";
/// What the rotary embedding is made of is part of the configuration.
const ROTARY: [&str; 3] = ["rope_freqs", "rope_factors_long", "rope_factors_short"];

/// The most experts or heads of a layer that get names of their own.
const MAX_LISTED: usize = 1 << 12;

/// The names of all tensors of a model.
///
/// # Errors
/// `Load` when the sizes of the configuration do not fit a tensor that is cut into several.
pub(super) fn named(
    files: &Arc<[Container]>,
    model: &Description<'_>,
    entry: &Architecture,
) -> Result<Vec<Named>> {
    let heads = Heads { dim: model.head_dim()?, queries: model.num_heads()?, keys: model.num_kv_heads()? };
    let mut naming = Naming { files, entry, heads, named: Vec::new() };
    for (file, container) in files.iter().enumerate() {
        for tensor in &container.tensors {
            naming.add(Stored { file, tensor, files })?;
        }
    }
    naming.add_activations(model)?;
    Ok(naming.named)
}

/// The sizes of attention.
#[derive(Clone, Copy)]
struct Heads {
    dim: usize,
    queries: usize,
    keys: usize,
}

/// A tensor and where it is.
#[derive(Clone, Copy)]
struct Stored<'a> {
    file: usize,
    tensor: &'a TensorInfo,
    files: &'a [Container],
}

struct Naming<'a> {
    files: &'a Arc<[Container]>,
    entry: &'a Architecture,
    heads: Heads,
    named: Vec<Named>,
}

impl Naming<'_> {
    fn add(&mut self, stored: Stored<'_>) -> Result<()> {
        let name = &*stored.tensor.name;
        let (stem, suffix) = match name.rsplit_once('.') {
            Some((stem, suffix @ ("weight" | "bias"))) => (stem, suffix),
            _ => (name, ""),
        };
        let Some((layers, layer, part)) = self.entry.layer_of(stem) else {
            if ROTARY.contains(&stem) {
                return Ok(());
            }
            let known = self.entry.name_of(stem).map(|known| format!("{known}.{suffix}"));
            let rows = Order::Same;
            self.push(
                known.unwrap_or_else(|| name.to_owned()),
                stored,
                stored.tensor.shape.clone(),
                rows,
                suffix,
            );
            return Ok(());
        };
        let (part, below) = (&*part, |known: &str| format!("{layers}.{layer}.{known}"));
        if let Some(place) = EXPERTS.iter().position(|known| *known == part) {
            let own = self.entry.experts.parts[place];
            return self.add_experts(&below(self.entry.experts.scope), &[own], suffix, stored);
        }
        if let Some((place, expert)) = listed_expert(part) {
            let own = self.entry.experts.parts[place];
            let name = below(&format!("{}.experts.{expert}.{own}.{suffix}", self.entry.experts.scope));
            self.push(name, stored, stored.tensor.shape.clone(), Order::Same, suffix);
            return Ok(());
        }
        let [gate, up, _] = self.entry.experts.parts;
        if part == FUSED_EXPERTS {
            return self.add_experts(&below(self.entry.experts.scope), &[gate, up], suffix, stored);
        }
        if part == FUSED_HEADS && self.entry.name_of(part).is_none() {
            return self.add_heads(&below("self_attn"), suffix, stored);
        }
        if self.entry.model_type == "granitemoeshared" && part == "ffn_up_shexp" {
            return self.add_both(&below("shared_mlp.input_linear"), layer, suffix, stored);
        }
        if self.entry.model_type == "granitemoeshared" && part == "ffn_gate_shexp" {
            return Ok(());
        }
        let known = match part {
            "ffn_gate_inp" => Some(self.entry.experts.router),
            _ => self.entry.name_of(part),
        };
        let Some(known) = known else {
            self.push(name.to_owned(), stored, stored.tensor.shape.clone(), Order::Same, "");
            return Ok(());
        };
        if self.entry.model_type == "stablelm" && matches!(part, "attn_q_norm" | "attn_k_norm") {
            let norm = if part == "attn_q_norm" { "q_layernorm" } else { "k_layernorm" };
            return self.add_norms(&below(&format!("self_attn.{norm}.norms")), suffix, stored);
        }
        let mut shape = stored.tensor.shape.clone();
        if part == "ffn_gate_inp_shexp" && shape.len() == 1 {
            shape.insert(0, 1);
        }
        // Sinks are a parameter by themselves.
        let suffix = if part == "attn_sinks" { "" } else { suffix };
        let full = if suffix.is_empty() { below(known) } else { below(&format!("{known}.{suffix}")) };
        self.push(full, stored, shape, self.order(part), suffix);
        Ok(())
    }

    /// The order in which the rows of a part are stored.
    fn order(&self, part: &str) -> Order {
        let Heads { dim, queries, keys } = self.heads;
        match (self.entry.rows, part) {
            (Rows::Pairs, "attn_q" | "attn_k") => Order::Pairs { head_dim: dim },
            (Rows::Ungrouped, "attn_qkv") => Order::Ungrouped { head_dim: dim, queries, keys },
            _ => Order::Same,
        }
    }

    /// Names a whole tensor.
    fn push(&mut self, name: String, stored: Stored<'_>, shape: Vec<usize>, order: Order, suffix: &str) {
        let is_norm = suffix == "weight" && stored.tensor.name.ends_with("norm.weight");
        let minus_one = self.entry.one_plus && is_norm;
        let rows = 0..stored.num_rows();
        self.push_rows(name, &[stored.rows(rows)], stored.tensor.type_id, shape, order, minus_one);
    }

    fn push_rows(
        &mut self,
        name: String,
        parts: &[Part],
        type_id: u32,
        shape: Vec<usize>,
        order: Order,
        minus_one: bool,
    ) {
        let source = match parts {
            [part] if order == Order::Same && !minus_one => Source::Stored(part.clone()),
            _ => {
                Source::Made(Made { files: Arc::clone(self.files), parts: parts.to_vec(), order, minus_one })
            }
        };
        self.named.push(Named { name, type_id, shape, source });
    }

    /// The experts of a stack; `parts` are what the rows of each are cut into.
    fn add_experts(&mut self, scope: &str, parts: &[&str], suffix: &str, stored: Stored<'_>) -> Result<()> {
        let shape = &stored.tensor.shape;
        let (is_weight, num_experts) = (suffix == "weight", shape[0]);
        if shape.len() != if is_weight { 3 } else { 2 } || !shape[1].is_multiple_of(parts.len()) {
            return Err(stored.wrong_shape("that of a stack of experts"));
        }
        if num_experts > MAX_LISTED {
            return Err(stored.wrong_shape(&format!("that of at most {MAX_LISTED} experts")));
        }
        let outputs = shape[1] / parts.len();
        for expert in 0..num_experts {
            for (place, part) in parts.iter().enumerate() {
                let first = (expert * parts.len() + place) * outputs;
                let (shape, rows) = if is_weight {
                    (vec![outputs, shape[2]], stored.rows(first..first + outputs))
                } else {
                    (vec![outputs], stored.elements(first..first + outputs)?)
                };
                let name = format!("{scope}.experts.{expert}.{part}.{suffix}");
                self.push_rows(name, &[rows], stored.tensor.type_id, shape, Order::Same, false);
            }
        }
        Ok(())
    }

    /// Queries, keys and values of one tensor where the family has three.
    fn add_heads(&mut self, scope: &str, suffix: &str, stored: Stored<'_>) -> Result<()> {
        let Heads { dim, queries, keys } = self.heads;
        let sizes = [queries * dim, keys * dim, keys * dim];
        if stored.num_rows() != sizes.iter().sum::<usize>() {
            return Err(
                stored.wrong_shape(&format!("that of {queries} and twice {keys} heads of {dim} rows"))
            );
        }
        let mut first = 0;
        for (name, size) in ["q_proj", "k_proj", "v_proj"].into_iter().zip(sizes) {
            let mut shape = stored.tensor.shape.clone();
            shape[0] = size;
            let order = self.order(match name {
                "q_proj" => "attn_q",
                "k_proj" => "attn_k",
                _ => "attn_v",
            });
            let rows = stored.rows(first..first + size);
            self.push_rows(
                format!("{scope}.{name}.{suffix}"),
                &[rows],
                stored.tensor.type_id,
                shape,
                order,
                false,
            );
            first += size;
        }
        Ok(())
    }

    /// Gate and up of an expert of all tokens, as one matrix.
    fn add_both(&mut self, name: &str, layer: &str, suffix: &str, up: Stored<'_>) -> Result<()> {
        let gate_name = format!("blk.{layer}.ffn_gate_shexp.{suffix}");
        let all = up.files.iter().enumerate().flat_map(|(file, container)| {
            container.tensors.iter().map(move |tensor| Stored { file, tensor, files: up.files })
        });
        let mut all = all.filter(|stored| stored.tensor.name == gate_name);
        let fits = |gate: &Stored<'_>| {
            gate.tensor.type_id == up.tensor.type_id && gate.tensor.shape == up.tensor.shape
        };
        let gate = all.next().filter(fits).ok_or_else(|| {
            up.wrong_shape(&format!("that of {}, with the same type", escape::name(&gate_name)))
        })?;
        let rows = [gate, up].map(|stored| stored.rows(0..stored.num_rows()));
        let mut shape = up.tensor.shape.clone();
        shape[0] *= 2;
        self.push_rows(format!("{name}.{suffix}"), &rows, up.tensor.type_id, shape, Order::Same, false);
        Ok(())
    }

    /// A norm of each head.
    fn add_norms(&mut self, scope: &str, suffix: &str, stored: Stored<'_>) -> Result<()> {
        let &[heads, width] = &stored.tensor.shape[..] else {
            return Err(stored.wrong_shape("[heads, width of a head]"));
        };
        if heads > MAX_LISTED {
            return Err(stored.wrong_shape(&format!("that of at most {MAX_LISTED} heads")));
        }
        for head in 0..heads {
            let rows = stored.rows(head..head + 1);
            let name = format!("{scope}.{head}.{suffix}");
            self.push_rows(name, &[rows], stored.tensor.type_id, vec![width], Order::Same, false);
        }
        Ok(())
    }

    /// The factors of Apertus' activation, which are metadata.
    fn add_activations(&mut self, model: &Description<'_>) -> Result<()> {
        if self.entry.model_type != "apertus" {
            return Ok(());
        }
        for name in ["alpha_p", "alpha_n"] {
            let key = format!("xielu.{name}");
            let layers = model.num_layers()?;
            let factors = model.metadata.numbers(&key)?.filter(|factors| factors.len() == layers);
            let factors: Option<Vec<f64>> =
                factors.and_then(|factors| factors.iter().map(|factor| factor.as_f64()).collect());
            let factors = factors.ok_or_else(|| {
                let rule = format!("a list of {layers} numbers, one for each layer");
                super::value::wrong(&key, &rule, model.metadata.get(&key))
            })?;
            for (layer, factor) in factors.into_iter().enumerate() {
                let name = format!("{}.{layer}.mlp.act_fn.{name}", self.entry.layers);
                let bytes = (factor as f32).to_le_bytes().to_vec();
                self.named.push(Named { name, type_id: 0, shape: vec![1], source: Source::Memory(bytes) });
            }
        }
        Ok(())
    }
}

/// What part of which expert a tensor is that has the name of one by itself.
fn listed_expert(part: &str) -> Option<(usize, usize)> {
    let (part, expert) = part.split_once('.')?;
    let place = LISTED_EXPERTS.iter().position(|known| *known == part)?;
    Some((place, expert.parse().ok().filter(|&expert| expert < MAX_LISTED)?))
}

impl Stored<'_> {
    fn num_rows(&self) -> usize {
        match &self.tensor.shape[..] {
            [len] => *len,
            [rows @ .., _] => rows.iter().product(),
            [] => 0,
        }
    }

    /// Some of the rows; of a vector, some of the elements.
    fn rows(&self, rows: Range<usize>) -> Part {
        let row_bytes = self.tensor.place.len() / self.num_rows().max(1);
        self.part(rows, row_bytes)
    }

    /// Some of the elements, in row-major order.
    fn elements(&self, elements: Range<usize>) -> Result<Part> {
        match types::block(self.tensor.type_id) {
            Some((1, bytes)) => Ok(self.part(elements, bytes)),
            _ => Err(self.wrong_shape("of a type without blocks")),
        }
    }

    fn part(&self, rows: Range<usize>, row_bytes: usize) -> Part {
        let start = self.tensor.place.start;
        let place = start + rows.start * row_bytes..start + rows.end * row_bytes;
        Part { file: self.file, place, row_bytes }
    }

    #[cold]
    fn wrong_shape(&self, rule: &str) -> Error {
        Error::load(format!(
            "the shape of the tensor {} must be {rule}, found {:?} of {}; the file is damaged or of another writer",
            escape::name(&self.tensor.name),
            self.tensor.shape,
            types::name(self.tensor.type_id)
        ))
    }
}
