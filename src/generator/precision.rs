//! The number types of a model's weights, arithmetic and KV cache.

use super::GeneratorOptions;
use rsgen_core::{Error, Result, message};
use rsgen_kernels::tensor::{ComputeDtype, DType, WeightType};
use rsgen_model::cache::KvDtype;

/// The types that the options select.
#[derive(Debug, Clone, Copy)]
pub(super) struct Precision {
    /// The type of weights in memory; `None` keeps the stored type.
    pub(super) weights: Option<WeightType>,
    /// Whether the model's files are packed in this type.
    pub(super) is_packed: bool,
    pub(super) compute: ComputeDtype,
    pub(super) kv: KvDtype,
}

impl Precision {
    /// In `bfloat16` arithmetic, floating-point weights are rounded to `bfloat16`, and so are keys and values
    /// unless told otherwise. Products with quantized weights are the same in both; the option then selects
    /// the arithmetic of attention.
    ///
    /// # Errors
    /// `Config` when the types of weights and arithmetic contradict each other, or that of a packed model.
    pub(super) fn choose(options: &GeneratorOptions, packed: Option<WeightType>) -> Result<Self> {
        let GeneratorOptions { dtype, compute_dtype: compute, kv_dtype, .. } = *options;
        if let (Some(packed), Some(other)) = (packed, dtype)
            && packed != other
        {
            return Err(Error::config(format!(
                "must be \"{packed}\" or unset for a model that is packed in that type, got \
                 \"{other}\"; leave it out, or open the model that it was packed from"
            ))
            .about("dtype"));
        }
        let (dtype, is_packed) = (packed.or(dtype), packed.is_some());
        match compute {
            ComputeDtype::F32 | ComputeDtype::Int8 => {
                Ok(Self { weights: dtype, is_packed, compute, kv: kv_dtype.unwrap_or(KvDtype::F32) })
            }
            ComputeDtype::Bf16 => {
                let weights = match dtype.unwrap_or(DType::Bf16.into()) {
                    WeightType::Float(other @ (DType::F32 | DType::F16)) => {
                        return Err(Error::config(message!(
                            "must be \"bfloat16\", \"int8\", \"int4\" or unset beside a " {compute_dtype} " of \
                             \"bfloat16\", got \"{other}\"; leave it out, or compute in \"float32\""
                        ))
                        .about("dtype"));
                    }
                    weights => weights,
                };
                Ok(Self { weights: Some(weights), is_packed, compute, kv: kv_dtype.unwrap_or(KvDtype::Bf16) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::ErrorKind;

    #[test]
    fn the_arithmetic_gives_the_default_types() {
        let choose = |dtype: Option<WeightType>, compute_dtype, kv_dtype| {
            let options = GeneratorOptions { dtype, compute_dtype, kv_dtype, ..GeneratorOptions::default() };
            Precision::choose(&options, None).map(|precision| (precision.weights, precision.kv))
        };
        let (float32, bfloat16) = (ComputeDtype::F32, ComputeDtype::Bf16);
        assert_eq!(choose(None, float32, None).unwrap(), (None, KvDtype::F32));
        let half = Some(DType::F16.into());
        assert_eq!(choose(half, float32, None).unwrap(), (half, KvDtype::F32));
        assert_eq!(choose(None, bfloat16, None).unwrap(), (Some(DType::Bf16.into()), KvDtype::Bf16));
        for integers in [WeightType::Int8, WeightType::Int4].map(Some) {
            assert_eq!(choose(integers, float32, None).unwrap(), (integers, KvDtype::F32));
            assert_eq!(choose(integers, bfloat16, None).unwrap(), (integers, KvDtype::Bf16));
        }
        assert_eq!(choose(None, bfloat16, Some(KvDtype::F32)).unwrap().1, KvDtype::F32);
        for dtype in [DType::F32, DType::F16] {
            let error = choose(Some(dtype.into()), bfloat16, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(
                error.to_string().contains("`dtype`") && error.to_string().contains(dtype.name()),
                "{error}"
            );
        }
    }

    #[test]
    fn a_packed_model_decides_the_type_of_its_weights() {
        let choose = |dtype| {
            let options = GeneratorOptions { dtype, ..GeneratorOptions::default() };
            Precision::choose(&options, Some(WeightType::Int4))
        };
        for dtype in [None, Some(WeightType::Int4)] {
            let precision = choose(dtype).unwrap();
            assert_eq!((precision.weights, precision.is_packed), (Some(WeightType::Int4), true));
        }
        let error = choose(Some(WeightType::Int8)).unwrap_err().to_string();
        assert!(error.contains("must be \"int4\"") && error.contains("got \"int8\""), "{error}");
    }
}
