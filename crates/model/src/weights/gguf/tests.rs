//! Damaged, contradictory and split files, and small models in memory.

use super::super::{ModelFiles, Weights};
use super::*;
use proptest::prelude::*;
use rsgen_core::error::ErrorKind;

/// A value of the metadata, as it is written.
#[derive(Clone, Copy)]
enum Written<'a> {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'a str),
    Texts(&'a [&'a str]),
    U32s(&'a [u32]),
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A file of these entries and tensors; a tensor is its name, its shape in the order of the file, and its type.
fn file(entries: &[(&str, Written<'_>)], tensors: &[(&str, &[u64], u32)]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        text(&mut out, key);
        let mut typed = |id: u32, bytes: &[u8]| {
            out.extend(id.to_le_bytes());
            out.extend(bytes);
        };
        match value {
            Written::U32(value) => typed(4, &value.to_le_bytes()),
            Written::F32(value) => typed(6, &value.to_le_bytes()),
            Written::Bool(value) => typed(7, &[u8::from(*value)]),
            Written::Text(value) => {
                typed(8, &[]);
                text(&mut out, value);
            }
            Written::Texts(values) => {
                typed(9, &8_u32.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| text(&mut out, value));
            }
            Written::U32s(values) => {
                typed(9, &4_u32.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| out.extend(value.to_le_bytes()));
            }
        }
    }
    let mut offset = 0_u64;
    for (name, shape, type_id) in tensors {
        text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend(type_id.to_le_bytes());
        out.extend(offset.to_le_bytes());
        let (elements, bytes) = types::block(*type_id).unwrap();
        offset += shape.iter().product::<u64>() / elements as u64 * bytes as u64;
        offset = offset.next_multiple_of(32);
    }
    out.resize(out.len().next_multiple_of(32) + offset as usize, 0);
    out
}

const TOKENS: &[&str] = &["<unk>", "<s>", "</s>", "▁", "a", "▁a", "b", "ab"];

/// The entries of a small llama.
fn entries() -> Vec<(&'static str, Written<'static>)> {
    vec![
        ("general.architecture", Written::Text("llama")),
        ("llama.block_count", Written::U32(1)),
        ("llama.context_length", Written::U32(64)),
        ("llama.embedding_length", Written::U32(32)),
        ("llama.feed_forward_length", Written::U32(32)),
        ("llama.attention.head_count", Written::U32(4)),
        ("llama.attention.layer_norm_rms_epsilon", Written::F32(1e-5)),
        ("tokenizer.ggml.model", Written::Text("llama")),
        ("tokenizer.ggml.tokens", Written::Texts(TOKENS)),
        ("tokenizer.ggml.token_type", Written::U32s(&[2, 3, 3, 1, 1, 1, 1, 1])),
        ("tokenizer.ggml.scores", Written::U32s(&[0, 0, 0, 1, 2, 3, 4, 5])),
        ("tokenizer.ggml.bos_token_id", Written::U32(1)),
        ("tokenizer.ggml.eos_token_id", Written::U32(2)),
        ("tokenizer.ggml.add_bos_token", Written::Bool(true)),
        ("tokenizer.chat_template", Written::Text("{{ bos_token }}")),
    ]
}

const TENSORS: &[(&str, &[u64], u32)] = &[
    ("token_embd.weight", &[32, 8], 8),
    ("blk.0.attn_q.weight", &[32, 32], 0),
    ("blk.0.attn_k.weight", &[32, 32], 2),
    ("output_norm.weight", &[32], 0),
];

fn open(file: Vec<u8>) -> Result<ModelFiles> {
    ModelFiles::gguf_in_memory("model.gguf", file)
}

fn error(file: Vec<u8>) -> String {
    let error = open(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Load);
    error.to_string()
}

/// The entries with another value, or without one.
fn with(key: &'static str, value: Option<Written<'static>>) -> Vec<(&'static str, Written<'static>)> {
    let mut entries = entries();
    entries.retain(|(other, _)| *other != key);
    entries.extend(value.map(|value| (key, value)));
    entries
}

#[test]
fn a_file_is_a_model_with_all_its_texts() {
    let files = open(file(&entries(), TENSORS)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&files.config().unwrap()).unwrap();
    for (name, expected) in [
        ("architectures", serde_json::json!(["LlamaForCausalLM"])),
        ("rms_norm_eps", 1e-5.into()),
        ("head_dim", 8.into()),
        ("vocab_size", 8.into()),
        ("tie_word_embeddings", true.into()),
    ] {
        assert_eq!(config[name], expected, "{name}");
    }
    let defaults = files.generation_config().unwrap().unwrap();
    assert_eq!(&*defaults, br#"{"bos_token_id":1,"eos_token_id":2}"#);
    assert!(files.read_optional("tokenizer.json").unwrap().is_some());
    let settings: serde_json::Value =
        serde_json::from_slice(&files.tokenizer_config().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&settings["bos_token"], &settings["chat_template"]),
        (&"<s>".into(), &"{{ bos_token }}".into())
    );
    let weights = Weights::open(&files).unwrap();
    let embedding = weights.tensor("model.embed_tokens.weight").unwrap().unwrap();
    assert_eq!((embedding.shape, embedding.bytes.len()), (&[8, 32][..], 8 * 34));
}

#[test]
fn rows_of_queries_and_keys_are_put_in_order_whatever_their_type() {
    let mut bytes = file(&entries(), TENSORS);
    let start = bytes.len() - (32 * 32 * 4 + 32 * 18 + 128);
    // Each row says where it is stored.
    for row in 0..32 {
        bytes[start + row * 128..][..128].fill(row as u8);
        bytes[start + 32 * 128 + row * 18..][..18].fill(row as u8);
    }
    let files = open(bytes).unwrap();
    let weights = Weights::open(&files).unwrap();
    for (name, row_bytes) in [("q_proj", 128), ("k_proj", 18)] {
        let name = format!("model.layers.0.self_attn.{name}.weight");
        let tensor = weights.tensor(&name).unwrap().unwrap();
        let read = tensor.bytes.to_vec().unwrap();
        let rows: Vec<u8> = read.chunks(row_bytes).map(|row| row[0]).collect();
        let of_head = |head: u8| [0, 2, 4, 6, 1, 3, 5, 7].map(|row| 8 * head + row);
        assert_eq!(rows, (0..4).flat_map(of_head).collect::<Vec<u8>>(), "{name}");
        // Parts of rows are those of the whole.
        for part in [0..1, 5..row_bytes + 3, 3 * row_bytes..9 * row_bytes, read.len() - 1..read.len()] {
            assert_eq!(tensor.bytes.part(part.clone()).to_vec().unwrap(), read[part]);
        }
    }
}

#[test]
fn what_is_damaged_is_named() {
    let good = file(&entries(), TENSORS);
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let after = |what: &str| {
        let at = good.windows(what.len()).position(|part| part == what.as_bytes()).unwrap();
        at + what.len()
    };
    let most = [0xff; 8];
    let (key, embd) = (after("llama.block_count"), after("token_embd.weight"));
    let tokens = after("tokenizer.ggml.tokens");
    for (at, bytes, expected) in [
        (0, &b"GGUX"[..], "the magic must be \"GGUF\", found GGUX"),
        (4, &[0, 0, 0, 3], "big-endian"),
        (4, &[1], "must be 2 or 3, found 1"),
        (4, &[4], "must be 2 or 3, found 4"),
        (8, &most, "tensor_count must be at most"),
        (8, &[5], ""),
        (16, &most, "metadata_kv_count must be at most"),
        (24, &most, "the key of entry 0 may have at most"),
        (key, &[13], "the type of llama.block_count must be one of the 13 types"),
        (key, &[9], "the key of entry 2 may have at most"),
        (key, &[7], "the key of entry 2 may have at most"),
        (tokens + 4, &[9], "tokenizer.ggml.tokens must be a list of plain values, found a list of lists"),
        (tokens + 4, &[77], "the type of the elements of tokenizer.ggml.tokens must be"),
        (tokens + 8, &most, "the length of tokenizer.ggml.tokens must be at most"),
        (tokens + 16, &most, "the text of tokenizer.ggml.tokens may have at most"),
        (tokens + 24, &[0xff], "the text of tokenizer.ggml.tokens must be UTF-8"),
        (embd - 17 - 8, &[65], "the name of tensor 0 may have at most 64 bytes here, found 65"),
        (embd, &[0], "the number of dimensions of the tensor token_embd.weight must be from 1 to 4, found 0"),
        (embd, &[5], "the number of dimensions of the tensor token_embd.weight must be from 1 to 4, found 5"),
        (embd + 4, &[0], "dimension 0 of the tensor token_embd.weight must be at least 1, found 0"),
        (
            embd + 4,
            &[33],
            "the rows of the tensor token_embd.weight must be whole blocks of 32 numbers in Q8_0",
        ),
        (embd + 4, &most, "the dimensions of the tensor token_embd.weight are too large"),
        (
            embd + 12,
            &[9],
            "the tensor token_embd.weight takes 306 bytes, but there are 288 up to the next tensor",
        ),
        (embd + 20, &[99], "the type of the tensor token_embd.weight must be one of the format, found 99"),
        (embd + 24, &[1], "the offset of the tensor token_embd.weight must be a multiple of 32, found 1"),
        (embd + 24, &[0, 0, 0, 1], "the offset of the tensor token_embd.weight must be within"),
        (
            embd + 24,
            &[0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "the offset of the tensor token_embd.weight",
        ),
    ] {
        let message = error(patched(at, bytes));
        assert!(message.contains("model.gguf: ") && message.contains(expected), "{at}: {message}");
    }
    let twice: Vec<_> = TENSORS.iter().chain(&TENSORS[..1]).copied().collect();
    assert!(error(file(&entries(), &twice)).contains("the tensor token_embd.weight comes twice"));
    let mut doubled = entries();
    doubled.push(("llama.block_count", Written::U32(1)));
    assert!(error(file(&doubled, TENSORS)).contains("the key llama.block_count comes twice"));
    // Cut off anywhere.
    for end in 0..good.len() {
        assert!(error(good[..end].to_vec()).starts_with("model.gguf: "), "{end}");
    }
}

#[test]
fn keys_out_of_their_rules_are_named() {
    for (key, value, expected) in [
        ("general.architecture", None, "general.architecture must be given"),
        ("general.architecture", Some(Written::Text("mamba")), "\"mamba\" is not supported: state-space"),
        ("general.architecture", Some(Written::Text("xyz")), "\"xyz\" is not supported; supported are"),
        ("general.architecture", Some(Written::U32(1)), "general.architecture must be a text, found 1"),
        ("general.alignment", Some(Written::U32(0)), "general.alignment must be a power of two"),
        ("general.alignment", Some(Written::U32(48)), "general.alignment must be a power of two"),
        ("general.alignment", Some(Written::Text("a")), "general.alignment must be a whole number"),
        ("llama.block_count", None, "llama.block_count must be a whole number"),
        ("llama.block_count", Some(Written::U32(u32::MAX)), "llama.block_count must be"),
        ("llama.embedding_length", Some(Written::U32(0)), "llama.embedding_length must be"),
        ("llama.attention.head_count", Some(Written::U32(0)), "llama.attention.head_count must be one size"),
        ("llama.attention.head_count", Some(Written::U32s(&[4, 2])), "one size for all layers"),
        (
            "llama.attention.head_count",
            Some(Written::U32(1000)),
            "llama.attention.head_count must be at most",
        ),
        (
            "llama.attention.value_length",
            Some(Written::U32(4)),
            "llama.attention.value_length must be that of keys",
        ),
        ("llama.attention.layer_norm_rms_epsilon", Some(Written::F32(f32::NAN)), "must be a finite number"),
        (
            "llama.rope.dimension_count",
            Some(Written::U32(9)),
            "llama.rope.dimension_count must be from 1 to 8",
        ),
        (
            "llama.rope.scaling.type",
            Some(Written::Text("ntk")),
            "none, linear, yarn or longrope, found \"ntk\"",
        ),
        ("llama.rope.scaling.type", Some(Written::Text("linear")), "llama.rope.scaling.factor must be given"),
        ("split.count", Some(Written::U32(2)), "split.count must be 1 in a file whose name does not end"),
        (
            "tokenizer.ggml.model",
            Some(Written::Text("bert")),
            "\"bert\" is not supported, only gpt2, llama and t5 are",
        ),
        (
            "tokenizer.ggml.model",
            Some(Written::Text("gpt2")),
            "tokenizer.ggml.pre must name the pre-tokenizer",
        ),
        ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens must be given"),
        ("tokenizer.ggml.token_type", Some(Written::U32s(&[1])), "a list of 8 numbers, one for each token"),
        ("tokenizer.ggml.scores", Some(Written::U32s(&[1])), "a list of 8 finite numbers"),
        ("tokenizer.ggml.bos_token_id", Some(Written::U32(8)), "the id of one of the 8 tokens, found 8"),
        ("tokenizer.ggml.add_bos_token", Some(Written::U32(1)), "must be true or false, found 1"),
        ("tokenizer.chat_template", Some(Written::U32(1)), "tokenizer.chat_template must be a text"),
    ] {
        let message = error(file(&with(key, value), TENSORS));
        assert!(message.contains(expected), "{key}: {message}");
    }
    let mut unknown = with("tokenizer.ggml.model", Some(Written::Text("gpt2")));
    unknown.push(("tokenizer.ggml.pre", Written::Text("kimi-k2")));
    let message = error(file(&unknown, TENSORS));
    assert!(
        message.contains("\"kimi-k2\" is not supported; copy the tokenizer.json of the model"),
        "{message}"
    );
    assert!(error(file(&entries(), &TENSORS[1..])).contains("token_embd.weight is missing"));
}

#[test]
fn a_vocabulary_alone_is_a_tokenizer_and_no_model() {
    let files = open(file(&entries(), &[])).unwrap();
    let config = String::from_utf8(files.read("config.json").unwrap().into_owned()).unwrap();
    assert!(config.contains(r#""vocab_size":8"#), "{config}");
    let error = Weights::open(&files).unwrap_err().to_string();
    assert!(error.contains("a file of a vocabulary or of an adapter alone is no model"), "{error}");
}

#[test]
fn types_that_are_not_read_are_refused_by_name_when_they_are_asked_for() {
    let tensors: Vec<_> = TENSORS.iter().copied().chain([("output.weight", &[256, 1][..], 16)]).collect();
    let files = open(file(&entries(), &tensors)).unwrap();
    let weights = Weights::open(&files).unwrap();
    let error = weights.tensor("lm_head.weight").unwrap_err().to_string();
    assert!(error.contains("lm_head.weight is stored as IQ2_XXS, which is not supported"), "{error}");
}

#[test]
fn split_files_are_one_model() {
    let part = |number: u32, tensors: &[(&str, &[u64], u32)], total: u32| {
        let mut all = if number == 0 { entries() } else { Vec::new() };
        all.push(("split.no", Written::U32(number)));
        all.push(("split.count", Written::U32(2)));
        all.push(("split.tensors.count", Written::U32(total)));
        file(&all, tensors)
    };
    let write = |files: &[(&str, Vec<u8>)]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    };
    let [one, two] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    let first = part(0, &TENSORS[..2], 4);
    let second = part(1, &TENSORS[2..], 4);
    let folder = write(&[(one, first.clone()), (two, second.clone())]);
    // The first file, or the folder that holds nothing else.
    for path in [folder.path().join(one), folder.path().to_owned()] {
        let files = ModelFiles::open(path.to_str().unwrap(), None, None).unwrap();
        let weights = Weights::open(&files).unwrap();
        assert_eq!(weights.names().count(), 4);
        assert!(weights.tensor("model.norm.weight").unwrap().unwrap().bytes.to_vec().is_ok());
    }
    // A tokenizer beside them is taken instead of their own.
    std::fs::write(folder.path().join("tokenizer.json"), b"{}").unwrap();
    let files = ModelFiles::open(folder.path().join(one).to_str().unwrap(), None, None).unwrap();
    assert_eq!(files.read_optional("tokenizer.json").unwrap().as_deref(), Some(&b"{}"[..]));
    assert_eq!(files.tokenizer_config().unwrap(), None);
    let refused = |files: &[(&str, Vec<u8>)], open: &str| {
        let folder = write(files);
        let path = folder.path().join(open);
        ModelFiles::open(path.to_str().unwrap(), None, None).unwrap_err().to_string()
    };
    let both = [(one, first.clone()), (two, second.clone())];
    let message = refused(&both, two);
    assert!(
        message.contains("it is a part of a model; name the first file, m-00001-of-00002.gguf"),
        "{message}"
    );
    let message = refused(&both[..1], one);
    assert!(message.contains("m-00002-of-00002.gguf: it is missing beside the first file"), "{message}");
    let message = refused(&[(one, first.clone()), (two, part(0, &TENSORS[2..], 4))], one);
    assert!(message.contains("m-00002-of-00002.gguf: split.no must be 1"), "{message}");
    let message = refused(&[(one, part(0, &TENSORS[..2], 5)), (two, second.clone())], one);
    assert!(
        message.contains("split.tensors.count must be the number of tensors in all files, 4"),
        "{message}"
    );
    let message = refused(&[(one, first), (two, part(1, &TENSORS[1..], 4))], one);
    assert!(message.contains("comes twice") || message.contains("split.tensors.count"), "{message}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(at in 0_usize..1400, bytes in proptest::collection::vec(any::<u8>(), 1..9)) {
        let mut file = file(&entries(), TENSORS);
        let at = at.min(file.len() - bytes.len());
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        if let Ok(files) = open(file) {
            let weights = Weights::open(&files).unwrap();
            for name in weights.names() {
                if let Some(tensor) = weights.tensor(name).unwrap() {
                    prop_assert!(tensor.bytes.to_vec().is_ok());
                }
            }
        }
    }
}

/// The entries of a small T5 with changed ones, and one of its tensors for each side.
fn t5(changes: &[(&'static str, Option<Written<'static>>)]) -> Vec<u8> {
    let mut all = vec![
        ("general.architecture", Some(Written::Text("t5"))),
        ("t5.block_count", Some(Written::U32(1))),
        ("t5.decoder_block_count", Some(Written::U32(2))),
        ("t5.context_length", Some(Written::U32(64))),
        ("t5.embedding_length", Some(Written::U32(32))),
        ("t5.feed_forward_length", Some(Written::U32(32))),
        ("t5.attention.head_count", Some(Written::U32(4))),
        ("t5.attention.key_length", Some(Written::U32(8))),
        ("t5.attention.layer_norm_rms_epsilon", Some(Written::F32(1e-6))),
        ("t5.attention.relative_buckets_count", Some(Written::U32(32))),
        ("t5.decoder_start_token_id", Some(Written::U32(0))),
        ("tokenizer.ggml.model", Some(Written::Text("t5"))),
        ("tokenizer.ggml.tokens", Some(Written::Texts(TOKENS))),
        ("tokenizer.ggml.token_type", Some(Written::U32s(&[3, 3, 2, 1, 1, 1, 1, 1]))),
        ("tokenizer.ggml.scores", Some(Written::U32s(&[0, 0, 0, 1, 2, 3, 4, 5]))),
        ("tokenizer.ggml.unknown_token_id", Some(Written::U32(2))),
    ];
    for (key, value) in changes {
        all.retain(|(other, _)| other != key);
        all.extend(value.map(|value| (*key, Some(value))));
    }
    let entries: Vec<_> = all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let tensors: &[(&str, &[u64], u32)] = &[
        ("token_embd.weight", &[32, 8], 0),
        ("enc.blk.0.attn_rel_b.weight", &[4, 32], 0),
        ("dec.blk.1.cross_attn_o.weight", &[32, 32], 8),
        ("dec.blk.1.ffn_up.weight", &[32, 32], 0),
        ("dec.output_norm.weight", &[32], 0),
    ];
    file(&entries, tensors)
}

#[test]
fn a_model_with_an_encoder_has_the_names_of_both_sides() {
    let files = open(t5(&[])).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&files.config().unwrap()).unwrap();
    for (name, expected) in [
        ("d_model", serde_json::json!(32)),
        ("d_kv", 8.into()),
        ("num_layers", 1.into()),
        ("num_decoder_layers", 2.into()),
        ("feed_forward_proj", "relu".into()),
        ("is_encoder_decoder", true.into()),
        ("tie_word_embeddings", true.into()),
    ] {
        assert_eq!(config[name], expected, "{name}");
    }
    assert!(config.get("hidden_size").is_none(), "{config}");
    assert_eq!(&*files.generation_config().unwrap().unwrap(), br#"{"decoder_start_token_id":0}"#);
    let weights = Weights::open(&files).unwrap();
    let mut names: Vec<_> = weights.names().collect();
    names.sort_unstable();
    let expected = [
        "decoder.block.1.layer.1.EncDecAttention.o.weight",
        "decoder.block.1.layer.2.DenseReluDense.wi.weight",
        "decoder.final_layer_norm.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "shared.weight",
    ];
    assert_eq!(names, expected);
}

#[test]
fn keys_of_a_t5_have_rules() {
    for (key, value, expected) in [
        (
            "t5.decoder_block_count",
            Some(Written::U32(0)),
            "t5.decoder_block_count must be a whole number from 1",
        ),
        ("t5.decoder_block_count", Some(Written::U32(9999)), "t5.decoder_block_count must be at most 1024"),
        ("t5.attention.relative_buckets_count", None, "relative_buckets_count must be given, found nothing"),
        (
            "tokenizer.ggml.unknown_token_id",
            Some(Written::U32(0)),
            "tokenizer.ggml.unknown_token_id must be 2",
        ),
        ("tokenizer.ggml.scores", None, "tokenizer.ggml.scores must be given"),
        ("tokenizer.ggml.token_type", None, "tokenizer.ggml.token_type must be given"),
        (
            "tokenizer.ggml.precompiled_charsmap",
            Some(Written::U32s(&[1, 2])),
            "tokenizer.ggml.precompiled_charsmap must be a list of bytes, found a list of 2 numbers",
        ),
        ("general.architecture", Some(Written::Text("t5encoder")), "it is the encoder of a model"),
    ] {
        let error = error(t5(&[(key, value)]));
        assert!(error.contains(expected), "{error}");
    }
}
