//! LoRA adapters: merged while loading, to the bit as PEFT's `merge_and_unload` merges them.
//!
//! The goldens are made by `tools/golden/adapter_goldens.py`.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use rsgen::model::SUPPORTED_ARCHITECTURES;
use rsgen::{DType, ErrorKind, Generator, GeneratorOptions, TokenId, WeightType, pack};
use rsgen_kernels::Isa;
use rsgen_model::tensor_names;
use rsgen_model::weights::{Adapter, ModelConfig, ModelFiles, Weights};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::families;
use crate::golden_support::{Faults, PROMISED, bits, difference, golden, path, text, token_ids};

fn cases() -> Vec<(String, Value)> {
    let files = ["adapters", "family_adapters"].map(|file| golden(file)["cases"].clone());
    let cases = files.iter().flat_map(|cases| cases.as_object().unwrap());
    cases.map(|(name, case)| (name.clone(), case.clone())).collect()
}

fn case(name: &str) -> Value {
    cases().into_iter().find(|(other, _)| other == name).unwrap().1
}

/// The folder of the model that a case changes; that of a family's golden is written first.
fn base(case: &Value) -> String {
    static WRITTEN: OnceLock<TempDir> = OnceLock::new();
    let base = path(text(&case["base"]));
    if Path::new(&base).extension().is_none_or(|ending| ending != "json") {
        return base;
    }
    let golden: Value = serde_json::from_slice(&fs::read(&base).unwrap()).unwrap();
    let written = WRITTEN.get_or_init(|| tempfile::tempdir().unwrap());
    let adapter = Path::new(text(&case["adapter"])).file_name().unwrap();
    // Tests of the same process may write the same folder at once.
    let folder = written.path().join(format!("{:?}", std::thread::current().id())).join(adapter);
    if !folder.exists() {
        families::write(&folder, &golden, &families::tensors(&golden));
    }
    folder.to_str().unwrap().to_owned()
}

fn options(case: &Value) -> GeneratorOptions {
    GeneratorOptions::new().adapter(path(text(&case["adapter"]))).num_threads(2)
}

fn open(case: &Value) -> Generator {
    Generator::open_with(base(case), &options(case)).unwrap()
}

fn logits(generator: &Generator, case: &Value) -> Vec<f32> {
    let ids = token_ids(&case["input_ids"]);
    let all = generator.forward(std::slice::from_ref(&ids)).unwrap();
    all[all.len() / ids.len() * (ids.len() - 1)..].to_vec()
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> String {
    let step = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn weights(case: &Value, isa: Option<Isa>) -> Weights {
    let files = ModelFiles::folder(base(case)).unwrap();
    let config = ModelConfig::from_json(&files.config().unwrap(), SUPPORTED_ARCHITECTURES).unwrap();
    let mut weights = Weights::open(&files).unwrap();
    weights.set_family(tensor_names(&config).unwrap());
    if let Some(isa) = isa {
        let adapter = Adapter::open(&path(text(&case["adapter"])), None).unwrap();
        weights.merge(&adapter, config.tie_word_embeddings, isa).unwrap();
    }
    weights
}

#[test]
fn merged_weights_have_the_bits_of_peft() {
    let mut faults = Faults::default();
    for (name, case) in cases() {
        let before = weights(&case, None);
        for isa in Isa::available() {
            let merged = weights(&case, Some(isa));
            let read = |weights: &Weights, name: &str| {
                weights.tensor(name).unwrap().map(|tensor| checksum(&tensor.bytes.to_vec().unwrap()))
            };
            let changed = case["changed"].as_object().unwrap();
            for (tensor, expected) in changed {
                // A tied head may have no tensor of its own: then it is the embedding's.
                let shared = case["is_tied"] == true && !merged.contains(tensor);
                let embedding = || changed.keys().find(|name| *name != tensor && merged.contains(name));
                let same = |name: &&String| changed[*name] == *expected;
                let found = read(&merged, if shared { embedding().filter(same).unwrap() } else { tensor });
                let wrong = (found.as_deref() != expected.as_str()).then(|| format!("{found:?}"));
                faults.check(format!("{name} {tensor} {isa:?}"), wrong);
            }
            for tensor in before.names().filter(|tensor| !changed.contains_key(*tensor)) {
                let same = read(&merged, tensor) == read(&before, tensor);
                faults.check(format!("{name} {tensor}"), (!same).then(|| "it has changed".to_owned()));
            }
        }
    }
    faults.report(100);
}

#[test]
fn logits_with_an_adapter_are_those_of_the_merged_model() {
    let mut faults = Faults::default();
    for (name, case) in cases() {
        let expected: Vec<f32> =
            case["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
        let generator = open(&case);
        faults.check(&name, difference(&logits(&generator, &case), &expected, PROMISED));
        let base = Generator::open(base(&case)).unwrap();
        let without = difference(&logits(&base, &case), &expected, PROMISED);
        faults.check(&name, without.is_none().then(|| "the adapter changes nothing".to_owned()));
    }
    faults.report(20);
}

#[test]
fn an_adapter_is_merged_before_weights_are_rounded_or_packed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["patterns", "fused", "tied_saved_head", "gpt2"] {
        let case = case(name);
        let base = base(&case);
        for dtype in [WeightType::Int8, WeightType::Int4] {
            let options = options(&case).dtype(dtype);
            let merged = Generator::open_with(&base, &options).unwrap();
            let out = folder.path().join(format!("{name}-{dtype}"));
            pack(&base, &out, &options).unwrap();
            let packed = Generator::open(out.to_str().unwrap()).unwrap();
            assert_eq!(bits(&logits(&merged, &case)), bits(&logits(&packed, &case)), "{name} {dtype}");
            let without = GeneratorOptions::new().dtype(dtype);
            let without = Generator::open_with(&base, &without).unwrap();
            assert_ne!(bits(&logits(&merged, &case)), bits(&logits(&without, &case)), "{name} {dtype}");
            // A packed model has no weights to merge into.
            let error = Generator::open_with(out.to_str().unwrap(), &self::options(&case)).err().unwrap();
            assert!(error.to_string().contains("open the model that it was packed from"), "{error}");
        }
    }
}

#[test]
fn an_adapter_of_another_model_is_named_with_its_own() {
    let other = path("tests/golden/models/four_layers");
    for (name, case) in cases() {
        let error = Generator::open_with(&other, &options(&case)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Load);
        let (error, base) = (error.to_string(), path(text(&case["base"])));
        let base = Path::new(&base).file_stem().unwrap().to_str().unwrap();
        assert!(error.contains("belongs to another model") && error.contains(base), "{name}: {error}");
    }
}

/// A copy of the adapter of a case with another configuration and tensors renamed.
fn changed_adapter(name: &str, fields: &Value, rename: Option<(&str, &str)>) -> tempfile::TempDir {
    let (folder, from) = (tempfile::tempdir().unwrap(), path(text(&case(name)["adapter"])));
    let config = fs::read(Path::new(&from).join("adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    for (field, value) in fields.as_object().unwrap() {
        config[field] = value.clone();
    }
    fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
    let mut bytes = fs::read(Path::new(&from).join("adapter_model.safetensors")).unwrap();
    if let Some((old, new)) = rename {
        assert_eq!(old.len(), new.len());
        let at = bytes.windows(old.len()).position(|part| part == old.as_bytes()).unwrap();
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    fs::write(folder.path().join("adapter_model.safetensors"), bytes).unwrap();
    folder
}

#[test]
fn damaged_adapters_and_other_kinds_are_errors() {
    let error = |fields: Value, rename| {
        let folder = changed_adapter("patterns", &fields, rename);
        let adapter = folder.path().to_str().map(str::to_owned);
        let options = GeneratorOptions::new().adapter(adapter);
        let error = Generator::open_with(path(text(&case("patterns")["base"])), &options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Load);
        error.to_string()
    };
    let dora = error(json!({"use_dora": true}), None);
    assert!(dora.contains("adapter_config.json: use_dora must be unset, found true"), "{dora}");
    assert!(dora.contains("merge_and_unload()"), "{dora}");
    let left_out = error(json!({"target_modules": ["q_proj"]}), None);
    assert!(left_out.contains("has factors, but target_modules"), "{left_out}");
    let rank = error(json!({"rank_pattern": {}}), None);
    assert!(rank.contains("must have the shape"), "{rank}");
    let alone = error(json!({}), Some(("up_proj.lora_B.weight", "up_proj.lora_B.weirdo")));
    assert!(alone.contains("other parts of adapters are not supported"), "{alone}");
    let unknown = error(json!({}), Some(("mlp.up_proj.lora_A.weight", "mlp.uq_proj.lora_A.weight")));
    assert!(unknown.contains("second factor") || unknown.contains("does not have"), "{unknown}");
    let prefix = error(json!({}), Some(("base_model.model", "base_other.model")));
    assert!(prefix.contains("must begin with base_model.model."), "{prefix}");
}

#[test]
fn a_vocabulary_of_another_size_needs_both_embedding_and_head() {
    let resized = case("saved_more_rows");
    let error = |fields: Value, rename| {
        let folder = changed_adapter("saved_more_rows", &fields, rename);
        let options = GeneratorOptions::new().adapter(folder.path().to_str().map(str::to_owned));
        Generator::open_with(path(text(&resized["base"])), &options).err().unwrap().to_string()
    };
    // A head that is not where the model's is leaves the embedding alone.
    let alone =
        error(json!({}), Some(("base_model.model.lm_head.weight", "base_model.model.lm_heap.weight")));
    assert!(alone.contains("trained with a vocabulary of"), "{alone}");
    assert!(alone.contains("does not hold both model.embed_tokens and lm_head"), "{alone}");
    let generator = open(&resized);
    let vocab_size = generator.forward(&[vec![TokenId(1)]]).unwrap().len();
    assert!(generator.forward(&[vec![TokenId(vocab_size as u32 - 1)]]).is_ok());
    let kept = |tied: bool| {
        let folder = changed_adapter("tied_saved_head", &json!({"ensure_weight_tying": tied}), None);
        let options = GeneratorOptions::new().adapter(folder.path().to_str().map(str::to_owned));
        Generator::open_with(path(text(&case("tied_saved_head")["base"])), &options).err()
    };
    assert!(kept(false).is_none());
    assert!(kept(true).unwrap().to_string().contains("ensure_weight_tying must be false"));
}

#[test]
fn what_is_missing_of_an_adapter_is_named() {
    let case = case("patterns");
    let folder = tempfile::tempdir().unwrap();
    let adapter = folder.path().to_str().map(str::to_owned);
    let options = GeneratorOptions::new().adapter(adapter);
    let open = || Generator::open_with(path(text(&case["base"])), &options).err().unwrap().to_string();
    assert!(open().contains("adapter_config.json is missing"), "{}", open());
    let from = path(text(&case["adapter"]));
    fs::copy(Path::new(&from).join("adapter_config.json"), folder.path().join("adapter_config.json"))
        .unwrap();
    assert!(open().contains("adapter_model.safetensors is missing"), "{}", open());
    fs::write(folder.path().join("adapter_model.bin"), b"x").unwrap();
    assert!(open().contains("adapter_model.bin: it is no file of torch.save"), "{}", open());
    let empty = [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'];
    fs::write(folder.path().join("adapter_model.safetensors"), empty).unwrap();
    assert!(
        open().contains("adapter_model.safetensors has no tensors; download the adapter again"),
        "{}",
        open()
    );
    let rounded = self::options(&case).dtype(WeightType::from(DType::Bf16));
    assert!(Generator::open_with(path(text(&case["base"])), &rounded).is_ok());
}
