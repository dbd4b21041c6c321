//! Weights that are stored quantized, as their writers publish them, against transformers with the same weights in
//! `float32`: `tools/golden/quantized_goldens.py` writes the models.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rsgen::{DType, Generator, GeneratorOptions, Tensor, TokenId, WeightType, pack};
use rsgen_model::weights::{ModelFiles, Weights};
use serde_json::Value;

use crate::families::{goldens_of, greedy, tensors};
use crate::golden_support::{
    Faults, PROMISED, base64, difference, hex, list, path, text, token_ids, unequal,
};
use crate::support::with_tensors;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(path("tests/golden/quantized")).join(name)
}

fn models() -> Vec<(String, Value)> {
    let golden: Value = serde_json::from_slice(&fs::read(folder("expected.json")).unwrap()).unwrap();
    golden["models"].as_object().unwrap().clone().into_iter().collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn every_format_has_the_weights_of_its_definition_to_the_last_bit() {
    let mut faults = Faults::default();
    for (name, golden) in models() {
        let weights = Weights::open(&ModelFiles::folder(folder(&name)).unwrap()).unwrap();
        let matrix = text(&golden["matrix"]);
        let names = [format!("{matrix}.weight"), matrix.to_owned()];
        let tensor = names.iter().find_map(|name| weights.tensor(name).unwrap()).unwrap();
        let rows: Vec<Vec<f32>> = list(&golden["rows"]).iter().map(|row| floats(&hex(text(row)))).collect();
        let columns = rows[0].len();
        for (index, expected) in rows.iter().enumerate() {
            let mut actual = vec![0.0; columns];
            tensor.row().read_f32(index * columns..(index + 1) * columns, &mut actual).unwrap();
            let differs = actual.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits() && a != b);
            let shown = differs.map(|at| format!("{} at {at}, not {}", actual[at], expected[at]));
            faults.check(format!("{name}, row {index}"), shown);
        }
    }
    faults.report(2 * 31);
}

#[test]
fn every_format_has_the_logits_and_tokens_of_transformers() {
    let mut faults = Faults::default();
    for (name, golden) in models() {
        let ids = token_ids(&golden["input_ids"]);
        let computed = Generator::open(folder(&name).to_str().unwrap()).and_then(|generator| {
            let expected = token_ids(&golden["greedy"]);
            let output = generator.generate(ids.clone(), &greedy(expected.len()))?;
            faults.check(format!("{name}, greedy"), unequal(output.token_ids(), &expected));
            let expected = token_ids(&golden["beams"]);
            let beams = greedy(expected.len()).num_beams(3);
            let output = generator.generate(ids.clone(), &beams)?;
            faults.check(format!("{name}, beams"), unequal(output.token_ids(), &expected));
            Ok((generator.forward(std::slice::from_ref(&ids))?, generator.config().vocab_size))
        });
        let (logits, vocab_size) = match computed {
            Ok(computed) => computed,
            Err(error) => {
                faults.check(name, Some(error.to_string()));
                continue;
            }
        };
        let expected = floats(&base64(text(&golden["logits"]["f32"])));
        let actual = &logits[logits.len() - vocab_size..];
        faults.check(format!("{name}, logits"), difference(actual, &expected, PROMISED));
    }
    faults.report(3 * 31);
}

#[test]
fn weights_that_are_stored_quantized_can_be_quantized_again() {
    for name in ["gptq_4bit_sym", "gptq_4bit_asym_desc_act"] {
        for dtype in [WeightType::Int8, WeightType::Int4, WeightType::Float(rsgen::DType::Bf16)] {
            let options = GeneratorOptions::new().dtype(dtype);
            let generator = Generator::open_with(folder(name).to_str().unwrap(), &options).unwrap();
            let logits = generator.forward(&[token_ids(&models()[0].1["input_ids"])]).unwrap();
            assert!(logits.iter().all(|logit| logit.is_finite()), "{name}, {dtype}");
            if dtype != WeightType::Float(rsgen::DType::Bf16) {
                let scratch = tempfile::tempdir().unwrap();
                let out = scratch.path().join("packed");
                pack(folder(name).to_str().unwrap(), &out, &options).unwrap();
                let packed = Generator::open(out.to_str().unwrap()).unwrap();
                let again = packed.forward(&[token_ids(&models()[0].1["input_ids"])]).unwrap();
                assert_eq!(logits, again, "{name}, {dtype}");
            }
        }
    }
}

#[test]
fn configurations_of_the_hub_are_opened_or_refused_by_name() {
    let golden: Value = serde_json::from_slice(&fs::read(folder("configs.json")).unwrap()).unwrap();
    let bundled = PathBuf::from(path("python/rsgen/models/story-3m"));
    let base: Value = serde_json::from_slice(&fs::read(bundled.join("config.json")).unwrap()).unwrap();
    // No tensor is quantized: what is not refused by its configuration opens.
    let directory = tempfile::tempdir().unwrap();
    let file = "model.safetensors";
    fs::copy(bundled.join(file), directory.path().join(file)).unwrap();
    for (name, case) in golden.as_object().unwrap() {
        let mut config = base.clone();
        config["quantization_config"] = case["quantization_config"].clone();
        fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
        let opened = Weights::open(&ModelFiles::folder(directory.path()).unwrap());
        match (text(&case["expected"]), opened) {
            ("refused", Err(error)) => {
                let error = error.to_string();
                assert!(
                    error.contains("quantization_config") && error.contains("checkpoint"),
                    "{name}: {error}"
                );
            }
            ("refused", Ok(_)) => panic!("{name} is opened"),
            (_, opened) => assert!(opened.is_ok(), "{name}: {}", opened.err().unwrap()),
        }
    }
}

#[test]
fn damaged_headers_and_descriptions_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut refused, mut opened) = (0, 0);
    for (name, _) in models() {
        fs::copy(folder(&name).join("config.json"), directory.path().join("config.json")).unwrap();
        let whole = fs::read(folder(&name).join("model.safetensors")).unwrap();
        let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        for case in 0..60 {
            let mut damaged = whole.clone();
            // Digits of shapes become others, so that the header stays one; or any byte of the file changes.
            if case % 3 == 0 {
                damaged[random(whole.len())] ^= 1 << random(8);
            } else {
                let digits: Vec<usize> = (8..header).filter(|&at| whole[at].is_ascii_digit()).collect();
                damaged[digits[random(digits.len())]] = b'0' + random(10) as u8;
            }
            fs::write(&path, damaged).unwrap();
            let read = Weights::open(&ModelFiles::folder(directory.path()).unwrap()).and_then(|weights| {
                weights.names().map(str::to_owned).collect::<Vec<_>>().into_iter().try_for_each(|name| {
                    weights.tensor(&name)?.map_or(Ok(()), |tensor| tensor.row().to_f32().map(drop))
                })
            });
            if read.is_ok() { opened += 1 } else { refused += 1 }
        }
    }
    assert!(refused > 500 && opened > 100, "{refused} refused, {opened} opened");
}

/// A safetensors file of some tensors of another one.
fn some_of(file: &[u8], chosen: impl Fn(usize) -> bool) -> (Vec<u8>, Vec<String>) {
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    let (mut taken, mut data, mut names) = (serde_json::Map::new(), Vec::new(), Vec::new());
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    for (_, (name, entry)) in tensors.enumerate().filter(|(index, _)| chosen(*index)) {
        let place = |i: usize| 8 + len + entry["data_offsets"][i].as_u64().unwrap() as usize;
        let mut entry = entry.clone();
        let bytes = &file[place(0)..place(1)];
        entry["data_offsets"] = serde_json::json!([data.len(), data.len() + bytes.len()]);
        data.extend(bytes);
        names.push(name.clone());
        taken.insert(name.clone(), entry);
    }
    let header = Value::from(taken).to_string();
    ([&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat(), names)
}

#[test]
fn the_parts_of_a_matrix_may_be_in_different_files() {
    for (name, golden) in models() {
        let (directory, source) = (tempfile::tempdir().unwrap(), folder(&name));
        for entry in fs::read_dir(&source).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "model.safetensors" {
                fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
            }
        }
        let whole = fs::read(source.join("model.safetensors")).unwrap();
        let mut map = serde_json::Map::new();
        for part in 0..2 {
            let file = format!("model-0000{}-of-00002.safetensors", part + 1);
            let (bytes, names) = some_of(&whole, |index| index % 2 == part);
            fs::write(directory.path().join(&file), bytes).unwrap();
            map.extend(names.into_iter().map(|name| (name, file.clone().into())));
        }
        let index = serde_json::json!({"weight_map": map}).to_string();
        fs::write(directory.path().join("model.safetensors.index.json"), index).unwrap();
        let ids = token_ids(&golden["input_ids"]);
        let logits = |folder: &std::path::Path| {
            let generator = Generator::open(folder.to_str().unwrap()).unwrap();
            generator.forward(std::slice::from_ref(&ids)).unwrap()
        };
        assert_eq!(logits(directory.path()), logits(&source), "{name}");
    }
}

#[test]
fn progress_ends_at_its_total_and_memory_is_not_underestimated() {
    for (name, _) in models() {
        let path = folder(&name);
        let last = Arc::new(Mutex::new((0, 0)));
        let seen = Arc::clone(&last);
        let options = GeneratorOptions::new().progress(move |progress| {
            assert!(progress.done <= progress.total, "{progress:?}");
            *seen.lock().unwrap() = (progress.done, progress.total);
        });
        let generator = Generator::open_with(path.to_str().unwrap(), &options).unwrap();
        let (done, total) = *last.lock().unwrap();
        // Scales of activations are not read.
        assert!(done * 50 >= total * 49, "{name}: {done} of {total}");
        drop(generator);
        let weights = Weights::open(&ModelFiles::folder(&path).unwrap()).unwrap();
        let numbers: usize = weights
            .names()
            .filter_map(|name| weights.tensor(name).ok().flatten())
            .map(|tensor| tensor.shape.iter().product::<usize>())
            .sum();
        // Besides weights there are the scales that are not read.
        let counted = weights.num_elements() as usize;
        assert!((numbers..numbers + 64).contains(&counted), "{name}: {counted} numbers, not {numbers}");
        let floats = weights.names().filter_map(|name| weights.tensor(name).ok().flatten());
        let floats = floats.filter_map(|tensor| Some(tensor.encoding.dtype()?.bytes() * tensor.row().len()));
        assert!(weights.kept_len() as usize >= floats.sum(), "{name}");
    }
}

/// A safetensors file of `float32` tensors.
fn file_of(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let header = Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

#[test]
fn an_adapter_on_quantized_weights_is_one_on_their_float32_weights() {
    for name in ["bnb_nf4", "gptq_4bit_sym", "awq_gemm", "ct_fp8_channel", "mlx_4bit"] {
        let (plain, adapter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let weights = Weights::open(&ModelFiles::folder(folder(name)).unwrap()).unwrap();
        let names: Vec<String> = weights.names().map(str::to_owned).collect();
        let read = |name: &String| {
            let tensor = weights.tensor(name).ok().flatten()?;
            Some((name.clone(), tensor.shape.to_vec(), tensor.row().to_f32().unwrap()))
        };
        let tensors: Vec<_> = names.iter().filter_map(read).collect();
        fs::write(plain.path().join("model.safetensors"), file_of(&tensors)).unwrap();
        let mut config: Value =
            serde_json::from_slice(&fs::read(folder(name).join("config.json")).unwrap()).unwrap();
        for field in ["quantization_config", "quantization"] {
            config.as_object_mut().unwrap().remove(field);
        }
        fs::write(plain.path().join("config.json"), config.to_string()).unwrap();

        let module = "model.layers.0.self_attn.q_proj";
        let (_, shape, _) = tensors.iter().find(|(name, ..)| *name == format!("{module}.weight")).unwrap();
        let factor = |letter: &str, rows: usize, columns: usize| {
            let values = (0..rows * columns).map(|i| (i * 7 % 11) as f32 / 30.0 - 0.15).collect();
            (format!("base_model.model.{module}.lora_{letter}.weight"), vec![rows, columns], values)
        };
        let factors = [factor("A", 2, shape[1]), factor("B", shape[0], 2)];
        fs::write(adapter.path().join("adapter_model.safetensors"), file_of(&factors)).unwrap();
        let lora =
            serde_json::json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]});
        fs::write(adapter.path().join("adapter_config.json"), lora.to_string()).unwrap();

        let ids = vec![rsgen::TokenId(3), rsgen::TokenId(5), rsgen::TokenId(7)];
        let last = Arc::new(Mutex::new((0, 0)));
        let logits = |model: &std::path::Path, adapter: Option<&std::path::Path>| {
            let seen = Arc::clone(&last);
            let options = GeneratorOptions::new()
                .progress(move |progress| *seen.lock().unwrap() = (progress.done, progress.total));
            let options = options.adapter(adapter.map(|adapter| adapter.to_str().unwrap().to_owned()));
            let generator = Generator::open_with(model.to_str().unwrap(), &options).unwrap();
            generator.forward(std::slice::from_ref(&ids)).unwrap()
        };
        let expected = logits(plain.path(), Some(adapter.path()));
        assert_eq!(logits(&folder(name), Some(adapter.path())), expected, "{name}");
        let (done, total) = *last.lock().unwrap();
        assert!(done <= total, "{name}: {done} of {total}");
        assert_ne!(logits(&folder(name), None), expected, "{name}: the adapter has an effect");
    }
}

#[test]
fn a_conv1d_is_stored_quantized_as_a_linear_layer() {
    let (_, golden) =
        goldens_of("tests/golden/families").into_iter().find(|(name, _)| name == "gpt2").unwrap();
    let (plain, quantized) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut floats, mut stored) = (Vec::new(), Vec::new());
    for Tensor { name, shape, bytes, .. } in tensors(&golden) {
        let values: Vec<f32> = DType::F32.to_f32(&bytes).collect();
        let is_matrix = shape.len() == 2 && name.contains(".h.");
        let (&[inputs, outputs], true) = (&shape[..], is_matrix) else {
            floats.push((name.clone(), shape.clone(), values.clone()));
            stored.push((name, "F32", shape, bytes));
            continue;
        };
        // The class keeps the inputs of an output in a column.
        let at = |input: usize, output: usize| input * outputs + output;
        let (mut codes, mut scales, mut rounded) = (Vec::new(), Vec::new(), values.clone());
        for output in 0..outputs {
            let column = (0..inputs).map(|input| values[at(input, output)]);
            let scale = column.clone().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0;
            scales.extend(scale.to_le_bytes());
            for (input, value) in column.enumerate() {
                let code = (value / scale).round();
                codes.push((code as i8).cast_unsigned());
                rounded[at(input, output)] = code * scale;
            }
        }
        floats.push((name.clone(), shape, rounded));
        let module = name.strip_suffix(".weight").unwrap();
        stored.push((format!("{module}.weight_scale"), "F32", vec![outputs, 1], scales));
        stored.push((name, "I8", vec![outputs, inputs], codes));
    }
    fs::write(plain.path().join("model.safetensors"), file_of(&floats)).unwrap();
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in stored {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name, serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        data.extend(bytes);
    }
    let header = Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    fs::write(quantized.path().join("model.safetensors"), file).unwrap();
    let mut config = golden["config"].clone();
    fs::write(plain.path().join("config.json"), config.to_string()).unwrap();
    config["quantization_config"] =
        serde_json::json!({"quant_method": "compressed-tensors", "format": "int-quantized"});
    fs::write(quantized.path().join("config.json"), config.to_string()).unwrap();
    // An adapter has the sizes of the class, and one of its matrices is square.
    let adapter = tempfile::tempdir().unwrap();
    let width = config["n_embd"].as_u64().unwrap() as usize;
    let factor = |module: &str, letter: &str, rows: usize, columns: usize| {
        let values = (0..rows * columns).map(|i| (i * 7 % 11) as f32 / 30.0 - 0.15).collect();
        let name = format!("base_model.model.transformer.h.0.attn.{module}.lora_{letter}.weight");
        (name, vec![rows, columns], values)
    };
    let factors = ["c_attn", "c_proj"]
        .into_iter()
        .zip([3, 1])
        .flat_map(|(module, times)| [factor(module, "A", 2, width), factor(module, "B", times * width, 2)]);
    let factors: Vec<_> = factors.collect();
    fs::write(adapter.path().join("adapter_model.safetensors"), file_of(&factors)).unwrap();
    let lora = serde_json::json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "attn.c_proj"], "fan_in_fan_out": true
    });
    fs::write(adapter.path().join("adapter_config.json"), lora.to_string()).unwrap();
    let ids = token_ids(&golden["input_ids"]);
    let logits = |folder: &tempfile::TempDir, adapter: Option<&tempfile::TempDir>| {
        let adapter = adapter.map(|adapter| adapter.path().to_str().unwrap().to_owned());
        let options = GeneratorOptions::new().adapter(adapter);
        let generator = Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap();
        generator.forward(std::slice::from_ref(&ids)).unwrap()
    };
    let expected = logits(&plain, None);
    assert_eq!(logits(&quantized, None), expected);
    let adapted = logits(&plain, Some(&adapter));
    assert_ne!(adapted, expected, "the adapter has an effect");
    assert_eq!(logits(&quantized, Some(&adapter)), adapted);
}

#[test]
fn quantized_tensors_may_be_in_files_of_torch() {
    let models = models();
    for entry in fs::read_dir(path("tests/golden/torch/quantized")).unwrap() {
        let torch = entry.unwrap().path();
        let name = torch.file_name().unwrap().to_str().unwrap();
        let (_, golden) = models.iter().find(|(known, _)| known == name).unwrap();
        let ids = token_ids(&golden["input_ids"]);
        let logits = |folder: &std::path::Path| {
            let generator = Generator::open(folder.to_str().unwrap()).unwrap();
            generator.forward(std::slice::from_ref(&ids)).unwrap()
        };
        assert_eq!(logits(&torch), logits(&folder(name)), "{name}");
    }
}

#[test]
fn decoders_of_wrapped_models_may_be_quantized() {
    // As transformers 5 and 4 write them.
    let forms = [("model.language_model.", "lm_head"), ("language_model.model.", "language_model.lm_head")];
    for (name, golden) in models() {
        let read = |file: &str| fs::read(folder(&name).join(file)).ok();
        let mut text: Value = serde_json::from_slice(&read("config.json").unwrap()).unwrap();
        if text["architectures"][0] != "LlamaForCausalLM" {
            continue;
        }
        let ids = token_ids(&golden["input_ids"]);
        let expected = Generator::open(folder(&name).to_str().unwrap()).unwrap();
        let expected = expected.forward(std::slice::from_ref(&ids)).unwrap();
        let whole = read("model.safetensors").unwrap();
        let len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&whole[8..8 + len]).unwrap();
        let settings: Vec<(&str, Value)> = ["quantization_config", "quantization"]
            .into_iter()
            .filter_map(|field| Some((field, text.as_object_mut().unwrap().remove(field)?)))
            .collect();
        for (base, head) in forms {
            let renamed = |module: &str| match module.strip_prefix("lm_head") {
                Some(rest) => format!("{head}{rest}"),
                None => {
                    module.strip_prefix("model.").map_or(module.to_owned(), |rest| format!("{base}{rest}"))
                }
            };
            let directory = tempfile::tempdir().unwrap();
            let entries = header.as_object().unwrap().iter();
            let entries = entries.map(|(name, entry)| (renamed(name), entry.clone()));
            let new = Value::from(entries.collect::<serde_json::Map<_, _>>()).to_string();
            let file = [&(new.len() as u64).to_le_bytes()[..], new.as_bytes(), &whole[8 + len..]].concat();
            fs::write(directory.path().join("model.safetensors"), file).unwrap();
            let mut config = serde_json::json!({
                "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text,
                "tie_word_embeddings": text["tie_word_embeddings"], "vision_config": {}
            });
            for (field, value) in &settings {
                // MLX says which modules have settings of their own.
                let own = value.as_object().unwrap().iter();
                let own = own.map(|(module, value)| (renamed(module), value.clone()));
                config[field] = Value::from(own.collect::<serde_json::Map<_, _>>());
            }
            fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
            if let Some(file) = read("quantize_config.json") {
                fs::write(directory.path().join("quantize_config.json"), file).unwrap();
            }
            let generator = Generator::open(directory.path().to_str().unwrap());
            let generator = generator.unwrap_or_else(|error| panic!("{name} as {base}: {error}"));
            assert_eq!(generator.forward(std::slice::from_ref(&ids)).unwrap(), expected, "{name} as {base}");
        }
    }
}

#[test]
fn codes_of_bitsandbytes_may_be_stored_as_other_numbers() {
    let source = folder("bnb_nf4");
    let whole = fs::read(source.join("model.safetensors")).unwrap();
    let len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let ids = vec![rsgen::TokenId(3), rsgen::TokenId(5)];
    let logits = |folder: &std::path::Path| {
        let generator = Generator::open(folder.to_str().unwrap()).unwrap();
        generator.forward(std::slice::from_ref(&ids)).unwrap()
    };
    let expected = logits(&source);
    for (dtype, size) in [("I8", 1), ("BF16", 2), ("F16", 2), ("F32", 4)] {
        let mut header: Value = serde_json::from_slice(&whole[8..8 + len]).unwrap();
        let mut count = 0;
        for (name, entry) in header.as_object_mut().unwrap() {
            if name.ends_with(".weight") && entry["dtype"] == "U8" {
                let bytes = entry["shape"][0].as_u64().unwrap();
                entry["dtype"] = dtype.into();
                entry["shape"] = serde_json::json!([bytes / size, 1]);
                count += 1;
            }
        }
        assert!(count > 5, "{count} matrices");
        let header = header.to_string();
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &whole[8 + len..]].concat();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("model.safetensors"), file).unwrap();
        fs::copy(source.join("config.json"), directory.path().join("config.json")).unwrap();
        assert_eq!(logits(directory.path()), expected, "{dtype}");
    }
}

#[test]
fn an_index_that_was_never_filled_leaves_groups_in_order() {
    let with_index = |index: Option<i32>| {
        with_tensors("tests/golden/quantized/ct_w4a16_actorder", |tensors| {
            tensors.retain(|name, _| index.is_some() || !name.ends_with("weight_g_idx"));
            for (_, (_, _, bytes)) in tensors.iter_mut().filter(|(name, _)| name.ends_with("weight_g_idx")) {
                bytes.as_chunks_mut::<4>().0.fill(index.unwrap().to_le_bytes());
            }
        })
    };
    let open = |index| Generator::open(with_index(index).path().to_str().unwrap());
    let tokens = |index| open(index).unwrap().generate([1, 2, 3].map(TokenId).to_vec(), &greedy(12)).unwrap();
    assert_eq!(tokens(None).token_ids(), tokens(Some(-1)).token_ids());
    let refused = "weight_g_idx must hold a group below";
    assert!(open(Some(-2)).is_err_and(|error| error.to_string().contains(refused)));
}
