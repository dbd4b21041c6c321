//! Packed models: a folder that opens without packing, and gives the results of the model it was packed from.

use std::fs;
use std::path::{Path, PathBuf};

use rsgen::generator::pack_interruptible;
use rsgen::{DType, ErrorKind, GenerationConfig, Generator, GeneratorOptions, TokenId, WeightType, pack};

use crate::support::bits;

const STORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
const INTEGERS: [WeightType; 2] = [WeightType::Int8, WeightType::Int4];

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rsgen-packed-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn is_empty(&self) -> bool {
        self.0.read_dir().unwrap().next().is_none()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn in_type(dtype: WeightType) -> GeneratorOptions {
    GeneratorOptions::new().dtype(dtype).num_threads(2)
}

fn text(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

fn some_tokens(generator: &Generator) -> Vec<(Vec<TokenId>, Vec<u32>)> {
    let config = GenerationConfig::new().max_new_tokens(20).output_logits(true);
    bits(&generator.generate([3, 17, 9, 40, 22].map(TokenId).to_vec(), &config).unwrap())
}

#[test]
fn a_packed_model_of_any_family_has_the_bits_of_the_one_it_was_packed_from() {
    let scratch = Scratch::new("families");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/models");
    let families = ["phi3_longrope", "qwen2_layer_types", "qwen3_window", "mistral_window"]
        .map(|name| format!("{golden}/{name}"))
        .into_iter()
        .chain([STORY.to_owned()]);
    for (index, model) in families.enumerate() {
        for dtype in INTEGERS {
            let out = scratch.join(&format!("{index}-{dtype}"));
            let report = pack(&model, &out, &in_type(dtype)).unwrap();
            let packed = Generator::open(text(&out)).unwrap();
            assert!(
                some_tokens(&packed) == some_tokens(&Generator::open_with(&model, &in_type(dtype)).unwrap()),
                "{model} {dtype}"
            );
            let [file, config] =
                ["model.safetensors", "config.json"].map(|name| fs::metadata(out.join(name)).unwrap());
            assert_eq!(file.permissions(), config.permissions(), "others may read both or none");
            let file = file.len();
            assert!(report.bytes < file && file < report.bytes + 100_000, "{report:?}, {file}");
        }
    }
}

#[test]
fn the_story_model_becomes_as_small_as_its_bits() {
    let scratch = Scratch::new("size");
    let bytes = INTEGERS.map(|dtype| {
        let report = pack(STORY, scratch.join(dtype.name()), &in_type(dtype)).unwrap();
        report.bytes as f64 / report.bytes_before as f64
    });
    let parameters = INTEGERS.map(|dtype| {
        let files = rsgen_model::weights::ModelFiles::folder(scratch.join(dtype.name())).unwrap();
        let packed = rsgen_model::weights::Weights::open(&files).unwrap().packed_parameters();
        packed.into_iter().map(|(_, count)| count).sum::<u64>()
    });
    assert!(parameters.iter().all(|count| (2_800_000..2_840_000).contains(count)), "{parameters:?}");
    // The file has 16 bits a weight.
    assert!((0.51..0.56).contains(&bytes[0]) && (0.28..0.4).contains(&bytes[1]), "{bytes:?}");
}

#[test]
fn what_cannot_be_packed_is_refused_and_leaves_nothing() {
    let scratch = Scratch::new("refused");
    let out = scratch.join("out");
    for dtype in [None, Some(DType::Bf16.into())] {
        let error = pack(STORY, &out, &in_type(WeightType::Int8).dtype(dtype)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("`dtype` must be \"int8\" or \"int4\""), "{error}");
    }
    let error = pack("no/such/model", &out, &in_type(WeightType::Int8)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Load);
    assert!(scratch.is_empty());

    let error = pack_interruptible(STORY, &out, &in_type(WeightType::Int4), &mut || true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    while !scratch.is_empty() {
        // The thread that packs notices by itself.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    pack(STORY, &out, &in_type(WeightType::Int4)).unwrap();
    let error = pack(STORY, &out, &in_type(WeightType::Int4)).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("`out`"), "{error}");
    let error = pack(text(&out), scratch.join("again"), &in_type(WeightType::Int4)).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Load && error.to_string().contains("packed as int4 already"),
        "{error}"
    );
    let error = Generator::open_with(text(&out), &in_type(WeightType::Int8)).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("must be \"int4\""), "{error}");
}

/// Damages a copy of a packed file and returns the error of opening it.
fn damaged(scratch: &Scratch, damage: impl Fn(&mut Vec<u8>)) -> Option<rsgen::Error> {
    let folder = scratch.join("damaged");
    let _ = fs::remove_dir_all(&folder);
    pack(STORY, &folder, &in_type(WeightType::Int8)).unwrap();
    let file = folder.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    damage(&mut bytes);
    fs::write(&file, bytes).unwrap();
    Generator::open(text(&folder)).err()
}

fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn a_damaged_packed_file_is_refused_with_what_is_wrong() {
    let scratch = Scratch::new("damaged");
    let message = |damage: &dyn Fn(&mut Vec<u8>)| damaged(&scratch, damage).unwrap().to_string();
    let version = message(&|bytes| replace(bytes, "_version\":\"1\"", "_version\":\"7\""));
    assert!(version.contains("rsgen_packed_version must be \"1\", found \"7\""), "{version}");
    let dtype = message(&|bytes| replace(bytes, "\"int8\"", "\"int9\""));
    assert!(dtype.contains("\"int8\" or \"int4\"") && dtype.contains("int9"), "{dtype}");
    let other = message(&|bytes| replace(bytes, "_dtype\":\"int8\"", "_dtype\":\"int4\""));
    assert!(other.contains("predicts a packed matrix of the shape"), "{other}");
    let name = message(&|bytes| replace(bytes, "up_proj", "up_porj"));
    assert!(name.contains("has no matrix of this name"), "{name}");
    let short = message(&|bytes| bytes.truncate(bytes.len() - 1));
    assert!(short.contains("damaged"), "{short}");
    // The scales of a group become NaN, or a weight -128, wherever the damage hits one.
    let all_bits = message(&|bytes| {
        let end = bytes.len() / 2;
        bytes[end - 4096..end].fill(0xff);
    });
    assert!(all_bits.contains("holds no int8 weights"), "{all_bits}");
    let zeros = message(&|bytes| {
        let end = bytes.len() / 2;
        bytes[end - 4096..end].fill(0);
    });
    assert!(zeros.contains("holds no int8 weights"), "{zeros}");
}
