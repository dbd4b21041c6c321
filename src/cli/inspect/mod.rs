//! `rsgen inspect`: describes a model or an adapter, its memory and whether it can be loaded, from its small
//! files and the headers of its weights.

mod adapter;
mod description;

use super::Shell;
use super::args::InspectArguments;
use super::failure::Failure;
use super::model::ModelSource;
use super::numbers::{bytes, count};
use super::terminal::Terminal;
use adapter::AdapterDescription;
use description::{Description, Shape, SpecialToken, TensorSum};
use rsgen_core::{escape, refuse_if};
use rsgen_generation::GenerationConfig;
use rsgen_model::weights::{Adapter, LayerType, ModelFiles};

pub(super) fn run(arguments: &InspectArguments, shell: &Shell<'_>) -> Result<(), Failure> {
    let &Shell { bundled, terminal, .. } = shell;
    let files = ModelSource::choose(arguments.model.as_deref(), bundled)?.files()?;
    if Adapter::is_one(&files) {
        refuse_if(!arguments.adapter.is_empty(), "adapter", || {
            format!("must be left out, because {} is an adapter and no model", escape::name(files.name()))
        })?;
        let description = AdapterDescription::of(&files);
        return Ok(arguments.output.write(&description, || description.page(terminal))?);
    }
    let mut description = Description::of(&files)?;
    for adapter in &arguments.adapter {
        let files = ModelFiles::open(adapter, None, None).map_err(|error| error.within("adapter"))?;
        description.adapters.push(AdapterDescription::of(&files));
    }
    Ok(arguments.output.write(&description, || page(&description, terminal))?)
}

/// The description for people: a line for each entry, its name dimmed.
fn page(description: &Description, terminal: &Terminal) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| terminal.add_line(&mut page, name, value);
    line("model", &description.model);
    line("architecture", description.architecture.as_deref().unwrap_or("unknown"));
    match &description.unsupported_because {
        None => line("supported", "yes"),
        Some(reason) => line("supported", &format!("no: {reason}")),
    }
    if let Some(weights) = &description.weights {
        let dtypes = weights.weight_dtypes.join(", ");
        line("parameters", &format!("{} in {dtypes}", count(weights.parameters)));
        line("on disk", &bytes(weights.bytes_on_disk));
        describe_groups(&weights.tensor_groups, &mut line);
    }
    if let Some(shape) = &description.shape {
        describe_shape(shape, &mut line);
    }
    match (description.tokenizer_file, description.tokenizer_model) {
        (Some(file), Some(model)) => line("tokenizer", &format!("{file}, {model}")),
        _ => line("tokenizer", "none: give token ids"),
    }
    if let Some(special) = &description.special_tokens {
        let bos = special.bos.iter().map(|token| ("bos", token));
        let eos = special.eos.iter().map(|token| ("eos", token));
        let pad = special.pad.iter().map(|token| ("pad", token));
        let shown: Vec<String> =
            bos.chain(eos).chain(pad).map(|(kind, token)| format!("{kind} {}", shown_token(token))).collect();
        line("special", &shown.join(", "));
    }
    let defaults = description.generation_config.iter().filter(|(name, _)| GenerationConfig::is_field(name));
    let defaults: Vec<String> = defaults.map(|(name, value)| format!("{name} {value}")).collect();
    let defaults = if defaults.is_empty() { "none".to_owned() } else { defaults.join(", ") };
    line("defaults", &defaults);
    if !description.never_applied.is_empty() {
        let said = description.never_applied.iter().map(|(name, value)| format!("{name} {value}"));
        let said: Vec<String> = said.collect();
        let remedy = "set what a task needs in the call, and write a prefix before the text";
        line("never applied", &format!("{}; {remedy}", said.join(", ")));
    }
    for adapter in &description.adapters {
        line("adapter", &adapter.summary());
    }
    if let Some(memory) = &description.memory {
        let (weights, cache) = (bytes(memory.weight_bytes), bytes(memory.kv_cache_bytes_per_1000_tokens));
        line("memory", &format!("{weights} of weights, {cache} of KV cache for 1000 tokens"));
    }
    page
}

/// The parts of a model whose tensors are not all of one type.
fn describe_groups(groups: &[TensorSum], line: &mut impl FnMut(&str, &str)) {
    if groups.windows(2).all(|pair| pair[0].dtype == pair[1].dtype) {
        return;
    }
    let width = groups.iter().map(|group| group.dtype.len()).max().unwrap_or(0);
    for (at, TensorSum { group, dtype, tensors, bytes: size, .. }) in groups.iter().enumerate() {
        let noun = if *tensors == 1 { "tensor" } else { "tensors" };
        let name = if at == 0 { "tensors" } else { "" };
        line(name, &format!("{group:<9}  {dtype:<width$}  {tensors:>5} {noun:<7}  {}", bytes(*size)));
    }
}

fn describe_shape(shape: &Shape, line: &mut impl FnMut(&str, &str)) {
    line("layers", &shape.num_hidden_layers.to_string());
    line("width", &format!("{}, MLP {}", shape.hidden_size, shape.intermediate_size));
    if let Some(experts) = shape.num_experts {
        let width = shape.moe_intermediate_size.map(|width| format!(" of width {width}")).unwrap_or_default();
        let taken =
            shape.num_experts_per_tok.map(|taken| format!(", {taken} for a token")).unwrap_or_default();
        line("experts", &format!("{experts}{width}{taken}"));
    }
    let (heads, kv_heads, dims) = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim);
    line("attention", &format!("{heads} heads, {kv_heads} of keys and values, {dims} dimensions each"));
    line("vocabulary", &format!("{} tokens", shape.vocab_size));
    line("context", &format!("{} tokens", shape.max_position_embeddings));
    if let Some(rope) = &shape.rope {
        let factor = rope.factor.map(|factor| format!(", factor {factor}")).unwrap_or_default();
        let part = rope.rotary_dim.map(|dim| format!(", {dim} dimensions of a head")).unwrap_or_default();
        line("rotary", &format!("{}, theta {}{factor}{part}", rope.kind, rope.theta));
    }
    if let (Some(window), Some(types)) = (shape.sliding_window, &shape.layer_types) {
        let sliding = types.iter().filter(|name| **name == LayerType::SlidingAttention.as_str()).count();
        line("window", &format!("{window} tokens in {sliding} of {} layers", types.len()));
    }
    line(
        "embeddings",
        if shape.tie_word_embeddings { "shared with the head" } else { "apart from the head" },
    );
    if shape.attention_bias || shape.mlp_bias {
        let parts = [(shape.attention_bias, "attention"), (shape.mlp_bias, "MLP")];
        let parts: Vec<&str> = parts.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect();
        line("biases", &parts.join(" and "));
    }
}

fn shown_token(token: &SpecialToken) -> String {
    match &token.token {
        Some(text) => format!("{} ({})", escape::name(text), token.id),
        None => token.id.to_string(),
    }
}
