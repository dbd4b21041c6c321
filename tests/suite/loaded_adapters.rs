//! LoRA adapters beside the model: rows that name them get what the merged model gives, and no other row changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rsgen::{DType, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, Tensor, TokenId};
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::families::{goldens_of, tensor, tensors, write};
use crate::golden_support::{Faults, PROMISED, bits, difference};

const RANK: usize = 3;

/// Writes an adapter for all maps of a golden's layers that one beside the model can change.
fn write_adapter(folder: &Path, golden: &Value, name: &str) {
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
    let seeded = |own: &Tensor| Tensor {
        bytes: tensor(&format!("{name} {}", own.name), &own.shape, false).bytes,
        ..own.clone()
    };
    write_tensors(
        folder,
        &json!({ "target_modules": targets }),
        &factors.iter().map(seeded).collect::<Vec<_>>(),
    );
}

fn write_tensors(folder: &Path, fields: &Value, tensors: &[Tensor]) {
    fs::create_dir_all(folder).unwrap();
    let mut config = json!({ "peft_type": "LORA", "r": RANK, "lora_alpha": 2 });
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|own| {
        assert_eq!(own.dtype, DType::F32);
        (&*own.name, TensorView::new(safetensors::Dtype::F32, own.shape.clone(), &own.bytes).unwrap())
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
        write_adapter(&adapter, &golden, &name);
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
