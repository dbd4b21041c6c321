//! Models in memory: the same bits as from files, and the same errors.

use std::fs;

use rsgen::{
    DType, ErrorKind, GenerationConfig, Generator, GeneratorOptions, MemoryModel, Tensor, TensorInfo,
    TensorSource, TokenId, WeightType,
};
use rsgen_model::weights::{ModelFiles, Weights};

use crate::golden_support::{bits, golden, path, text};

const STORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");

fn config(folder: &str) -> Vec<u8> {
    fs::read(format!("{folder}/config.json")).unwrap()
}

/// Copies of all tensors of a model.
fn tensors(folder: &str) -> Vec<Tensor> {
    let weights = Weights::open(&ModelFiles::folder(folder).unwrap()).unwrap();
    let tensor = |name: &str| {
        let view = weights.tensor(name).unwrap().unwrap();
        let bytes = view.bytes.to_vec().unwrap();
        Tensor {
            name: name.to_owned(),
            dtype: view.encoding.dtype().unwrap(),
            shape: view.shape.to_vec(),
            bytes,
        }
    };
    weights.names().map(tensor).collect()
}

fn ids() -> Vec<TokenId> {
    [3, 17, 9, 40, 22].map(TokenId).to_vec()
}

#[test]
fn a_model_in_memory_has_the_bits_of_its_files() {
    let int8 = GeneratorOptions::new().dtype(WeightType::Int8);
    for model in ["tied", "bfloat16", "float16", "sharded", "phi3_fused", "qwen2_bias", "head_of_its_own"] {
        let folder = path(&format!("tests/golden/models/{model}"));
        for options in [&GeneratorOptions::default(), &int8] {
            let expected = Generator::open_with(&folder, options).unwrap();
            let found = Generator::from_tensors(config(&folder), tensors(&folder), options).unwrap();
            let [expected, found] = [expected, found].map(|model| bits(&model.forward(&[ids()]).unwrap()));
            assert_eq!(found, expected, "{model}");
        }
    }
}

#[test]
fn a_tokenizer_and_defaults_may_come_along() {
    let model = MemoryModel::new(config(STORY), tensors(STORY)).name("my model");
    let without = Generator::from_memory(&model, &GeneratorOptions::default()).unwrap();
    assert!(without.tokenizer().is_err() && without.name() == "my model");
    let model = model.tokenizer_of(STORY, None, None).unwrap();
    let defaults = GenerationConfig::new().max_new_tokens(7);
    let model = model.file("generation_config.json", serde_json::Value::from(defaults.to_json()).to_string());
    let generator = Generator::from_memory(&model, &GeneratorOptions::default()).unwrap();
    let expected = Generator::open(STORY).unwrap();
    let seven = GenerationConfig::new().max_new_tokens(7);
    let prompt = "Once upon a time";
    let (found, expected) =
        (generator.generate(prompt, &GenerationConfig::new()), expected.generate(prompt, &seven));
    assert_eq!(found.unwrap().text(), expected.unwrap().text());
}

#[test]
fn an_adapter_is_merged_into_tensors_in_memory() {
    let cases = golden("adapters");
    for name in ["patterns", "tied_both", "fused"] {
        let case = &cases["cases"][name];
        let base = path(text(&case["base"]));
        let options = GeneratorOptions::new().adapter(path(text(&case["adapter"])));
        let expected = Generator::open_with(&base, &options).unwrap();
        let found = Generator::from_tensors(config(&base), tensors(&base), &options).unwrap();
        let [expected, found] = [expected, found].map(|model| bits(&model.forward(&[ids()]).unwrap()));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_model_that_holds_its_head_twice_is_as_tied_as_its_file() {
    let folder = path("tests/golden/models/tied");
    let mut twice = tensors(&folder);
    let embedding = twice.iter().find(|tensor| tensor.name == "model.embed_tokens.weight").unwrap().clone();
    twice.push(Tensor { name: "lm_head.weight".to_owned(), ..embedding });
    let case = &golden("adapters")["cases"]["tied_both"];
    for adapter in [None, Some(path(text(&case["adapter"])))] {
        let options = GeneratorOptions::new().adapter(adapter);
        let found = Generator::from_tensors(config(&folder), twice.clone(), &options).unwrap();
        let expected = Generator::open_with(&folder, &options).unwrap();
        let [expected, found] = [expected, found].map(|model| bits(&model.forward(&[ids()]).unwrap()));
        assert_eq!(found, expected);
    }
}

#[test]
fn wrong_tensors_are_named() {
    let folder = path("tests/golden/models/tied");
    let error = |tensors: Vec<Tensor>| {
        let error = Generator::from_tensors(config(&folder), tensors, &GeneratorOptions::default());
        let error = error.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Load);
        error.to_string()
    };
    let changed = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut tensors = tensors(&folder);
        change(&mut tensors);
        error(tensors)
    };
    let missing = changed(&|tensors| tensors.retain(|tensor| tensor.name != "model.norm.weight"));
    assert!(missing.contains("model.norm.weight: the weights have no tensor of this name"), "{missing}");
    let place = |tensors: &[Tensor], name: &str| tensors.iter().position(|tensor| tensor.name == name);
    let name = "model.layers.0.self_attn.q_proj.weight";
    let shape = changed(&|tensors| {
        let at = place(tensors, name).unwrap();
        tensors[at].shape.reverse();
        tensors[at].shape[0] += 1;
    });
    assert!(shape.contains(name) && shape.contains("config.json predicts the shape"), "{shape}");
    let short = changed(&|tensors| {
        let at = place(tensors, name).unwrap();
        tensors[at].bytes.truncate(10);
    });
    assert!(short.contains(name) && short.contains("more bytes than there are"), "{short}");
    let twice = changed(&|tensors| tensors.push(tensors[0].clone()));
    assert!(twice.contains("comes twice"), "{twice}");
    let not_finite = changed(&|tensors| {
        let at = place(tensors, name).unwrap();
        tensors[at].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    assert!(not_finite.contains("finite"), "{not_finite}");
}

#[test]
fn a_source_that_fails_ends_the_loading_with_its_error() {
    struct Failing(Vec<Tensor>);

    impl TensorSource for Failing {
        fn tensors(&self) -> Vec<TensorInfo> {
            let info = |tensor: &Tensor| TensorInfo::new(&*tensor.name, tensor.dtype, &*tensor.shape);
            self.0.iter().map(info).chain([TensorInfo::of_other_type("unused", "int64", [1])]).collect()
        }

        fn read(&self, index: usize, start: usize, out: &mut [u8]) -> rsgen::Result<()> {
            assert!(
                start.is_multiple_of(self.0[index].dtype.bytes())
                    && out.len().is_multiple_of(self.0[index].dtype.bytes())
            );
            if self.0[index].name.contains("down_proj") {
                return Err(rsgen::Error::load("the disk is on fire"));
            }
            self.0.read(index, start, out)
        }
    }

    let folder = path("tests/golden/models/bfloat16");
    let tensors = tensors(&folder);
    assert!(tensors.iter().all(|tensor| tensor.dtype == DType::Bf16));
    let options = GeneratorOptions::default();
    let error =
        Generator::from_tensors(config(&folder), Failing(tensors), &options).err().unwrap().to_string();
    assert!(error.contains("down_proj") && error.contains("the disk is on fire"), "{error}");
}
