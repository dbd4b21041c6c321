//! LoRA adapters beside the model: rows that name them get what the merged model gives, and no other row changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rsgen::model::SUPPORTED_ARCHITECTURES;
use rsgen::{
    DType, ErrorKind, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, Tensor, TokenId,
};
use rsgen_model::tensor_names;
use rsgen_model::weights::ModelConfig;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::families::{goldens_of, tensor, tensors, write};
use crate::golden_support::{Faults, PROMISED, bits, difference, golden, path, text};

const RANK: usize = 3;

/// Writes an adapter for all maps of a golden's layers that one beside the model can change, in a type.
fn write_adapter(folder: &Path, golden: &Value, name: &str, dtype: DType) {
    // GPT-2 holds its matrices transposed.
    let is_transposed = golden["config"]["model_type"] == "gpt2";
    let not = [
        "embed",
        "experts",
        "router",
        "block_sparse_moe",
        "shared_expert",
        ".moe.",
        "shared_mlp",
        "norm",
        "ln",
    ];
    let (mut targets, mut factors) = (BTreeSet::new(), Vec::new());
    for own in tensors(golden) {
        let Some(module) = own.name.strip_suffix(".weight") else { continue };
        let in_layer = module.split('.').any(|part| part.parse::<usize>().is_ok());
        let last = module.rsplit('.').next().unwrap();
        let &[rows, columns] = &own.shape[..] else { continue };
        if !in_layer || last == "gate" || not.iter().any(|part| module.contains(part)) {
            continue;
        }
        let (outputs, inputs) = if is_transposed { (columns, rows) } else { (rows, columns) };
        targets.insert(last.to_owned());
        for (part, shape) in [("lora_A", [RANK, inputs]), ("lora_B", [outputs, RANK])] {
            factors.push(tensor(&format!("base_model.model.{module}.{part}.weight"), &shape, false));
        }
    }
    assert!(!factors.is_empty());
    // Another one for each name.
    let seeded = |own: &Tensor| {
        let numbers = tensor(&format!("{name} {}", own.name), &own.shape, false).bytes;
        let numbers = numbers.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        Tensor { bytes: numbers.flat_map(|number| dtype.to_le_bytes(number)).collect(), dtype, ..own.clone() }
    };
    let factors: Vec<_> = factors.iter().map(seeded).collect();
    fs::create_dir_all(folder).unwrap();
    let config = json!({ "peft_type": "LORA", "r": RANK, "lora_alpha": 2, "target_modules": targets });
    fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let views = factors.iter().map(|own| {
        let dtype = match dtype {
            DType::F32 => safetensors::Dtype::F32,
            DType::Bf16 => safetensors::Dtype::BF16,
            DType::F16 => safetensors::Dtype::F16,
        };
        (&*own.name, TensorView::new(dtype, own.shape.clone(), &own.bytes).unwrap())
    });
    fs::write(folder.join("adapter_model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
}

fn options() -> GeneratorOptions {
    GeneratorOptions::new().num_threads(2)
}

fn ids(values: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    values.into_iter().map(TokenId).collect()
}

/// Prompts of a vocabulary of at least 40, the first longer than a block of the cache.
fn prompts() -> Vec<Vec<TokenId>> {
    vec![ids((0..37).map(|i| 3 + i * 7 % 35)), ids([5]), ids([9, 8, 7, 6]), ids((0..20).map(|i| 3 + i % 30))]
}

fn greedy() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(6).output_logits(true).eos_token_id(Vec::new())
}

/// The logits of all steps of each row.
fn logits(output: &GenerationOutput) -> Vec<Vec<f32>> {
    output.sequences.iter().map(|row| row.logits.as_ref().unwrap().concat()).collect()
}

#[test]
fn rows_with_an_adapter_are_those_of_the_merged_model_in_every_family() {
    let (mut faults, mut refused, mut count) = (Faults::default(), Vec::new(), 0);
    for (name, golden) in goldens_of("tests/golden/families") {
        let folder = tempfile::tempdir().unwrap();
        let [base, adapter] = ["base", "adapter"].map(|part| folder.path().join(part));
        write(&base, &golden, &tensors(&golden));
        write_adapter(&adapter, &golden, &name, DType::F32);
        let [base, adapter] = [&base, &adapter].map(|path| path.to_str().unwrap());
        let merged = Generator::open_with(base, &options().adapter(adapter.to_owned())).unwrap();
        let beside = Generator::open_with(base, &options()).unwrap();
        let plain = logits(&beside.call(prompts()).config(&greedy()).run().unwrap());
        if let Err(error) = beside.load_adapter(adapter, "a", None, &mut || false) {
            refused.push(format!("{name}: {error}"));
            continue;
        }
        count += 1;
        let expected = merged.call(prompts()).config(&greedy()).run().unwrap();
        let found = beside.call(prompts()).adapter("a").config(&greedy()).run().unwrap();
        for (row, (own, expected)) in logits(&found).iter().zip(logits(&expected)).enumerate() {
            faults.check(format!("{name} {row}"), difference(own, &expected, PROMISED));
            let unchanged = difference(own, &plain[row], PROMISED).is_none();
            faults.check(format!("{name} {row}"), unchanged.then(|| "it changes nothing".to_owned()));
        }
        // Beside rows of the model alone, each keeps its bits.
        let mixed = [Some("a".to_owned()), None, None, Some("a".to_owned())];
        let mixed = logits(&beside.call(prompts()).adapters(mixed).config(&greedy()).run().unwrap());
        let alone = [&logits(&found)[0], &plain[1], &plain[2], &logits(&found)[3]];
        for (row, (own, alone)) in mixed.iter().zip(alone).enumerate() {
            let differs = bits(own) != bits(alone);
            faults.check(format!("{name} {row} mixed"), differs.then(|| "other bits".to_owned()));
        }
    }
    assert_eq!(refused, Vec::<String>::new());
    faults.report(8 * count);
}

/// A base, an adapter of it, and both merged and beside each other.
fn pair(base: &Path, adapter: &Path) -> (Generator, Generator) {
    let [base, adapter] = [base, adapter].map(|path| path.to_str().unwrap());
    let merged = Generator::open_with(base, &options().adapter(adapter.to_owned())).unwrap();
    let beside = Generator::open_with(base, &options()).unwrap();
    beside.load_adapter(adapter, "a", None, &mut || false).unwrap();
    (merged, beside)
}

#[test]
fn modules_are_found_by_the_names_of_every_writer() {
    let mut faults = Faults::default();
    let mut count = 0;
    for (name, golden) in goldens_of("tests/golden/families") {
        if golden["config"].get("text_config").is_some() {
            continue;
        }
        let config = golden["config"].to_string();
        let config = ModelConfig::from_json(config.as_bytes(), SUPPORTED_ARCHITECTURES).unwrap();
        let scope = format!("{}.", tensor_names(&config).unwrap().base);
        let folder = tempfile::tempdir().unwrap();
        let adapter = folder.path().join("adapter");
        // The adapter has the names of the model with a head.
        write_adapter(&adapter, &golden, &name, DType::F32);
        let tensors = tensors(&golden);
        for (number, renamed) in ["", "language_model.model.", "model.language_model."].iter().enumerate() {
            let in_scope = |name: &str| name.strip_prefix(&scope).map(|rest| format!("{renamed}{rest}"));
            let own: Vec<_> = tensors
                .iter()
                .map(|tensor| Tensor {
                    name: in_scope(&tensor.name).unwrap_or(tensor.name.clone()),
                    ..tensor.clone()
                })
                .collect();
            let base = folder.path().join(number.to_string());
            write(&base, &golden, &own);
            if Generator::open_with(base.to_str().unwrap(), &options()).is_err() {
                continue;
            }
            count += 1;
            let (merged, beside) = pair(&base, &adapter);
            let expected = logits(&merged.call(prompts()).config(&greedy()).run().unwrap());
            let found = logits(&beside.call(prompts()).adapter("a").config(&greedy()).run().unwrap());
            for (own, expected) in found.iter().zip(&expected) {
                faults.check(format!("{name} {renamed}"), difference(own, expected, PROMISED));
            }
        }
    }
    assert!(count >= 60, "{count} forms");
    faults.report(4 * count);
}

#[test]
fn factors_may_be_of_every_type() {
    let golden = goldens_of("tests/golden/families").into_iter().find(|(name, _)| name == "gpt2").unwrap().1;
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    write(&base, &golden, &tensors(&golden));
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let adapter = folder.path().join(dtype.name());
        write_adapter(&adapter, &golden, "a", dtype);
        let (merged, beside) = pair(&base, &adapter);
        let expected = logits(&merged.call(prompts()).config(&greedy()).run().unwrap());
        let found = logits(&beside.call(prompts()).adapter("a").config(&greedy()).run().unwrap());
        for (own, expected) in found.iter().zip(&expected) {
            assert_eq!(difference(own, expected, PROMISED), None, "{}", dtype.name());
        }
        let bytes = beside.adapters()[0].1;
        assert_eq!(bytes < 100_000, dtype != DType::F32, "{bytes}");
    }
}

#[test]
fn published_adapters_are_loaded_or_refused_by_name() {
    let refused = [
        ("tied_embedding", "changes an embedding"),
        ("tied_both", "changes an embedding"),
        ("tied_saved_head", "whole tensor"),
        ("tied_saved_embedding", "whole tensor"),
        ("tied_more_rows", "whole tensor"),
        ("saved_more_rows", "whole tensor"),
        ("fewer_rows", "changes an embedding"),
        ("apart", "whole tensor"),
    ];
    for (name, case) in golden("adapters")["cases"].as_object().unwrap() {
        let beside = Generator::open_with(path(text(&case["base"])), &options()).unwrap();
        let loaded = beside.load_adapter(&path(text(&case["adapter"])), "a", None, &mut || false);
        match refused.iter().find(|(other, _)| other == name) {
            Some((_, reason)) => {
                let error = loaded.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Load);
                assert!(error.to_string().contains(reason), "{name}: {error}");
            }
            None => loaded.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }
}
