//! GGUF files with an encoder against transformers: whole files that llama.cpp's converter wrote for tiny
//! models of T5, `tools/golden/gguf_t5_goldens.py`.

use std::fs;

use rsgen::{GenerationConfig, Generator, convert};
use rsgen_model::weights::{ModelFiles, Weights};
use rsgen_text::Tokenizer;
use serde_json::Value;

use crate::families::greedy;
use crate::golden_support::{Faults, PROMISED, difference, integer, list, path, text, token_ids, unequal};

const MODELS: [&str; 3] = ["t5", "t5_v1_1", "umt5"];

fn file(name: &str) -> String {
    path(&format!("tests/golden/gguf_t5/{name}.gguf"))
}

fn golden(name: &str) -> Value {
    let text = fs::read(path(&format!("tests/golden/gguf_t5/{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// With what ends a sequence as the file says.
fn ended(max_new_tokens: usize) -> GenerationConfig {
    GenerationConfig::new().do_sample(false).max_new_tokens(max_new_tokens)
}

#[test]
fn files_of_t5_have_the_logits_and_tokens_of_transformers() {
    let mut faults = Faults::default();
    for name in MODELS {
        let generator = Generator::open(file(name)).unwrap();
        for (index, source) in list(&golden(name)["sources"]).iter().enumerate() {
            let ids = token_ids(&source["ids"]);
            let expected = token_ids(&source["greedy"]);
            let output = generator.generate(ids.clone(), &ended(20).output_logits(true)).unwrap();
            faults.check(format!("{name}, {index}, greedy"), unequal(output.token_ids(), &expected));
            let steps = output.sequences[0].logits.as_ref().unwrap();
            for (step, expected) in [0, steps.len() - 1].into_iter().zip(list(&source["logits"])) {
                let expected: Vec<f32> =
                    list(expected).iter().map(|logit| logit.as_f64().unwrap() as f32).collect();
                let what = format!("{name}, {index}, logits of step {step}");
                faults.check(what, difference(&steps[step], &expected, PROMISED));
            }
            let expected = token_ids(&source["beams"]);
            let output = generator.generate(ids, &ended(20).num_beams(3)).unwrap();
            faults.check(format!("{name}, {index}, beams"), unequal(output.token_ids(), &expected));
        }
    }
    faults.report(3 * 2 * 4);
}

#[test]
fn their_tokenizers_give_the_ids_of_transformers() {
    let mut faults = Faults::default();
    for name in MODELS {
        let files = ModelFiles::open(&file(name), None, None).unwrap();
        let tokenizer = Tokenizer::from_files(|name| files.read_optional(name)).unwrap().unwrap();
        let golden = golden(name);
        faults.check(
            format!("{name}, tokens"),
            (tokenizer.len() as u64 != integer(&golden["vocabulary"])).then(|| tokenizer.len().to_string()),
        );
        for case in list(&golden["texts"]) {
            let ids = tokenizer.encode(text(&case["text"]), true).unwrap();
            faults.check(format!("{name}, {}", case["text"]), unequal(&ids, &token_ids(&case["ids"])));
        }
    }
    faults.report(3 * 40);
}

#[test]
fn they_become_folders_of_the_same_model_and_are_not_written_themselves() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let out = folder.path().join(name);
        convert(&file(name), &out).unwrap();
        let (stored, converted) =
            (Generator::open(file(name)).unwrap(), Generator::open(out.to_str().unwrap()).unwrap());
        let ids = token_ids(&golden(name)["sources"][1]["ids"]);
        let config = greedy(12).output_logits(true);
        let [stored, converted] =
            [stored, converted].map(|generator| generator.generate(ids.clone(), &config).unwrap());
        assert_eq!(stored.sequences[0].logits, converted.sequences[0].logits, "{name}");
        let error = convert(out.to_str().unwrap(), folder.path().join("again.gguf")).unwrap_err().to_string();
        assert!(error.contains("has an encoder") && error.contains("convert_hf_to_gguf.py"), "{error}");
    }
}

#[test]
fn matrices_keep_the_types_of_the_file() {
    let weights = Weights::open(&ModelFiles::open(&file("t5_v1_1"), None, None).unwrap()).unwrap();
    let groups = weights.groups();
    let of = |part: &'static str| {
        groups.iter().filter(move |found| found.group == part).map(|found| &*found.dtype)
    };
    assert!(of("mlp").all(|dtype| dtype == "Q8_0") && of("attention").any(|dtype| dtype == "Q8_0"));
    assert!(!groups.iter().any(|group| group.group == "other"), "{groups:?}");
}
