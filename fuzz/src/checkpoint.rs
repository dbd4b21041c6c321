//! Small checkpoints in memory: weights that fit a configuration, and a whole model with a tokenizer.

use serde_json::{Map, Value, json};

use rsgen_model::weights::ModelConfig;

/// The most numbers to make up.
const MAX_NUMBERS: usize = 1 << 18;

/// A safetensors file in float32, with small numbers that differ.
pub(super) fn safetensors(tensors: &[(&str, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        header.insert(
            (*name).to_owned(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]}),
        );
    }
    let header = Value::Object(header).to_string();
    let numbers = (0..end / 4).map(|index| ((index * 37 % 101) as f32 - 50.0) / 64.0);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes().chain(numbers.flat_map(f32::to_le_bytes)));
    file
}

/// The weights that a llama of this configuration has; `None` when they are too many.
pub(super) fn llama(config: &ModelConfig) -> Option<Vec<u8>> {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let queries = config.num_attention_heads * config.head_dim;
    let keys = config.num_key_value_heads * config.head_dim;
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if config.num_hidden_layers > 8 {
        return None;
    }
    for layer in 0..config.num_hidden_layers {
        let matrices = [
            ("self_attn.q_proj", queries, hidden),
            ("self_attn.k_proj", keys, hidden),
            ("self_attn.v_proj", keys, hidden),
            ("self_attn.o_proj", hidden, queries),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ];
        for (name, rows, columns) in matrices {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), vec![rows, columns]));
            tensors.push((format!("model.layers.{layer}.{name}.bias"), vec![rows]));
        }
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push((format!("model.layers.{layer}.{norm}.weight"), vec![hidden]));
        }
    }
    let numbers: usize = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let tensors: Vec<_> = tensors.iter().map(|(name, shape)| (name.as_str(), shape.clone())).collect();
    (numbers <= MAX_NUMBERS).then(|| safetensors(&tensors))
}

/// The files of a model with a vocabulary of 64 byte-level tokens and a context of 64.
pub(super) fn model() -> [(String, Vec<u8>); 4] {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 8, "max_position_embeddings": 64, "tie_word_embeddings": true, "eos_token_id": 1, "bos_token_id": 0
    })
    .to_string();
    let mut vocabulary = Map::new();
    let words = ["<s>", "</s>", "<pad>", "th", "the", "Ġt", "Ġthe", "Ġ"].map(str::to_owned).into_iter();
    let letters = ('a'..='z').chain('A'..='Z').map(String::from);
    for (id, token) in words.chain(letters).take(60).enumerate() {
        vocabulary.insert(token, id.into());
    }
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["t h", "th e", "Ġ t", "Ġ the"]}
    })
    .to_string();
    let parsed = ModelConfig::from_json(config.as_bytes(), rsgen_model::SUPPORTED_ARCHITECTURES);
    let weights = parsed.ok().as_ref().and_then(llama).unwrap_or_default();
    let defaults = json!({"eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 2}).to_string();
    [
        ("config.json".to_owned(), config.into_bytes()),
        ("generation_config.json".to_owned(), defaults.into_bytes()),
        ("tokenizer.json".to_owned(), tokenizer.into_bytes()),
        ("model.safetensors".to_owned(), weights),
    ]
}
