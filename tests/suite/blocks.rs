//! Blocks of weights as gguf-py dequantizes them: `tools/golden/block_goldens.py` writes the golden file.

use rsgen_kernels::tensor::BlockType;
use serde_json::Value;

use crate::golden_support::{hex, text};

#[test]
fn blocks_of_every_type_have_the_weights_of_the_reference_to_the_last_bit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/blocks.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let types = golden["types"].as_object().unwrap();
    let of_ggml = || BlockType::ALL.iter().filter(|kind| kind.is_of_ggml());
    assert_eq!(types.len(), of_ggml().count(), "the golden file has every type");
    for kind in of_ggml() {
        let case = &types[kind.name()];
        let (blocks, expected) = (hex(text(&case["blocks"])), hex(text(&case["weights"])));
        let mut weights = vec![0.0; blocks.len() / kind.bytes() * kind.elements()];
        kind.dequantize(&blocks, &mut weights);
        assert_eq!(expected.len(), 4 * weights.len());
        for (i, (weight, expected)) in weights.iter().zip(expected.as_chunks::<4>().0).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            assert!(weight.to_bits() == expected.to_bits(), "{kind:?} {i}: {weight:e} is not {expected:e}");
        }
    }
}
