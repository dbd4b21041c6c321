//! What weight files hold, by the parts of a model and the types of tensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rsgen::{Generator, GeneratorOptions, WeightType, pack};
use rsgen_model::weights::{ModelFiles, TensorGroup, Weights};

use crate::families::{goldens_of, tensors};
use crate::golden_support::path;

fn of_folder(folder: &str) -> Weights {
    Weights::open(&ModelFiles::folder(PathBuf::from(path(folder))).unwrap()).unwrap()
}

/// The types of each part, with how many tensors have them.
fn types(groups: &[TensorGroup]) -> BTreeMap<&str, Vec<(&str, usize)>> {
    let mut types: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for group in groups {
        types.entry(group.group).or_default().push((&*group.dtype, group.tensors));
    }
    types
}

#[test]
fn every_tensor_of_every_family_belongs_to_a_part() {
    let mut count = 0;
    for folder in ["tests/golden/families", "tests/golden/encoders"] {
        for (name, golden) in goldens_of(folder) {
            let source: Arc<dyn rsgen_model::weights::TensorSource> = Arc::new(tensors(&golden));
            let weights = Weights::from_source(&source).unwrap();
            let groups = weights.groups();
            let others: Vec<_> = groups.iter().filter(|group| group.group == "other").collect();
            assert!(others.is_empty(), "{name}: {others:?}");
            assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), weights.data_len(), "{name}");
            let has = |part: &str| groups.iter().any(|group| group.group == part);
            assert!(has("embedding") && has("attention") && (has("mlp") || has("experts")), "{name}");
            count += 1;
        }
    }
    assert!(count > 70, "{count} models");
}

#[test]
fn quantized_matrices_have_the_bytes_of_their_parts() {
    let mut count = 0;
    for entry in fs::read_dir(path("tests/golden/quantized")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.contains('.') && !name.ends_with("tensor") {
            continue;
        }
        let weights = of_folder(&format!("tests/golden/quantized/{name}"));
        let groups = weights.groups();
        assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), weights.data_len(), "{name}");
        count += 1;
    }
    assert!(count >= 25, "{count} models");
    let types_of = |name: &str| {
        let groups = of_folder(&format!("tests/golden/quantized/{name}")).groups();
        types(&groups)["attention"].iter().map(|(dtype, _)| (*dtype).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(types_of("bnb_nf4"), ["NF4", "U8, kept as float32"], "rows of 48 are no blocks of 64");
    assert_eq!(types_of("gptq_4bit_sym")[0], "int4 in groups of 32");
    assert_eq!(types_of("gptq_4bit_asym_desc_act")[0], "int4 in groups by index");
}

#[test]
fn files_of_blocks_show_each_type() {
    let file = path("tests/golden/gguf_blocks/qwen3_moe.gguf");
    let weights = Weights::open(&ModelFiles::open(&file, None, None).unwrap()).unwrap();
    let groups = weights.groups();
    assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), weights.data_len());
    let types = types(&groups);
    assert!(types["experts"].iter().all(|(dtype, _)| !dtype.starts_with("float")), "{types:?}");
    assert_eq!(types["norm"].iter().map(|(dtype, _)| *dtype).collect::<Vec<_>>(), ["float32"]);
}

#[test]
fn packed_matrices_are_known_by_their_type() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("packed");
    pack(&path("python/rsgen/models/story-3m"), &folder, &GeneratorOptions::new().dtype(WeightType::Int4))
        .unwrap();
    let weights = Weights::open(&ModelFiles::folder(&folder).unwrap()).unwrap();
    let groups = weights.groups();
    let of =
        |part: &str| types(&groups)[part].iter().map(|(dtype, _)| (*dtype).to_owned()).collect::<Vec<_>>();
    assert!(of("mlp").contains(&"int4".to_owned()), "{groups:?}");
    assert!(Generator::open(folder.to_str().unwrap()).is_ok());
}
