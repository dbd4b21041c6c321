//! Every family of models against transformers: tiny models whose weights are computed from their names, as
//! `tools/golden/family_goldens.py` does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rsgen::model::SUPPORTED_ARCHITECTURES;
use rsgen::{
    DType, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, Result, Tensor, WeightType, pack,
};
use rsgen_kernels::Isa;
use rsgen_model::weights::FamilyConfig;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::golden_support::{
    Faults, PROMISED, Tolerance, bits, difference, list, path, text, token_ids, unequal,
};

/// The goldens, by name.
pub(crate) fn goldens() -> Vec<(String, Value)> {
    goldens_of("tests/golden/families")
}

/// The goldens of a folder, by name.
pub(crate) fn goldens_of(folder: &str) -> Vec<(String, Value)> {
    let mut goldens: Vec<_> = fs::read_dir(path(folder))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let golden = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), golden)
        })
        .collect();
    goldens.sort_by(|(one, _), (other, _)| one.cmp(other));
    goldens
}

pub(crate) fn floats(numbers: &Value) -> Vec<f32> {
    list(numbers).iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// The checksum of zlib.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

/// Numbers from -1 to 1, seeded by the name.
fn numbers(name: &str, count: usize) -> impl Iterator<Item = f32> {
    let mut state = crc32(name.as_bytes());
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// The tensor of this name.
pub(crate) fn tensor(name: &str, shape: &[usize], norms_around_0: bool) -> Tensor {
    let has = |part: &str| name.contains(part);
    let (scale, shift) = if has("sinks") {
        (2.0, 0.0)
    } else if has("norm") || has("ln_") {
        let shift = if norms_around_0 { 0.0 } else { 1.0 };
        if name.ends_with("weight") { (0.4, shift) } else { (0.2, 0.0) }
    } else if shape.len() == 1 || name.ends_with("bias") {
        (0.2, 0.0)
    } else if has("embed") || has("wte") || has("wpe") || format!(".{name}").ends_with(".shared.weight") {
        (1.0, 0.0)
    } else if name.ends_with(".q.weight") {
        // T5 does not scale its scores.
        (0.8 / (*shape.last().unwrap() as f32).sqrt(), 0.0)
    } else {
        (2.0 / (*shape.last().unwrap() as f32).sqrt(), 0.0)
    };
    let values = numbers(name, shape.iter().product()).map(|value| value * scale + shift);
    let bytes = values.flat_map(f32::to_le_bytes).collect();
    Tensor { name: name.to_owned(), dtype: DType::F32, shape: shape.to_vec(), bytes }
}

/// The model of a golden.
pub(crate) fn open(golden: &Value, options: &GeneratorOptions) -> Result<Generator> {
    open_renamed(golden, str::to_owned, options)
}

/// The model of a golden whose tensors have other names, but the same numbers.
fn open_renamed(
    golden: &Value,
    renamed: impl Fn(&str) -> String,
    options: &GeneratorOptions,
) -> Result<Generator> {
    let tensors: Vec<_> =
        tensors(golden).into_iter().map(|tensor| Tensor { name: renamed(&tensor.name), ..tensor }).collect();
    Generator::from_tensors(golden["config"].to_string().into_bytes(), tensors, options)
}

/// The tensors of a golden.
pub(crate) fn tensors(golden: &Value) -> Vec<Tensor> {
    let norms_around_0 = golden["norms_around_0"].as_bool().unwrap();
    let tensors = golden["tensors"].as_object().unwrap().iter().map(|(name, shape)| {
        let shape: Vec<_> = list(shape).iter().map(|size| size.as_u64().unwrap() as usize).collect();
        tensor(name, &shape, norms_around_0)
    });
    tensors.collect()
}

/// The same with experts in stacks, as transformers 5 holds them; `None` where there are no others.
fn with_stacks(tensors: &[Tensor]) -> Option<Vec<Tensor>> {
    let is_mixtral = tensors.iter().any(|tensor| tensor.name.ends_with(".w1.weight"));
    let native = |name: &str| {
        let name = if is_mixtral { name.replace("block_sparse_moe", "mlp") } else { name.to_owned() };
        name.replace("router.layer.weight", "router.weight")
            .replace("moe.input_linear.weight", "moe.experts.gate_up_proj")
            .replace("moe.output_linear.weight", "moe.experts.down_proj")
    };
    let renamed: Vec<_> =
        tensors.iter().map(|tensor| Tensor { name: native(&tensor.name), ..tensor.clone() }).collect();
    if renamed.iter().zip(tensors).any(|(one, other)| one.name != other.name) && !is_mixtral {
        return Some(renamed);
    }
    // The names of a layer's experts, and the first and second part of each stack.
    let mut stacks: BTreeMap<String, Vec<&Tensor>> = BTreeMap::new();
    let mut others = Vec::new();
    for tensor in &renamed {
        let Some((scope, name)) = tensor.name.split_once(".experts.") else {
            others.push(tensor.clone());
            continue;
        };
        let (_, name) = name.split_once('.').filter(|(index, _)| index.parse::<usize>().is_ok())?;
        let (stack, part) = match name {
            "w1.weight" | "gate_proj.weight" => ("gate_up_proj", 0),
            "w3.weight" | "up_proj.weight" => ("gate_up_proj", 1),
            _ => ("down_proj", 0),
        };
        let parts = stacks.entry(format!("{scope}.experts.{stack}")).or_default();
        // Names are sorted, so that experts come in order, and their gates and ups, too.
        assert!(part == 0 || parts.len() % 2 == 1);
        parts.push(tensor);
    }
    let stacked = stacks.into_iter().map(|(name, parts)| {
        let each = if name.ends_with("gate_up_proj") { 2 } else { 1 };
        let [rows, columns] = parts[0].shape[..] else { panic!("{name}") };
        let bytes = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        Tensor { shape: vec![parts.len() / each, each * rows, columns], bytes, name, dtype: DType::F32 }
    });
    let stacked: Vec<_> = stacked.collect();
    (!stacked.is_empty()).then(|| others.into_iter().chain(stacked).collect())
}

pub(crate) fn greedy(max_new_tokens: usize) -> GenerationConfig {
    GenerationConfig::new().do_sample(false).eos_token_id(Vec::new()).max_new_tokens(max_new_tokens)
}

#[test]
fn every_family_has_the_logits_and_tokens_of_transformers() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let generator = match open(&golden, &GeneratorOptions::default()) {
            Ok(generator) => generator,
            Err(error) => {
                faults.check(name, Some(error.to_string()));
                continue;
            }
        };
        let ids = token_ids(&golden["input_ids"]);
        let logits = generator.forward(std::slice::from_ref(&ids)).unwrap();
        let vocab_size = generator.config().vocab_size;
        for (position, expected) in list(&golden["positions"]).iter().zip(list(&golden["logits"])) {
            let expected = floats(expected);
            let actual = &logits[position.as_u64().unwrap() as usize * vocab_size..][..vocab_size];
            faults.check(format!("{name}, logits at {position}"), difference(actual, &expected, PROMISED));
        }
        let expected = token_ids(&golden["greedy"]);
        let output = generator.generate(ids.clone(), &greedy(expected.len())).unwrap();
        faults.check(format!("{name}, greedy"), unequal(output.token_ids(), &expected));
        let expected = token_ids(&golden["beams"]);
        let output = generator.generate(ids, &greedy(expected.len()).num_beams(3)).unwrap();
        faults.check(format!("{name}, beams"), unequal(output.token_ids(), &expected));
    }
    faults.report(5 * 60);
}

/// The forms of tensor names that checkpoints have: with the base model's prefix or without it, and wrapped as
/// transformers 4 and 5 write it.
#[test]
fn tensors_have_the_names_of_every_generation_of_writers() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let ids = token_ids(&golden["input_ids"]);
        let logits = |generator: Generator| bits(&generator.forward(std::slice::from_ref(&ids)).unwrap());
        let expected = logits(open(&golden, &GeneratorOptions::default()).unwrap());
        let bare = |name: &str| {
            let bases =
                ["language_model.model.", "model.language_model.", "model.", "transformer.", "gpt_neox."];
            let base = bases.iter().find_map(|base| name.strip_prefix(base));
            base.unwrap_or_else(|| name.strip_prefix("language_model.").unwrap_or(name)).to_owned()
        };
        let is_head = |name: &str| name.starts_with("lm_head") || name.starts_with("embed_out");
        let is_llama = golden["tensors"].as_object().unwrap().keys().all(|name| {
            !["transformer.", "gpt_neox.", "model.decoder."].iter().any(|base| name.starts_with(base))
        });
        let mut check = |how: &str, renamed: &dyn Fn(&str) -> String| match open_renamed(
            &golden,
            renamed,
            &GeneratorOptions::default(),
        ) {
            Ok(generator) => {
                faults.check(format!("{name}, {how}"), unequal(&logits(generator), &expected));
            }
            Err(error) => faults.check(format!("{name}, {how}"), Some(error.to_string())),
        };
        check("without a prefix", &bare);
        check("with the head of transformers 5", &|name| name.replace("embed_out.", "lm_head."));
        if is_llama {
            let wrapped = |name: &str| {
                let name = bare(name);
                if is_head(&name) {
                    format!("language_model.{name}")
                } else {
                    format!("language_model.model.{name}")
                }
            };
            check("wrapped by transformers 4", &wrapped);
            let wrapped = |name: &str| {
                let name = bare(name);
                if is_head(&name) { name } else { format!("model.language_model.{name}") }
            };
            check("wrapped by transformers 5", &wrapped);
        }
    }
    faults.report(3 * 60);
}

#[test]
fn learned_positions_end_with_an_error_or_the_text_and_never_a_panic() {
    let mut seen = 0;
    for (name, golden) in goldens() {
        if !["gpt2", "gpt_neo", "opt", "gpt_bigcode"].contains(&name.as_str()) {
            continue;
        }
        seen += 1;
        let generator = open(&golden, &GeneratorOptions::default()).unwrap();
        let context = generator.config().max_position_embeddings;
        let ids =
            |len: usize| token_ids(&golden["input_ids"]).into_iter().cycle().take(len).collect::<Vec<_>>();
        assert_eq!(
            generator.forward(&[ids(context)]).unwrap().len(),
            context * generator.config().vocab_size
        );
        for message in [
            generator.forward(&[ids(context + 1)]).unwrap_err().to_string(),
            generator.generate(ids(context + 1), &greedy(1)).unwrap_err().to_string(),
            generator.prefill(ids(context + 1)).unwrap_err().to_string(),
        ] {
            assert!(message.contains(&context.to_string()), "{name}: {message}");
        }
        let output = generator.generate(ids(context - 3), &greedy(20)).unwrap();
        assert_eq!(output.rows[0].generated.finish_reason.as_str(), "length", "{name}");
        assert_eq!(output.token_ids().len(), 3, "{name}");
        let sinks = greedy(20).attention_sinks(4);
        let message = generator.generate(ids(9), &sinks).unwrap_err().to_string();
        assert!(message.contains("cannot move to other positions"), "{name}: {message}");
    }
    assert_eq!(seen, 4);
}

/// transformers makes the generation defaults of the file, and not of the class whose defaults it lacks.
#[test]
fn special_tokens_that_config_json_lacks_are_no_generation_defaults() {
    for (name, mut golden) in goldens() {
        let wrapped = golden["config"].get("text_config").is_some();
        let config = golden["config"].as_object_mut().unwrap();
        if wrapped {
            continue;
        }
        for field in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            config.remove(field);
        }
        let defaults = open(&golden, &GeneratorOptions::default()).unwrap();
        let defaults = defaults.generation_config();
        assert_eq!((&defaults.eos_token_id, defaults.bos_token_id), (&None, None), "{name}");
        assert_eq!(defaults.pad_token_id, None, "{name}");
    }
}

#[test]
fn every_family_has_a_golden() {
    let goldens: Vec<_> = goldens().into_iter().chain(goldens_of("tests/golden/encoders")).collect();
    for family in SUPPORTED_ARCHITECTURES {
        let of_family = |golden: &Value| {
            let config = golden.get("text_config").unwrap_or(golden);
            text(&config["model_type"]) == family.model_type
        };
        let older = ["llama", "mistral", "phi3", "qwen2", "qwen3"].contains(&family.model_type);
        let has = goldens.iter().any(|(_, golden)| of_family(&golden["config"]));
        assert!(has || older, "{}: tests/golden/families has none", family.model_type);
    }
}

#[test]
fn no_family_depends_on_threads_chunks_batches_or_instruction_sets() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let ids = token_ids(&golden["input_ids"]);
        let reference = open(&golden, &GeneratorOptions::new().num_threads(1)).unwrap();
        let expected = bits(&reference.forward(std::slice::from_ref(&ids)).unwrap());
        let mut check = |how: &str, options: &GeneratorOptions| {
            let found = bits(&open(&golden, options).unwrap().forward(std::slice::from_ref(&ids)).unwrap());
            faults.check(format!("{name}, {how}"), unequal(&found, &expected));
        };
        // Threads compute whole experts, or parts of each.
        for num_threads in [2, 3] {
            check(&format!("{num_threads} threads"), &GeneratorOptions::new().num_threads(num_threads));
        }
        for isa in Isa::available() {
            check(isa.name(), &GeneratorOptions::new().isa(isa));
        }
        // Beside other texts, of other lengths.
        let alone = reference.generate(ids.clone(), &greedy(8)).unwrap();
        let batch = vec![ids[3..].to_vec(), ids.clone(), ids[..7].to_vec()];
        let chunked = reference.generate(ids.clone(), &greedy(8).prefill_chunk_size(5)).unwrap();
        let probabilities = |output: &GenerationOutput| bits(&output.rows[0].generated.logprobs);
        faults
            .check(format!("{name}, chunks of 5"), unequal(&probabilities(&chunked), &probabilities(&alone)));
        let together = reference.generate(batch, &greedy(8)).unwrap();
        faults.check(
            format!("{name}, a batch"),
            unequal(&together.rows[1].generated.token_ids, alone.token_ids()),
        );
    }
    faults.report(4 * 60);
}

#[test]
fn every_family_is_near_itself_in_fewer_bits() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let ids = token_ids(&golden["input_ids"]);
        let logits = |options: &GeneratorOptions| {
            open(&golden, options).unwrap().forward(&[ids[..9].to_vec()]).unwrap()
        };
        let expected = logits(&GeneratorOptions::default());
        let size = (expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32).sqrt();
        for (dtype, part) in
            [(WeightType::Float(DType::Bf16), 0.15), (WeightType::Int8, 0.25), (WeightType::Int4, 1.5)]
        {
            let found = logits(&GeneratorOptions::new().dtype(dtype));
            let tolerance = Tolerance { absolute: part * size, relative: 0.2 };
            let far =
                found.iter().zip(&expected).filter(|&(&a, &b)| difference(&[a], &[b], tolerance).is_some());
            let far = far.count();
            let most = expected.len() / 20;
            faults.check(
                format!("{name}, {dtype}"),
                (far > most).then(|| format!("{far} of {} are far", expected.len())),
            );
        }
    }
    faults.report(3 * 60);
}

/// Writes the folder of a model.
pub(crate) fn write(folder: &Path, golden: &Value, tensors: &[Tensor]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("config.json"), golden["config"].to_string()).unwrap();
    let view = |tensor: &Tensor| (tensor.name.clone(), (tensor.shape.clone(), tensor.bytes.clone()));
    let views: Vec<_> = tensors.iter().map(view).collect();
    let views = views.iter().map(|(name, (shape, bytes))| {
        (name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).unwrap())
    });
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn every_family_that_is_packed_opens_with_the_bits_that_it_has_in_memory() {
    let mut faults = Faults::default();
    let (folder, mut num_stacked) = (tempfile::tempdir().unwrap(), 0);
    for (name, golden) in goldens() {
        let ids = token_ids(&golden["input_ids"]);
        let logits = |generator: &Generator| bits(&generator.forward(std::slice::from_ref(&ids)).unwrap());
        let hub = tensors(&golden);
        let stacks = with_stacks(&hub);
        num_stacked += usize::from(stacks.is_some());
        for (form, tensors) in [("hub", Some(hub)), ("stacks", stacks)] {
            let Some(tensors) = tensors else { continue };
            let model = folder.path().join(format!("{name}-{form}"));
            write(&model, &golden, &tensors);
            for dtype in [WeightType::Int8, WeightType::Int4] {
                let expected = open(&golden, &GeneratorOptions::new().dtype(dtype)).unwrap();
                let out = folder.path().join(format!("{name}-{form}-{dtype}"));
                let how = format!("{name}, {form}, {dtype}");
                let opened = pack(model.to_str().unwrap(), &out, &GeneratorOptions::new().dtype(dtype))
                    .and_then(|_| Generator::open(out.to_str().unwrap()));
                match opened {
                    Ok(packed) => faults.check(how, unequal(&logits(&packed), &logits(&expected))),
                    Err(error) => faults.check(how, Some(error.to_string())),
                }
            }
        }
    }
    assert!(num_stacked >= 8, "{num_stacked} with experts in stacks");
    faults.report(2 * 60);
}

/// The checkpoints that people run, by the type of the model.
const CHECKPOINTS: &[(&str, &str)] = &[
    ("apertus", "Apertus 8B, 70B"),
    ("arcee", "AFM 4.5B"),
    ("bart", "BART base, large-cnn, large-xsum, DistilBART"),
    ("bloom", "BLOOM 560m to 176B, BLOOMZ"),
    ("cohere", "Command R, Aya 23"),
    ("cohere2", "Command R7B, Command A"),
    ("cwm", "CWM 32B"),
    ("ernie4_5", "ERNIE 4.5 0.3B"),
    ("exaone4", "EXAONE 4 1.2B, 32B"),
    ("falcon", "Falcon 7B, 40B, 180B, falcon-rw"),
    ("gemma", "Gemma 2B, 7B, CodeGemma, Gemma 1.1"),
    ("gemma2", "Gemma 2 2B, 9B, 27B"),
    ("gemma3_text", "Gemma 3 270m, 1B; the text of 4B, 12B, 27B"),
    ("glm", "GLM-4 9B"),
    ("glm4", "GLM-4-0414 9B, 32B"),
    ("gpt2", "GPT-2, DistilGPT2"),
    ("gpt_bigcode", "SantaCoder, StarCoder"),
    ("gpt_neo", "GPT-Neo 125m, 1.3B, 2.7B, TinyStories"),
    ("gpt_neox", "Pythia, GPT-NeoX-20B, Dolly 2"),
    ("gpt_oss", "gpt-oss 20B, 120B, as published (MXFP4) or in bfloat16"),
    ("gptj", "GPT-J 6B"),
    ("granite", "Granite 3 2B, 8B"),
    ("granitemoe", "Granite 3 1B-A400M, 3B-A800M"),
    ("granitemoehybrid", "Granite 4 350m, 1B, micro (attention in all layers)"),
    ("granitemoeshared", "Granite mixtures with a shared expert"),
    ("helium", "Helium 1 2B"),
    ("hunyuan_v1_dense", "Hunyuan 0.5B to 7B"),
    ("llama", "Llama 1, 2, 3, TinyLlama, SmolLM 1 and 2, Vicuna, DeepSeek-R1-Distill-Llama, Falcon 3, Yi"),
    ("m2m_100", "M2M100 418M, 1.2B; NLLB-200 distilled 600M, 1.3B, 3.3B"),
    ("marian", "opus-mt, opus-mt-tc-big, and others with two vocabularies"),
    ("mbart", "mBART-50 many-to-many, many-to-one, one-to-many; mbart-large-en-ro, cc25"),
    ("ministral", "Ministral 8B, where it says so"),
    ("ministral3", "the text of Ministral 3 3B, 8B, 14B"),
    ("mistral", "Mistral 7B, Nemo, Small; the text of Small 3.1"),
    ("mixtral", "Mixtral 8x7B, 8x22B"),
    ("mt5", "mT5 small to xxl"),
    ("nemotron", "Minitron 4B, 8B, Nemotron-4"),
    ("olmo", "OLMo 1B, 7B"),
    ("olmo2", "OLMo 2 1B to 32B"),
    ("olmo3", "OLMo 3 7B, 32B"),
    ("olmoe", "OLMoE 1B-7B"),
    ("opt", "OPT 125m to 66B, Galactica"),
    ("pegasus", "PEGASUS xsum, cnn_dailymail, large"),
    ("phi", "Phi-1, 1.5, 2"),
    ("phi3", "Phi-3, Phi-3.5, Phi-4"),
    ("qwen2", "Qwen2, Qwen2.5, Coder, QwQ, DeepSeek-R1-Distill-Qwen"),
    ("qwen2_moe", "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B"),
    ("qwen3", "Qwen3 0.6B to 32B"),
    ("qwen3_moe", "Qwen3-30B-A3B, Qwen3-235B-A22B, Coder"),
    ("seed_oss", "Seed-OSS 36B"),
    ("smollm3", "SmolLM3 3B"),
    ("stablelm", "StableLM 2 1.6B, 12B, Zephyr 3B"),
    ("starcoder2", "StarCoder2 3B, 7B, 15B"),
    ("t5", "T5, T5 v1.1, Flan-T5, ByT5, MADLAD-400, CodeT5, CoEdIT"),
    ("umt5", "umT5 small to xxl"),
];

#[test]
fn the_page_of_models_has_a_row_for_each_family() {
    let row = |family: &FamilyConfig| {
        let known = CHECKPOINTS.iter().find(|(name, _)| *name == family.model_type);
        let (_, checkpoints) = known.unwrap_or_else(|| panic!("{}: CHECKPOINTS has none", family.model_type));
        format!("| `{}` | `{}` | {checkpoints} |\n", family.model_type, family.architecture)
    };
    let rows: String = SUPPORTED_ARCHITECTURES.iter().map(row).collect();
    let page = fs::read_to_string(path("docs/models.md")).unwrap();
    assert!(page.contains(&rows), "docs/models.md must have these rows:\n{rows}");
}

/// The columns are those that `make parity-families` prints.
#[test]
fn the_page_of_models_says_what_the_live_comparison_of_each_family_came_to() {
    let page = fs::read_to_string(path("docs/models.md")).unwrap();
    let header = "| `model_type` | requests | equal | ties | router margins | unexplained |";
    let (_, table) = page.split_once(header).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let families: Vec<_> = SUPPORTED_ARCHITECTURES.iter().filter(|family| family.encoder.is_none()).collect();
    assert_eq!(rows.len(), families.len(), "a row for each family without an encoder");
    for (row, family) in rows.iter().zip(families) {
        assert_eq!(row[0], format!("`{}`", family.model_type));
        let counts: Vec<u32> = row[1..].iter().map(|count| count.parse().unwrap()).collect();
        assert!(counts[0] > 0 && counts[0] == counts[1..].iter().sum::<u32>(), "{row:?}");
        assert_eq!(counts[4], 0, "{row:?}");
    }
}
