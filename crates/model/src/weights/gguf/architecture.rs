//! What is known of an architecture of llama.cpp, and the choice of one for a file. The table is in
//! `architectures`; what is not in it is refused by its name.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::architectures::ARCHITECTURES;
use super::config::Description;
use super::t5;
use crate::weights::wrapper::why_unsupported;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// An architecture of llama.cpp.
pub(super) struct Architecture {
    /// Its name in `general.architecture`.
    pub(super) name: &'static str,
    /// The family's class and type in transformers.
    pub(super) class: &'static str,
    pub(super) model_type: &'static str,
    /// The scope of layers.
    pub(super) layers: &'static str,
    /// Of models with an encoder, the names of both sides in the file and the scopes of their layers. Names of
    /// parts begin with their side.
    pub(super) sides: &'static [(&'static str, &'static str)],
    /// The names of tensors outside of layers, and within one, that differ from llama's.
    pub(super) names: &'static [(&'static str, &'static str)],
    pub(super) experts: ExpertNames,
    pub(super) rows: Rows,
    /// Whether norms are stored with 1 added.
    pub(super) one_plus: bool,
    /// Whether its norms are layer norms, whose `eps` has a key of its own.
    pub(super) layer_norm: bool,
    /// Changes or completes the configuration.
    pub(super) config: fn(&Description<'_>, &mut Map<String, Value>) -> Result<()>,
}

/// How the experts of a layer are called.
pub(super) struct ExpertNames {
    pub(super) scope: &'static str,
    /// Gate, up and down.
    pub(super) parts: [&'static str; 3],
    pub(super) router: &'static str,
}

/// In which order the rows of queries and keys are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// As transformers has them.
    Same,
    /// The two halves of a head in turns, for a rotation of neighbours.
    Pairs,
    /// All queries, then all keys, then all values, where transformers has them by group.
    Ungrouped,
}

/// The names of llama's tensors.
const NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_sinks", "self_attn.sinks"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The entry of an architecture. Of those with one name, `has` a tensor or `get`s a key tells them apart.
///
/// # Errors
/// `Load`, naming the architecture, when there is none.
pub(super) fn find(model: &Description<'_>) -> Result<&'static Architecture> {
    let name = model.architecture;
    let class = match name {
        "llama" if model.count("expert_count")?.unwrap_or(0) > 0 => Some("MixtralForCausalLM"),
        "olmo2" if model.count("attention.sliding_window")?.unwrap_or(0) > 0 => Some("Olmo3ForCausalLM"),
        "granitemoe" if model.has("blk.0.ffn_up_shexp.weight") => Some("GraniteMoeSharedForCausalLM"),
        "mistral3" if model.float("attention.temperature_scale")?.unwrap_or(0.0) <= 0.0 => {
            Some("MistralForCausalLM")
        }
        _ => None,
    };
    let mut entries = ARCHITECTURES.iter().filter(|entry| entry.name == name);
    let found = match (name, class) {
        ("falcon", _) if model.has("blk.0.attn_norm_2.weight") => entries.nth(1),
        ("t5", _) => Some(t5::find(model)),
        (_, Some(class)) => entries.find(|entry| entry.class == class),
        (_, None) => entries.next(),
    };
    found.ok_or_else(|| {
        let reason = unsupported(name).map(|reason| format!(": {reason}")).unwrap_or_default();
        Error::load(format!(
            "general.architecture: \"{}\" is not supported{reason}; supported are {}, llama, qwen3, gemma3 and gpt-oss among \
             them: docs/weight_files.md lists them",
            escape::name(name),
            ARCHITECTURES.len()
        ))
    })
}

/// The entries that may be those of a class: its own, and before it those of a class that computes the same.
pub(super) fn of_class(class: &str) -> impl Iterator<Item = &'static Architecture> {
    // Mistral's files are those of llama, as long as there is no window.
    let other = if class == "MistralForCausalLM" { "LlamaForCausalLM" } else { "" };
    let of = |class: String| ARCHITECTURES.iter().filter(move |entry| entry.class == class);
    of(other.to_owned()).chain(of(class.to_owned()))
}

impl Architecture {
    /// The layer that a tensor belongs to: its scope, its number, and the name of the part; `None` outside of
    /// layers.
    pub(super) fn layer_of<'a>(&self, stem: &'a str) -> Option<(&'static str, &'a str, Cow<'a, str>)> {
        let numbered = |rest: &'a str| rest.split_once('.').filter(|(layer, _)| layer.parse::<u32>().is_ok());
        if self.sides.is_empty() {
            let (layer, part) = numbered(stem.strip_prefix("blk.")?)?;
            return Some((self.layers, layer, part.into()));
        }
        self.sides.iter().find_map(|(side, layers)| {
            let (layer, part) = numbered(stem.strip_prefix(side)?.strip_prefix(".blk.")?)?;
            Some((*layers, layer, format!("{side}.{part}").into()))
        })
    }

    /// All parts that have a name here.
    pub(super) fn parts(&self) -> impl Iterator<Item = &'static str> {
        // A name of llama's parts may be that of another part here.
        let own = |(part, name): &(&str, &str)| {
            self.names.iter().any(|(stored, known)| stored == part || known == name)
        };
        let others = NAMES.iter().filter(move |names| !own(names));
        // The embedding comes first.
        others.chain(self.names).map(|(stored, _)| *stored)
    }

    /// The name here of a tensor outside of layers, or within one.
    pub(super) fn name_of(&self, part: &str) -> Option<&'static str> {
        let all = self.names.iter().chain(NAMES);
        all.copied().find(|(stored, _)| *stored == part).map(|(_, name)| name)
    }
}

/// Why an architecture is not there, where it is known.
fn unsupported(name: &str) -> Option<&'static str> {
    const OTHER_NAMES: [(&str, &str); 12] = [
        ("deepseek2", "deepseek_v2"),
        ("mistral4", "deepseek_v2"),
        ("falcon-h1", "falcon_h1"),
        ("granitehybrid", "mamba"),
        ("nemotron_h", "nemotron_h"),
        ("qwen35", "qwen3_5"),
        ("qwen3next", "qwen3_next"),
        ("gemma3n", "gemma3n"),
        ("nomic-bert", "bert"),
        ("jina-bert-v2", "bert"),
        ("rwkv6", "rwkv"),
        ("rwkv7", "rwkv"),
    ];
    match name {
        "clip" | "mmproj" => Some("it is the image encoder of a model; name the file of the model itself"),
        "t5encoder" => Some("it is the encoder of a model; use a file of the whole model"),
        _ => {
            let other = OTHER_NAMES.iter().find(|(stored, _)| name.starts_with(stored));
            why_unsupported(other.map_or(name, |(_, model_type)| model_type))
        }
    }
}
