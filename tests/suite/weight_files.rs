//! Weights as people have them: files of torch, base models, and the layouts of folders.

use std::fs;
use std::path::Path;

use rsgen::{DType, Generator, GeneratorOptions, Tensor, TokenId, convert};
use rsgen_model::weights::{ModelFiles, Weights};
use serde_json::{Value, json};

use crate::families::{goldens_of, tensors};
use crate::golden_support::{bits, path};
use crate::support::{Tensors, with_tensors};

const MODEL: &str = "tests/golden/models/mistral_no_window";

fn logits(folder: impl AsRef<Path>) -> rsgen::Result<Vec<u32>> {
    let ids: Vec<TokenId> = (3..12).map(TokenId).collect();
    let options = GeneratorOptions::new().num_threads(1);
    let generator = Generator::open_with(folder.as_ref().to_str().unwrap(), &options)?;
    generator.forward(&[ids]).map(|logits| bits(&logits))
}

/// Changes fields of a folder's config.json.
fn configure(folder: &Path, fields: &Value) {
    let file = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    fs::write(file, config.to_string()).unwrap();
}

#[test]
fn a_model_of_torch_gives_the_logits_of_its_safetensors_also_when_it_is_converted() {
    for (folder, model, files) in [
        ("model", "mistral_no_window", 1),
        ("model_legacy", "mistral_no_window", 1),
        ("model_parts", "bfloat16", 2),
    ] {
        let folder = path(&format!("tests/golden/torch/{folder}"));
        let expected = logits(path(&format!("tests/golden/models/{model}"))).unwrap();
        assert_eq!(logits(&folder).unwrap(), expected, "{folder}");

        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("converted");
        let report = convert(&folder, &out).unwrap();
        assert_eq!(report.num_files, files, "{folder}");
        assert_eq!(logits(&out).unwrap(), expected, "{folder}");
        let weights = Weights::open(&ModelFiles::folder(&out).unwrap()).unwrap();
        // Those of two files are no shared bytes.
        let is_once = !weights.contains("lm_head.weight");
        assert_eq!(is_once, files == 1, "{folder}: a tied matrix is written once");
        assert_eq!(weights.data_len(), report.bytes, "{folder}");
        assert_eq!(out.join("model.safetensors.index.json").exists(), files > 1, "{folder}");
        for entry in out.read_dir().unwrap() {
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
                assert_eq!(mode(&entry.unwrap().path()), mode(&out.join("config.json")));
            }
        }
        let again = convert(out.to_str().unwrap(), out.with_file_name("again")).unwrap_err().to_string();
        assert!(again.contains("no pytorch_model.bin to convert, and no GGUF file"), "{again}");
        assert!(convert(&folder, &out).unwrap_err().to_string().contains("a new folder"), "{folder}");
    }
}

#[test]
fn safetensors_come_before_files_of_torch() {
    let folder = with_tensors(MODEL, |_| {});
    fs::write(folder.path().join("pytorch_model.bin"), "damaged").unwrap();
    assert_eq!(logits(&folder).unwrap(), logits(path(MODEL)).unwrap());
}

/// The names of a model's tensors as a base model has them.
fn without_prefix(tensors: &mut Tensors) {
    *tensors = std::mem::take(tensors)
        .into_iter()
        .map(|(name, tensor)| (name.trim_start_matches("model.").to_owned(), tensor))
        .collect();
}

#[test]
fn base_models_open_if_their_head_is_tied() {
    let expected = logits(path(MODEL)).unwrap();
    for prefix in [true, false] {
        let folder = with_tensors(MODEL, |tensors| {
            tensors.remove("lm_head.weight");
            if !prefix {
                without_prefix(tensors);
            }
        });
        configure(folder.path(), &json!({"architectures": ["MistralModel"], "tie_word_embeddings": true}));
        assert_eq!(logits(&folder).unwrap(), expected, "prefix {prefix}");
        configure(folder.path(), &json!({"tie_word_embeddings": false}));
        let error = logits(&folder).unwrap_err().to_string();
        assert!(error.contains("lm_head.weight") && error.contains("a base model without a head"), "{error}");
    }
    // A head below the prefix is that of the model, too.
    let folder = with_tensors(MODEL, |tensors| {
        let head = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("model.lm_head.weight".to_owned(), head);
    });
    configure(folder.path(), &json!({"tie_word_embeddings": false}));
    assert_eq!(logits(&folder).unwrap(), expected);
    for (prefix, reason) in [
        ("module.", "within a DataParallel: save `model.module`"),
        ("_orig_mod.", "from what `torch.compile` returned: save `model._orig_mod`"),
    ] {
        let folder = with_tensors(MODEL, |tensors| {
            *tensors = std::mem::take(tensors)
                .into_iter()
                .map(|(name, it)| (format!("{prefix}{name}"), it))
                .collect();
        });
        let error = logits(&folder).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// Files, fields of config.json, and the error, empty if there is none.
type Layout<'a> = (Vec<(&'a str, Vec<u8>)>, Value, &'a str);

#[test]
fn every_layout_of_a_folder_opens_or_says_what_it_is() {
    let whole = fs::read(path(&format!("{MODEL}/model.safetensors"))).unwrap();
    let pickled = fs::read(path("tests/golden/torch/model/pytorch_model.bin")).unwrap();
    let index = |file: &str| {
        json!({"metadata": {}, "weight_map": {"model.norm.weight": file}}).to_string().into_bytes()
    };
    let named = |file: &str| json!({"transformers_weights": file});
    let none = json!({});
    let part = "model-00001-of-00002.safetensors";
    let table: Vec<Layout<'_>> = vec![
        (vec![("model.safetensors", whole.clone())], none.clone(), ""),
        (vec![("pytorch_model.bin", pickled.clone())], none.clone(), ""),
        // The index leaves tensors out, as those of some checkpoints do.
        (vec![("model.safetensors.index.json", index(part)), (part, whole.clone())], none.clone(), ""),
        (
            vec![("pytorch_model.bin.index.json", index("a.bin")), ("a.bin", pickled.clone())],
            none.clone(),
            "",
        ),
        (vec![("other.safetensors", whole.clone())], named("other.safetensors"), ""),
        (
            vec![("other.safetensors.index.json", index(part)), (part, whole.clone())],
            named("other.safetensors.index.json"),
            "",
        ),
        (vec![], named("gone.safetensors"), "\"gone.safetensors\" is missing; download"),
        (vec![], named("model.gguf"), "transformers_weights must be the name of a .safetensors"),
        (vec![], named("../x.safetensors"), "a plain name"),
        (
            vec![(part, whole.clone())],
            none.clone(),
            "model-00001-of-00002.safetensors is one part of a model",
        ),
        (
            vec![("pytorch_model-00001-of-00002.bin", pickled.clone())],
            none.clone(),
            "pytorch_model-00001-of-00002.bin is one part of a model",
        ),
        (
            vec![("model.fp16.safetensors", whole.clone())],
            none.clone(),
            "model.fp16.safetensors has a name that is not looked for, such as that of a variant",
        ),
        (
            vec![("model.safetensors.index.fp16.json", index(part)), (part, whole.clone())],
            none.clone(),
            "model.safetensors.index.fp16.json is the index of a variant",
        ),
        (
            vec![("consolidated.safetensors", whole.clone()), ("params.json", b"{}".to_vec())],
            none.clone(),
            "consolidated.safetensors has the names of its maker's own format; download",
        ),
        (vec![("consolidated.00.pth", pickled.clone())], none.clone(), "consolidated.00.pth has the names"),
        (vec![("model.gguf", whole.clone())], none.clone(), "it holds GGUF files; open one by its path"),
        (
            vec![("tf_model.h5", whole.clone())],
            none.clone(),
            "tf_model.h5 is of another format: save the model",
        ),
        (
            vec![("flax_model.msgpack", whole.clone())],
            none.clone(),
            "flax_model.msgpack is of another format",
        ),
        (vec![("rust_model.ot", whole.clone())], none.clone(), "rust_model.ot is of another format"),
        (vec![("model.onnx", whole.clone())], none.clone(), "model.onnx is of another format"),
        (vec![("weights.npz", whole.clone())], none.clone(), "weights.npz is of another format"),
        (
            vec![("openvino_model.bin", whole.clone()), ("openvino_model.xml", whole.clone())],
            none.clone(),
            "openvino_model.xml is of another format",
        ),
        (vec![("model.pt", pickled.clone())], none.clone(), "model.pt is of another format"),
        (vec![("last.ckpt", pickled)], none.clone(), "last.ckpt is of another format"),
        (
            vec![("training_args.bin", whole)],
            none,
            "neither model.safetensors nor model.safetensors.index.json",
        ),
    ];
    for (files, fields, expected) in table {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(path(&format!("{MODEL}/config.json")), folder.path().join("config.json")).unwrap();
        configure(folder.path(), &fields);
        for (name, bytes) in &files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let opened = logits(&folder).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(opened.is_empty(), expected.is_empty(), "{expected}: {opened}");
        assert!(opened.contains(expected), "{opened}");
    }
    // A folder whose config.json alone is missing.
    let folder = with_tensors(MODEL, |_| {});
    fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
    fs::write(folder.path().join(part), "").unwrap();
    fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = logits(&folder).unwrap_err().to_string();
    assert!(error.contains("config.json is missing; is it the folder of a model?"), "{error}");
    // Weights in a folder of their own.
    let folder = with_tensors(MODEL, |_| {});
    let weights = folder.path().join("model.safetensors");
    fs::create_dir(folder.path().join("weights")).unwrap();
    fs::rename(&weights, folder.path().join("weights/model.safetensors")).unwrap();
    let error = logits(&folder).unwrap_err().to_string();
    assert!(
        error.contains("its folder \"weights\" holds weights; put them and config.json into one folder"),
        "{error}"
    );
    // A folder around folders of models.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("checkpoint-500")).unwrap();
    fs::write(folder.path().join("checkpoint-500/config.json"), "{}").unwrap();
    let error = logits(&folder).unwrap_err().to_string();
    assert!(error.contains("config.json is missing; its folder \"checkpoint-500\" holds a model"), "{error}");
}

#[test]
fn the_constants_of_xielu_are_read_from_files_that_have_them() {
    let goldens = goldens_of("tests/golden/families");
    let (_, golden) = goldens.iter().find(|(name, _)| name == "apertus").unwrap();
    let open = |shape: &[usize], constants: [f32; 2]| {
        let mut tensors = tensors(golden);
        for (name, value) in ["beta", "eps"].into_iter().zip(constants) {
            tensors.push(Tensor {
                name: format!("model.layers.1.mlp.act_fn.{name}"),
                dtype: DType::F32,
                shape: shape.to_vec(),
                bytes: value.to_le_bytes().to_vec(),
            });
        }
        let config = golden["config"].to_string().into_bytes();
        Generator::from_tensors(config, tensors, &GeneratorOptions::default())
    };
    // As bfloat16 rounds them, and as float32 does.
    for shape in [&[][..], &[1]] {
        open(shape, [0.5, -1e-6]).unwrap();
        open(shape, [0.5, -9.983_778e-7]).unwrap();
    }
    for (constants, message) in
        [([0.4, -1e-6], "act_fn.beta of xIELU must be 0.5"), ([0.5, -0.1], "act_fn.eps")]
    {
        let error = open(&[], constants).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
