//! Small checkpoints of every published quantized format, whose configuration is the input.

use serde_json::{Map, Value, json};

use rsgen_model::weights::{ModelFiles, Weights};

/// A tensor: its name, its type, its shape, and its bytes where they are not made up.
type Stored<'a> = (&'a str, &'a str, &'a [usize], Option<&'a [u8]>);

/// What a matrix may take in memory for each byte of the file: 2 bits become a `float32`.
const MAX_GROWTH: usize = 16;

/// A `quantization_config`, and after a zero byte the description of a matrix of bitsandbytes.
pub fn quantization_config(data: &[u8]) {
    let (config, description) = super::split(data);
    let Ok(config) = serde_json::from_slice::<Value>(config) else { return };
    let shape: Vec<u8> = [4_i64, 64].into_iter().flat_map(i64::to_le_bytes).collect();
    let len = [description.len()];
    let files: [&[Stored<'_>]; 7] = [
        &[
            ("a.qweight", "I32", &[8, 16], None),
            ("a.qzeros", "I32", &[2, 2], None),
            ("a.scales", "F16", &[2, 16], None),
            ("a.g_idx", "I32", &[64], None),
            ("b.qweight", "I32", &[4, 16], None),
            ("b.qzeros", "I32", &[1, 2], None),
            ("b.scales", "F16", &[1, 16], None),
        ],
        &[
            ("a.qweight", "I32", &[64, 2], None),
            ("a.qzeros", "I32", &[2, 2], None),
            ("a.scales", "F16", &[2, 16], None),
        ],
        &[
            ("a.weight_packed", "I32", &[4, 8], None),
            ("a.weight_scale", "BF16", &[4, 2], None),
            ("a.weight_shape", "I64", &[2], Some(&shape)),
            ("b.weight", "I8", &[4, 32], None),
            ("b.weight_scale", "F32", &[4, 1], None),
            ("c.weight", "F8_E4M3", &[4, 64], None),
            ("c.weight_scale", "F32", &[2, 2], None),
        ],
        &[("a.weight", "F8_E4M3", &[4, 64], None), ("a.weight_scale_inv", "F32", &[2, 2], None)],
        &[("a_blocks", "U8", &[2, 4, 1, 16], None), ("a_scales", "U8", &[2, 4, 1], None)],
        &[
            ("a.weight", "U8", &[64, 1], None),
            ("a.weight.absmax", "F32", &[2], None),
            ("a.weight.quant_map", "F32", &[16], None),
            ("a.weight.quant_state.bitsandbytes__nf4", "U8", &len, Some(description)),
            ("b.weight", "I8", &[4, 32], None),
            ("b.SCB", "F32", &[4], None),
        ],
        &[
            ("a.weight", "U32", &[4, 8], None),
            ("a.scales", "F16", &[4, 1], None),
            ("a.biases", "F16", &[4, 1], None),
            ("b.switch_mlp.up_proj.weight", "U32", &[2, 4, 8], None),
            ("b.switch_mlp.up_proj.scales", "F16", &[2, 4, 1], None),
            ("b.switch_mlp.up_proj.biases", "F16", &[2, 4, 1], None),
        ],
    ];
    for stored in files {
        for field in ["quantization_config", "quantization"] {
            open(&json!({ field: config }), &file(stored));
        }
    }
}

fn open(config: &Value, file: &[u8]) {
    let files = [("config.json", config.to_string().into_bytes()), ("model.safetensors", file.to_vec())];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes));
    let weights = match Weights::open(&ModelFiles::in_memory("memory", files, None)) {
        Ok(weights) => weights,
        Err(error) => return super::expect(&error, &[super::ErrorKind::Load]),
    };
    for name in weights.names() {
        match weights.tensor(name) {
            Ok(tensor) => {
                let bytes = tensor.expect("a listed tensor is there").bytes;
                assert!(bytes.len() <= MAX_GROWTH * file.len() && bytes.to_vec().is_ok(), "{name}");
            }
            Err(error) => super::expect(&error, &[super::ErrorKind::Load]),
        }
    }
}

/// A safetensors file.
fn file(stored: &[Stored<'_>]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for &(name, dtype, shape, bytes) in stored {
        let start = data.len();
        let size = match dtype {
            "I64" => 8,
            "F32" | "I32" | "U32" => 4,
            "F16" | "BF16" => 2,
            _ => 1,
        };
        let made_up = (0..size * shape.iter().product::<usize>()).map(|at| (at * 37 % 59) as u8);
        data.extend(bytes.map_or_else(|| made_up.collect(), <[u8]>::to_vec));
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.to_owned(), entry);
    }
    let header = Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
