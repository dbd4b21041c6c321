//! GGUF files that `convert` writes: the model of the folder bit for bit, and the tensors that llama.cpp's converter
//! writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rsgen::{Generator, TokenId, convert};
use serde_json::Value;

use crate::families::{goldens, tensors, write};
use crate::gguf::{file, models, numbers};
use crate::golden_support::{Faults, path, token_ids};

/// Families that GGUF has no architecture for, and models that its files cannot state.
const REFUSED: &[(&str, &str)] = &[
    ("apertus", "the rotary embedding"),
    ("cwm", "CwmForCausalLM has no architecture"),
    ("falcon_alibi", "the rotary embedding"),
    ("falcon_serial", "the norms"),
    ("gemma2", "attention cannot be stated"),
    ("gemma2_plain", "attention cannot be stated"),
    ("gemma3", "the windows"),
    ("gemma3_nested", "the windows"),
    ("gemma3_wrapper", "the windows"),
    ("gpt2_inverse", "would say gelu_new, not gelu;"),
    ("gpt_bigcode_heads", "the sizes"),
    ("gpt_neo", "GPTNeoForCausalLM has no architecture"),
    ("gptj", "GPTJForCausalLM has no architecture"),
    ("granite4", "GraniteMoeHybridForCausalLM has no architecture"),
    ("granite4_nope", "GraniteMoeHybridForCausalLM has no architecture"),
    ("helium", "HeliumForCausalLM has no architecture"),
    ("hunyuan", "the rotary embedding"),
    ("ministral", "MinistralForCausalLM has no architecture"),
    ("mistral3", "the windows"),
    ("mixtral", "the windows"),
    ("opt", "OPTForCausalLM has no architecture"),
    ("opt_350m", "OPTForCausalLM has no architecture"),
    ("opt_plain", "OPTForCausalLM has no architecture"),
    ("phi", "attention cannot be stated"),
    ("qwen2_moe", "the windows"),
    ("qwen3_moe_window", "the windows"),
    ("smollm3", "the windows"),
    ("starcoder2", "the windows"),
];

/// The bits of the logits of a model.
fn logits(model: &str, ids: &[TokenId]) -> Vec<u32> {
    let logits = Generator::open(model).unwrap().forward(&[ids.to_vec()]).unwrap();
    logits.into_iter().map(f32::to_bits).collect()
}

#[test]
fn files_of_every_family_have_the_bits_of_their_folder_or_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (mut faults, mut refused) = (Faults::default(), BTreeMap::new());
    for (name, golden) in goldens() {
        let (from, to) = (folder.path().join(&name), folder.path().join(format!("{name}.gguf")));
        fs::create_dir(&from).unwrap();
        write(&from, &golden, &tensors(&golden));
        if let Err(error) = convert(from.to_str().unwrap(), &to) {
            assert!(!to.exists(), "{name} was written");
            refused.insert(name, error.to_string());
            continue;
        }
        let ids = token_ids(&golden["input_ids"]);
        let [before, after] = [&from, &to].map(|path| logits(path.to_str().unwrap(), &ids));
        faults.check(&name, (before != after).then(|| "has other logits".to_owned()));
    }
    assert_eq!(refused.len(), REFUSED.len());
    for (name, error) in &refused {
        let known = REFUSED.iter().find(|(known, _)| known == name);
        let is_known = known.is_some_and(|(_, why)| error.contains(why));
        faults.check(name, (!is_known).then(|| error.clone()));
    }
    faults.report(75);
}

/// The tensors of a file, by name: their shape, type and bytes.
fn stored(file: &[u8]) -> BTreeMap<String, (Vec<u64>, u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let double = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let width = |kind: u32| match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        _ => 8,
    };
    let text_end = |at: usize| at + 8 + double(at) as usize;
    let mut at = 24;
    for _ in 0..double(16) {
        at = text_end(at);
        let kind = word(at);
        at += 4;
        at = match kind {
            8 => text_end(at),
            9 => {
                let (kind, count) = (word(at), double(at + 4));
                (0..count).fold(at + 12, |at, _| if kind == 8 { text_end(at) } else { at + width(kind) })
            }
            _ => at + width(kind),
        };
    }
    let mut infos = Vec::new();
    for _ in 0..double(8) {
        let name = String::from_utf8(file[at + 8..text_end(at)].to_vec()).unwrap();
        at = text_end(at);
        let shape: Vec<u64> = (0..word(at) as usize).map(|axis| double(at + 4 + 8 * axis)).collect();
        at += 4 + 8 * shape.len();
        infos.push((name, shape, word(at), double(at + 4) as usize));
        at += 12;
    }
    let data = at.next_multiple_of(32);
    let tensor = |(name, shape, kind, offset): (String, Vec<u64>, u32, usize)| {
        let size = if kind == 0 { 4 } else { 2 };
        let len = size * shape.iter().product::<u64>() as usize;
        (name, (shape, kind, file[data + offset..data + offset + len].to_vec()))
    };
    infos.into_iter().map(tensor).collect()
}

#[test]
fn tensors_are_those_that_the_converter_of_llama_cpp_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut faults, mut seen) = (Faults::default(), BTreeSet::new());
    for (name, golden, family) in models() {
        let (from, to) = (folder.path().join(&name), folder.path().join(format!("{name}.gguf")));
        fs::create_dir(&from).unwrap();
        write(&from, &family, &tensors(&family));
        if convert(from.to_str().unwrap(), &to).is_err() {
            continue;
        }
        let written = stored(&fs::read(&to).unwrap());
        let expected = stored(&file(&golden, &numbers(&family)));
        for (tensor, (shape, kind, bytes)) in &expected {
            let Some((own_shape, own_kind, own)) = written.get(tensor) else {
                faults.check(format!("{name}, {tensor}"), Some("is missing".to_owned()));
                continue;
            };
            let is_same = (own_shape, own_kind) == (shape, kind);
            faults.check(
                format!("{name}, {tensor}"),
                (!is_same).then(|| format!("{own_shape:?}, not {shape:?}")),
            );
            // Divisors of frequencies may round the last bit otherwise.
            if !tensor.starts_with("rope_") {
                faults
                    .check(format!("{name}, {tensor}"), (own != bytes).then(|| "has other bytes".to_owned()));
            }
        }
        for tensor in written.keys().filter(|tensor| !expected.contains_key(*tensor)) {
            faults.check(format!("{name}, {tensor}"), Some("is not in that file".to_owned()));
        }
        seen.insert(name);
    }
    assert!(seen.len() > 35, "{seen:?}");
    faults.report(40 * 20);
}

/// llama.cpp opens no file of gpt-oss without it, and its converter writes it, though rsgen reads the tensors instead.
#[test]
fn experts_that_are_as_wide_as_intermediate_size_have_a_key_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (name, golden) = goldens().into_iter().find(|(name, _)| name == "gpt_oss").unwrap();
    let (from, to) = (folder.path().join(&name), folder.path().join("model.gguf"));
    fs::create_dir(&from).unwrap();
    write(&from, &golden, &tensors(&golden));
    convert(from.to_str().unwrap(), &to).unwrap();
    let (file, key) = (fs::read(&to).unwrap(), b"gpt-oss.expert_feed_forward_length");
    let at = file.windows(key.len()).position(|bytes| bytes == key).expect("the key is there") + key.len();
    let numbers = [0, 4].map(|offset| u32::from_le_bytes(file[at + offset..][..4].try_into().unwrap()));
    // An integer of 32 bits, and its value.
    assert_eq!(numbers.map(u64::from), [4, golden["config"]["intermediate_size"].as_u64().unwrap()]);
}

#[test]
fn the_story_model_keeps_its_bits_and_its_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("story.gguf");
    let from = std::path::PathBuf::from(path("python/rsgen/models/story-3m"));
    let report = convert(from.to_str().unwrap(), &to).unwrap();
    assert!(report.num_files == 1 && report.bytes > 5_000_000, "{report:?}");
    let [own, made] =
        [from.as_path(), &to].map(|path: &Path| Generator::open(path.to_str().unwrap()).unwrap());
    let text = "Once upon a time, Lily's dog said \"hello\" 3 times.\n";
    let ids = own.tokenizer().unwrap().encode(text, true).unwrap();
    assert_eq!(made.tokenizer().unwrap().encode(text, true).unwrap(), ids);
    let [own, made] = [own, made].map(|generator| generator.forward(std::slice::from_ref(&ids)).unwrap());
    assert!(own.iter().map(|logit| logit.to_bits()).eq(made.iter().map(|logit| logit.to_bits())));
    let error = convert(from.to_str().unwrap(), &to).unwrap_err().to_string();
    assert!(error.contains("must be the name of a new file"), "{error}");
    let error = convert(to.to_str().unwrap(), folder.path().join("2.gguf")).unwrap_err().to_string();
    assert!(error.contains("is a GGUF file already"), "{error}");
}

#[test]
fn what_has_no_form_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let golden = goldens().into_iter().find(|(name, _)| name == "qwen3").unwrap().1;
    let to = folder.path().join("out.gguf");
    let refused = |change: &dyn Fn(&Path, &mut Value), why: &str| {
        let from = tempfile::tempdir().unwrap();
        let mut golden = golden.clone();
        change(from.path(), &mut golden);
        write(from.path(), &golden, &tensors(&golden));
        let error = convert(from.path().to_str().unwrap(), &to).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    };
    refused(
        &|from, _| {
            let tokenizer = r#"{"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a",
                "continuing_subword_prefix": "", "max_input_chars_per_word": 9}, "added_tokens": []}"#;
            fs::write(from.join("tokenizer.json"), tokenizer).unwrap();
        },
        "a WordPiece has no form in GGUF files",
    );
    refused(
        &|_, golden| {
            golden["tensors"]["model.layers.0.extra.weight"] = serde_json::json!([2, 2]);
        },
        "model.layers.0.extra.weight has no name in GGUF files of the architecture qwen3",
    );
    refused(
        &|_, golden| {
            golden["config"]["rope_parameters"] =
                serde_json::json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
        },
        "no GGUF file states a dynamic base",
    );
}

/// Writes a llama with a tokenizer, and its GGUF file; returns both paths, or the refusal.
fn with_tokenizer(folder: &Path, file: &str, class: &str, has_flags: bool) -> Result<[String; 2], String> {
    let mut golden = goldens().into_iter().find(|(name, _)| name == "llama_bias").unwrap().1;
    // More rows than tokens, as published models have them.
    golden["config"]["vocab_size"] = 640.into();
    golden["config"]["eos_token_id"] = if file == "byte_level" { 604 } else { 2 }.into();
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        if let Some(shape) = golden["tensors"].get_mut(name) {
            shape[0] = 640.into();
        }
    }
    let name = format!("{file}{class}{has_flags}");
    let (from, to) = (folder.join(&name), folder.join(format!("{name}.gguf")));
    fs::create_dir(&from).unwrap();
    write(&from, &golden, &tensors(&golden));
    let text = fs::read(path(&format!("tests/golden/tokenizers/{file}.json"))).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&text).unwrap();
    for token in tokenizer["added_tokens"].as_array_mut().unwrap().iter_mut().filter(|_| !has_flags) {
        for flag in ["lstrip", "rstrip", "normalized"] {
            token[flag] = false.into();
        }
    }
    fs::write(from.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    // Named tokens that the file lacks would be added to it.
    let [bos, eos] = if file == "byte_level" { ["<|endoftext|>", "<|mid|>"] } else { ["<s>", "</s>"] };
    let config = serde_json::json!({
        "tokenizer_class": class, "bos_token": bos, "eos_token": eos, "add_bos_token": true,
        "chat_template": "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    });
    fs::write(from.join("tokenizer_config.json"), config.to_string()).unwrap();
    convert(from.to_str().unwrap(), &to).map_err(|error| error.to_string())?;
    Ok([from, to].map(|path| path.to_str().unwrap().to_owned()))
}

#[test]
fn tokenizers_keep_their_ids_and_texts() {
    let folder = tempfile::tempdir().unwrap();
    for (file, class) in [("pieces", "LlamaTokenizer"), ("byte_level", "PreTrainedTokenizerFast")] {
        let paths = with_tokenizer(folder.path(), file, class, false)
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let [own, made] = paths.map(|path| Generator::open(path).unwrap());
        let [own_tokens, made_tokens] = [&own, &made].map(|generator| generator.tokenizer().unwrap());
        for text in
            ["Once upon a time", " two  spaces ", "1234 naïve 世界 <|user|>hi<|mid|> newword", "\n\t'll"]
        {
            for special in [true, false] {
                let ids = own_tokens.encode(text, special).unwrap();
                assert_eq!(made_tokens.encode(text, special).unwrap(), ids, "{file}, {class}: {text}");
                let [own, made] = [own_tokens, made_tokens].map(|tokens| tokens.decode(&ids, true).unwrap());
                assert_eq!(own, made, "{file}, {class}: {text}");
            }
        }
    }
    for (file, has_flags, why) in [
        ("unigram", false, "a Unigram has no form in GGUF files of decoders"),
        ("pieces", true, "added tokens have neither lstrip nor rstrip there"),
    ] {
        let error = with_tokenizer(folder.path(), file, "LlamaTokenizerFast", has_flags).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!folder.path().join(format!("{file}LlamaTokenizerFast{has_flags}.gguf")).exists());
    }
}
