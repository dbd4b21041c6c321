//! GGUF files of every architecture against transformers: headers that llama.cpp's converter wrote, and weights that are
//! computed from the names of transformers' tensors, in the order that the converter gave their rows.

use std::collections::HashMap;
use std::fs;

use rsgen::model::SUPPORTED_ARCHITECTURES;
use rsgen::{DType, Generator, convert};
use rsgen_model::weights::{ModelConfig, ModelFiles, Weights};
use serde_json::Value;

use crate::families::{goldens_of, greedy, tensor};
use crate::golden_support::{
    Faults, PROMISED, base64, difference, integer, integers, list, path, text, token_ids, unequal,
};

/// The numbers of a tensor of transformers.
pub(crate) type Numbers = HashMap<String, Vec<f32>>;

/// The numbers of all tensors of a family's golden.
pub(crate) fn numbers(family: &Value) -> Numbers {
    let around_0 = family["norms_around_0"].as_bool().unwrap();
    let tensors = family["tensors"].as_object().unwrap().iter().map(|(name, shape)| {
        let shape: Vec<_> = integers(shape).into_iter().map(|size| size as usize).collect();
        let bytes = tensor(name, &shape, around_0).bytes;
        (name.clone(), DType::F32.to_f32(&bytes).collect())
    });
    tensors.collect()
}

/// The numbers of a stored tensor; `layer` replaces the stars of its names.
fn stored(golden: &Value, entry: &Value, layer: &str, numbers: &Numbers) -> Vec<f32> {
    let (width, step) = (integer(&entry["width"]), integer(&entry["step"]));
    let mut values = Vec::new();
    for part in list(&entry["parts"]) {
        let rows: Vec<u64> = match &part[1] {
            Value::Array(run) => {
                let [first, distance, count] = integers(&Value::from(run.clone()))[..] else {
                    panic!("{part}")
                };
                (0..count).map(|row| first + row * distance).collect()
            }
            order => integers(&golden["orders"][integer(order) as usize]),
        };
        let name = text(&part[0]).replacen('*', layer, 1);
        for expert in 0..part.get(2).map_or(1, integer) {
            let numbers = &numbers[&name.replace("experts.+", &format!("experts.{expert}"))];
            for &row in &rows {
                values.extend((0..width).map(|column| numbers[(row + column * step) as usize]));
            }
        }
    }
    if entry["plus_one"].as_bool().unwrap() {
        for value in &mut values {
            *value += 1.0;
        }
    }
    values
}

/// The file that the converter would write for the model of a golden.
pub(crate) fn file(golden: &Value, numbers: &Numbers) -> Vec<u8> {
    let mut file = base64(text(&golden["header"]));
    let start = file.len();
    let mut put = |name: &str, values: &[f32]| {
        let mut key = (name.len() as u64).to_le_bytes().to_vec();
        key.extend(name.as_bytes());
        let Some(at) = file[..start].windows(key.len()).position(|part| part == key) else { return false };
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        // The number of dimensions, the dimensions and the type are before the offset.
        let at = at + key.len();
        let at = at + 4 + 8 * word(at) as usize + 4;
        let offset = start + u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        let end = offset + 4 * values.len();
        file.resize(file.len().max(end), 0);
        for (value, bytes) in values.iter().zip(file[offset..end].chunks_exact_mut(4)) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        true
    };
    for (name, entry) in golden["tensors"].as_object().unwrap() {
        if !name.contains('*') {
            assert!(put(name, &stored(golden, entry, "", numbers)), "{name}");
        }
        for layer in 0..16 {
            let layer = layer.to_string();
            let name = name.replacen('*', &layer, 1);
            let key = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
            if base64(text(&golden["header"])).windows(key.len()).any(|part| part == key) {
                put(&name, &stored(golden, entry, &layer, numbers));
            }
        }
    }
    for (name, values) in golden["rotary"].as_object().unwrap() {
        let values: Vec<f32> = list(values).iter().map(|value| value.as_f64().unwrap() as f32).collect();
        assert!(put(name, &values), "{name}");
    }
    file
}

/// The models: the golden of a file and that of its family.
pub(crate) fn models() -> Vec<(String, Value, Value)> {
    let mut families: HashMap<String, Value> = goldens_of("tests/golden/families").into_iter().collect();
    let with_family = |(name, golden): (String, Value)| {
        let family = families.remove(&name).unwrap();
        (name, golden, family)
    };
    goldens_of("tests/golden/gguf").into_iter().map(with_family).collect()
}

/// Compares a model with the logits and tokens of a golden.
fn compare(name: &str, path: &str, golden: &Value, faults: &mut Faults) {
    let ids = token_ids(&golden["input_ids"]);
    let computed = Generator::open(path).and_then(|generator| {
        let logits = generator.forward(std::slice::from_ref(&ids))?;
        let expected = token_ids(&golden["greedy"]);
        let output = generator.generate(ids, &greedy(expected.len()))?;
        faults.check(format!("{name}, greedy"), unequal(output.token_ids(), &expected));
        Ok((logits, generator.config().vocab_size))
    });
    let (logits, vocab_size) = match computed {
        Ok(computed) => computed,
        Err(error) => return faults.check(name, Some(error.to_string())),
    };
    for (position, expected) in list(&golden["positions"]).iter().zip(list(&golden["logits"])) {
        let expected: Vec<f32> = list(expected).iter().map(|logit| logit.as_f64().unwrap() as f32).collect();
        let actual = &logits[integer(position) as usize * vocab_size..][..vocab_size];
        faults.check(format!("{name}, logits at {position}"), difference(actual, &expected, PROMISED));
    }
}

#[test]
fn files_of_every_architecture_have_the_logits_and_tokens_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    for (name, golden, family) in models() {
        let path = folder.path().join(format!("{name}.gguf"));
        fs::write(&path, file(&golden, &numbers(&family))).unwrap();
        compare(&name, path.to_str().unwrap(), &family, &mut faults);
    }
    faults.report(4 * 40);
}

/// What the forward pass reads of a configuration. Factors of the rotary embedding come out of float32.
fn understood(config: &ModelConfig) -> Vec<(&'static str, String)> {
    let sizes = [
        ("vocab_size", config.vocab_size),
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("num_hidden_layers", config.num_hidden_layers),
        ("num_attention_heads", config.num_attention_heads),
        ("num_key_value_heads", config.num_key_value_heads),
        ("head_dim", config.head_dim),
    ];
    let sizes = sizes.into_iter().map(|(name, size)| (name, size.to_string()));
    let others = [
        ("architecture", config.architecture.clone()),
        ("hidden_act", config.hidden_act.clone()),
        ("rms_norm_eps", config.rms_norm_eps.to_string()),
        ("window", format!("{:?}", config.window)),
        ("rope", format!("{:?}", config.rope)),
        ("local_rope", format!("{:?}", config.local_rope)),
    ];
    sizes.chain(others).collect()
}

/// A file whose stacks of experts are matrices by themselves, as llama.cpp's converter wrote them at first.
fn with_listed_experts(golden: &Value, file: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let double = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    // The metadata ends where the first of the tensors begins.
    let place = |name: &String| {
        let name = name.replacen('*', "0", 1);
        let key = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
        file.windows(key.len()).position(|part| part == key)
    };
    let start = golden["tensors"].as_object().unwrap().keys().filter_map(place).min().unwrap();
    let (mut at, mut infos, count) = (start, Vec::new(), double(8));
    for _ in 0..count {
        let name = std::str::from_utf8(&file[at + 8..at + 8 + double(at)]).unwrap();
        at += 8 + name.len();
        let shape: Vec<usize> = (0..word(at)).map(|axis| double(at + 4 + 8 * axis)).collect();
        at += 4 + 8 * shape.len();
        infos.push((name.to_owned(), shape, word(at), double(at + 4)));
        at += 12;
    }
    let data = at.next_multiple_of(32);
    let mut listed = Vec::new();
    for (name, shape, kind, offset) in infos {
        match (name.strip_suffix("_exps.weight"), &shape[..]) {
            (Some(stem), &[columns, rows, experts]) => listed.extend((0..experts).map(|expert| {
                let offset = offset + expert * 4 * rows * columns;
                (format!("{stem}.{expert}.weight"), vec![columns, rows], kind, offset)
            })),
            _ => listed.push((name, shape, kind, offset)),
        }
    }
    let mut out = file[..start].to_vec();
    out[8..16].copy_from_slice(&(listed.len() as u64).to_le_bytes());
    for (name, shape, kind, offset) in listed {
        out.extend((name.len() as u64).to_le_bytes().into_iter().chain(name.bytes()));
        out.extend((shape.len() as u32).to_le_bytes());
        for size in shape {
            out.extend((size as u64).to_le_bytes());
        }
        out.extend((kind as u32).to_le_bytes().into_iter().chain((offset as u64).to_le_bytes()));
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(&file[data..]);
    out
}

#[test]
fn experts_may_be_listed_one_by_one() {
    let (name, golden, family) = models().into_iter().find(|(name, ..)| name == "mixtral_three").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.gguf"));
    let file = with_listed_experts(&golden, &file(&golden, &numbers(&family)));
    assert!(file.windows(20).any(|part| part == b"blk.0.ffn_down.3.wei"));
    fs::write(&path, file).unwrap();
    let mut faults = Faults::default();
    compare(&name, path.to_str().unwrap(), &family, &mut faults);
    faults.report(4);
}

#[test]
fn converted_files_have_the_tensors_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let (mut faults, mut refused) = (Faults::default(), Vec::new());
    for (name, golden, family) in models() {
        let numbers = numbers(&family);
        let (path, out) = (folder.path().join(format!("{name}.gguf")), folder.path().join(&name));
        fs::write(&path, file(&golden, &numbers)).unwrap();
        let report = match convert(path.to_str().unwrap(), &out) {
            Ok(report) => report,
            Err(error) => {
                assert!(error.to_string().contains("transformers has them in stacks"), "{name}: {error}");
                refused.push(name);
                continue;
            }
        };
        assert_eq!(report.num_files, 1);
        let weights = Weights::open(&ModelFiles::folder(&out).unwrap()).unwrap();
        let mut names: Vec<&str> = weights.names().collect();
        // A file has the decoder of a wrapped model.
        let bare = |name: &String| {
            name.replace("language_model.model.", "model.").replace("language_model.lm_head", "lm_head")
        };
        let numbers: Numbers = numbers.iter().map(|(name, values)| (bare(name), values.clone())).collect();
        let shapes = family["tensors"].as_object().unwrap();
        let shapes: HashMap<String, &Value> =
            shapes.iter().map(|(name, shape)| (bare(name), shape)).collect();
        let (mut expected, is_tied): (Vec<&str>, _) =
            (numbers.keys().map(String::as_str).collect(), family["config"]["tie_word_embeddings"] != false);
        // A tied head is the embedding, and buffers are made.
        expected.retain(|name| !(is_tied && name.ends_with("lm_head.weight")));
        names.retain(|name| !(is_tied && name.ends_with("lm_head.weight")));
        names.sort_unstable();
        expected.sort_unstable();
        let differs = (names != expected).then(|| format!("{names:?}, not {expected:?}"));
        faults.check(format!("{name}, names"), differs);
        for tensor in expected {
            let Some(view) = weights.tensor(tensor).unwrap() else { continue };
            let shape: Vec<u64> = view.shape.iter().map(|&size| size as u64).collect();
            let differs = shape != integers(shapes[tensor]);
            faults.check(format!("{name}, {tensor}"), differs.then(|| format!("has the shape {shape:?}")));
            let values = view.row().to_f32().unwrap();
            // A norm loses what adding 1 loses.
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 2e-7;
            let equal =
                values.len() == numbers[tensor].len() && values.iter().zip(&numbers[tensor]).all(close);
            faults.check(format!("{name}, {tensor}"), (!equal).then(|| "has other numbers".to_owned()));
        }
        compare(&format!("{name}, converted"), out.to_str().unwrap(), &family, &mut faults);
    }
    assert_eq!(refused, ["gpt_oss", "granitemoe", "granitemoeshared"]);
    faults.report(40 * 20);
}

#[test]
fn converted_files_of_blocks_keep_every_weight() {
    let out = tempfile::tempdir().unwrap();
    let mut types = Vec::new();
    for entry in fs::read_dir(path("tests/golden/gguf_blocks")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if file.extension().is_none_or(|ending| ending != "gguf") || name == "gpt_oss" {
            continue;
        }
        let folder = out.path().join(&name);
        convert(file.to_str().unwrap(), &folder).unwrap();
        let before = Weights::open(&ModelFiles::open(file.to_str().unwrap(), None, None).unwrap()).unwrap();
        let after = Weights::open(&ModelFiles::folder(&folder).unwrap()).unwrap();
        for tensor in before.names() {
            let (before, after) = (before.tensor(tensor).unwrap(), after.tensor(tensor).unwrap());
            let (before, after) = (before.unwrap(), after.unwrap());
            types.push(before.encoding.name());
            match before.encoding.dtype() {
                Some(_) if before.shape == after.shape => assert_eq!(before.encoding, after.encoding),
                _ => assert_eq!(after.encoding, DType::F32.into()),
            }
            let (mut before, mut after) = (before.row().to_f32().unwrap(), after.row().to_f32().unwrap());
            if name == "gpt2" {
                // Matrices of `Conv1D` are the other way round.
                before.sort_by(f32::total_cmp);
                after.sort_by(f32::total_cmp);
            }
            assert_eq!(before, after, "{name}: {tensor}");
        }
        let ids = vec![rsgen::TokenId(3), rsgen::TokenId(5), rsgen::TokenId(7)];
        let logits =
            |model: &str| Generator::open(model).unwrap().forward(std::slice::from_ref(&ids)).unwrap();
        assert_eq!(logits(folder.to_str().unwrap()), logits(file.to_str().unwrap()), "{name}");
    }
    for kind in ["float16", "bfloat16", "Q8_0", "Q4_0", "Q5_1"] {
        assert!(types.contains(&kind), "{kind}");
    }
}

#[test]
fn configurations_are_those_that_the_files_were_made_of() {
    let mut faults = Faults::default();
    for (name, golden, family) in models() {
        let files = ModelFiles::gguf_in_memory(&name, file(&golden, &numbers(&family))).unwrap();
        let read = |text: &[u8]| ModelConfig::from_json(text, SUPPORTED_ARCHITECTURES).unwrap();
        let (made, original) =
            (read(&files.config().unwrap()), read(family["config"].to_string().as_bytes()));
        for ((field, made), (_, original)) in understood(&made).into_iter().zip(understood(&original)) {
            // Its four divisors are those of any original context from 26 to 62.
            if (name.as_str(), field) == ("apertus", "rope") {
                continue;
            }
            faults.check(
                format!("{name}, {field}"),
                (made != original).then(|| format!("{made}, expected {original}")),
            );
        }
    }
    faults.report(13 * 40);
}

#[test]
fn files_of_blocks_have_the_logits_and_tokens_of_transformers_with_their_float32_weights() {
    let mut faults = Faults::default();
    let folder = path("tests/golden/gguf_blocks");
    for entry in fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|ending| ending == "gguf") {
            let golden = serde_json::from_slice(&fs::read(file.with_extension("json")).unwrap()).unwrap();
            let name = file.file_stem().unwrap().to_str().unwrap();
            compare(name, file.to_str().unwrap(), &golden, &mut faults);
        }
    }
    faults.report(4 * 7);
}
