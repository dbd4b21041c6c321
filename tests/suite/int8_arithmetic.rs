//! `compute_dtype="int8"`: activations of 8 bits with the integers of quantized files.

use std::fs;

use rsgen::generator::ComputeDtype;
use rsgen::{Generator, GeneratorOptions, TokenId};

use crate::families::greedy;
use crate::golden_support::{Faults, path};

/// The models of quantized files: folders and GGUF files.
fn models() -> Vec<String> {
    let inside = |folder: &str| fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().path());
    let folders = inside("tests/golden/quantized").filter(|path| path.is_dir());
    let files =
        inside("tests/golden/gguf_blocks").filter(|path| path.extension().is_some_and(|end| end == "gguf"));
    folders.chain(files).map(|path| path.to_str().unwrap().to_owned()).collect()
}

fn open(model: &str, compute: ComputeDtype, threads: usize) -> Generator {
    let options = GeneratorOptions::new().num_threads(threads).compute_dtype(compute);
    Generator::open_with(model, &options).unwrap_or_else(|error| panic!("{model}: {error}"))
}

fn prompts(vocab_size: usize) -> [Vec<TokenId>; 3] {
    let ids = |count: u32, step: u32| {
        (0..count).map(move |i| TokenId((5 + i * step) % vocab_size as u32)).collect()
    };
    [ids(9, 7), ids(9, 5), ids(9, 3)]
}

#[test]
fn logits_are_near_those_of_float32_and_equal_where_no_weights_are_integers() {
    let (mut faults, mut near) = (Faults::default(), 0);
    for model in models() {
        let (exact, fast) = (open(&model, ComputeDtype::F32, 1), open(&model, ComputeDtype::Int8, 1));
        let ids = &prompts(exact.config().vocab_size);
        let (expected, actual) = (exact.forward(ids).unwrap(), fast.forward(ids).unwrap());
        let mean = expected.iter().sum::<f32>() / expected.len() as f32;
        let variance = expected.iter().map(|logit| (logit - mean).powi(2)).sum::<f32>();
        let error = expected.iter().zip(&actual).map(|(a, b)| (a - b).powi(2)).sum::<f32>() / variance;
        near += usize::from(error > 0.0);
        // Matrices with `desc_act` compute in float32.
        let others = ["fp8", "fp4", "nf4", "mxfp4", "gpt_oss", "desc_act"];
        let has_integers = !others.iter().any(|name| model.contains(name));
        let shown = match (has_integers, error) {
            (true, 1e-9..0.01) | (false, 0.0..0.01) => None,
            _ => Some(format!("a share of {error} of the variance")),
        };
        faults.check(model, shown);
    }
    faults.report(30);
    assert!(near > 20, "{near} models have integers");
}

#[test]
fn tokens_and_scores_do_not_depend_on_threads_or_on_the_batch() {
    let mut faults = Faults::default();
    for model in models() {
        let (one, two) = (open(&model, ComputeDtype::Int8, 1), open(&model, ComputeDtype::Int8, 2));
        let ids = prompts(one.config().vocab_size);
        let together = two.forward(&ids).unwrap();
        let alone: Vec<f32> =
            ids.iter().flat_map(|ids| one.forward(std::slice::from_ref(ids)).unwrap()).collect();
        let differ = together.iter().zip(&alone).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        faults.check(format!("{model}, logits"), (differ > 0).then(|| format!("{differ} logits")));
        let fields = greedy(12).num_beams(3);
        let (a, b) = (one.generate(ids[0].clone(), &fields), two.generate(ids[0].clone(), &fields));
        let (a, b) = (a.unwrap(), b.unwrap());
        faults.check(
            format!("{model}, beams"),
            (a.token_ids() != b.token_ids()).then(|| "other tokens".into()),
        );
    }
    faults.report(60);
}
