//! Models that hold a text decoder among other parts: its configuration is `text_config`.

use serde_json::{Map, Value};

use super::fields::Fields;
use rsgen_core::error::Result;

/// The classes whose text decoder is used, with whether its head is tied by default.
const WRAPPERS: &[(&str, bool)] = &[
    ("AyaVisionForConditionalGeneration", true),
    ("Gemma3ForConditionalGeneration", true),
    ("InternVLForConditionalGeneration", true),
    ("LlavaForConditionalGeneration", false),
    ("LlavaNextForConditionalGeneration", false),
    ("LlavaOnevisionForConditionalGeneration", false),
    ("Mistral3ForConditionalGeneration", true),
    ("VipLlavaForConditionalGeneration", false),
];

/// What the wrapper says for its decoder as well.
const OF_WRAPPER: [&str; 6] =
    ["bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", "quantization_config"];

/// The configuration of the text decoder of a wrapper; `None` for other models.
pub(super) fn text_config(file: &Map<String, Value>) -> Result<Option<Map<String, Value>>> {
    let class = file.get("architectures").and_then(|names| names.get(0)).and_then(Value::as_str);
    let Some((_, is_tied)) = WRAPPERS.iter().find(|(name, _)| class == Some(name)) else { return Ok(None) };
    let Some(text) = file.get("text_config").and_then(Value::as_object) else {
        return Err(Fields::new(file, "").wrong("text_config", "an object: the configuration of the decoder"));
    };
    let mut text = text.clone();
    text.remove("architectures");
    text.entry("model_type").or_insert_with(|| "llama".into());
    for name in OF_WRAPPER {
        if let Some(value) = file.get(name).filter(|value| !value.is_null()) {
            text.insert(name.to_owned(), value.clone());
        }
    }
    let tied = file.get("tie_word_embeddings").cloned().unwrap_or_else(|| (*is_tied).into());
    text.insert("tie_word_embeddings".to_owned(), tied);
    // Wrappers have a head of their own, which bends nothing.
    text.insert("final_logit_softcapping".to_owned(), Value::Null);
    Ok(Some(text))
}

/// Known kinds of models that are not supported, with what is missing and what to use instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "RefinedWeb",
        "it is an old form of Falcon; download its files again, which are of the family falcon now",
    ),
    ("bamba", MAMBA),
    ("bert", ENCODER),
    ("big_bird", ENCODER),
    ("bigbird_pegasus", "its sparse attention is missing; use Pegasus or BART"),
    ("bitnet", "ternary weights are missing; use a checkpoint in bfloat16 of another model"),
    (
        "blenderbot",
        "its layers are not compared with transformers yet; use BART, or a decoder that chats such as Qwen3",
    ),
    ("camembert", ENCODER),
    (
        "codegen",
        "its heads, which are dealt out to processors of a TPU, are missing; use StarCoder2 or Qwen2.5-Coder",
    ),
    ("data2vec", ENCODER),
    ("dbrx", "its clipped queries and experts of one matrix are missing; use Mixtral or Qwen3-MoE"),
    ("deberta", ENCODER),
    ("deepseek_v2", MLA),
    ("deepseek_v3", MLA),
    ("deepseek_v4", MLA),
    ("dots1", BIASED),
    ("electra", ENCODER),
    ("ernie4_5_moe", BIASED),
    ("falcon_h1", MAMBA),
    ("falcon_mamba", MAMBA),
    ("fsmt", "its embeddings and positions of fairseq are missing; use opus-mt (Marian) or NLLB"),
    ("gemma3n", "layers that share keys and values are missing; use Gemma 3"),
    ("gemma4", "layers that share keys and values are missing; use Gemma 3"),
    ("glm4_moe", BIASED),
    ("glm_moe_dsa", MLA),
    ("granite_speech", HEARS),
    ("jamba", MAMBA),
    ("kimi", MLA),
    ("kimi_linear", "gated delta rules are missing; use Qwen3-MoE"),
    ("led", "attention to a window and to chosen tokens of the source is missing; use BART or Pegasus"),
    ("lfm2", "short convolutions are missing; use SmolLM3 or Qwen3"),
    ("llama4", "experts whose inputs the router scales are missing; use Llama 3 or Qwen3-MoE"),
    ("longcat_flash", MLA),
    ("longt5", "local and global attention to the source is missing; use Flan-T5"),
    ("mamba", MAMBA),
    ("megatron-bert", ENCODER),
    ("minicpm3", MLA),
    ("minimax", "linear attention is missing; use Qwen3-MoE"),
    ("mllama", "layers that attend to images are missing; use Llama 3.1 or 3.2 1B and 3B"),
    ("modernbert", ENCODER),
    ("mpt", "its layers are not compared with transformers yet; use Falcon or OLMo"),
    ("nemotron_h", MAMBA),
    ("nllb-moe", "experts in an encoder are missing; use nllb-200-3.3B or a distilled NLLB"),
    ("olmo_hybrid", "gated delta rules are missing; use OLMo 3"),
    ("pegasus_x", "attention to blocks of the source is missing; use Pegasus or BART"),
    ("phi4_multimodal", "adapters for images and sound are missing; use Phi-4-mini"),
    ("phimoe", "its router, which changes scores by thresholds, is missing; use Phi-4 or Qwen3-MoE"),
    ("qwen2_audio", HEARS),
    ("qwen3_5", "gated delta rules are missing; use Qwen3"),
    ("qwen3_asr", HEARS),
    ("qwen3_next", "gated delta rules are missing; use Qwen3-MoE"),
    ("recurrent_gemma", "recurrent layers are missing; use Gemma 2"),
    ("rembert", ENCODER),
    ("roberta", ENCODER),
    ("roformer", ENCODER),
    ("rwkv", "recurrent layers are missing; use a transformer such as Qwen3"),
    ("seamless", HEARS),
    (
        "stablelm_epoch",
        "it is an old form of StableLM; download its files again, which are of the family stablelm now",
    ),
    ("switch_transformers", "experts in an encoder are missing; use Flan-T5"),
    ("t5gemma", "encoders of Gemma's layers are missing; use Flan-T5, or Gemma 3"),
    ("voxtral", HEARS),
    ("whisper", "it listens: the part that reads sound is missing; use whisper.cpp or faster-whisper"),
    ("xglm", "its layers are not compared with transformers yet; use BLOOM or Qwen3"),
    ("xlm", ENCODER),
    ("xlstm", "recurrent layers are missing; use a transformer such as Qwen3"),
    ("youtu", MLA),
    ("zamba", MAMBA),
];
const MAMBA: &str =
    "state-space (Mamba) layers are missing; use a transformer such as Granite 4 micro or Qwen3";
const MLA: &str = "multi-head latent attention is missing; use a distilled llama or Qwen model";
const BIASED: &str =
    "a router whose choice, but not whose weights, has a bias is missing; use Qwen3-MoE or OLMoE";
const HEARS: &str = "it listens: the part that reads sound is missing; use the text model that it is made of";
const ENCODER: &str = "it is an encoder, which generates no text; use a decoder such as Qwen3";

/// What is missing for a model of this type, where it is known.
pub(super) fn why_unsupported(model_type: &str) -> Option<&'static str> {
    let longest = UNSUPPORTED.iter().filter(|(name, _)| model_type.starts_with(name));
    longest.max_by_key(|(name, _)| name.len()).map(|&(_, reason)| reason)
}
