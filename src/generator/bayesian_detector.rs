//! Opening a trained detector of SynthID: the folder that transformers'
//! `BayesianDetectorModel.save_pretrained` writes.

use serde_json::Value;

use rsgen_core::{Error, Result, ResultExt};
use rsgen_generation::{BayesianDetectorModel, FieldValue, GenerationConfig, Watermarking};
use rsgen_model::weights::{MAX_TEXT_BYTES, ModelFiles, WeightScope, Weights, read_object};

/// A trained detector, with the model and the watermark that it was trained for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BayesianDetector {
    /// The model that judges g-values.
    pub model: BayesianDetectorModel,
    /// The language model whose texts it judges.
    pub model_name: Option<String>,
    /// The watermark of those texts.
    pub watermarking_config: Option<Watermarking>,
}

impl BayesianDetector {
    /// Opens a detector: a folder with `config.json` and `model.safetensors`, or the id of one in the local
    /// Hub cache.
    ///
    /// # Errors
    /// `Load` when a file is missing or damaged, or is not that of such a model.
    pub fn from_pretrained(model: &str) -> Result<Self> {
        let files = ModelFiles::open(model, None, None)?;
        Self::of_files(&files).context(|| files.name().to_owned())
    }

    fn of_files(files: &ModelFiles) -> Result<Self> {
        let config = read_object("config.json", &files.config()?, MAX_TEXT_BYTES)?;
        let depth =
            config.get("watermarking_depth").and_then(Value::as_u64).and_then(|depth| depth.try_into().ok());
        let depth: usize = depth.filter(|depth| (1..=MAX_DEPTH).contains(depth)).ok_or_else(|| {
            Error::load(format!(
                "config.json: `watermarking_depth` must be an integer from 1 to {MAX_DEPTH}, as that of a BayesianDetectorModel is, \
                 but is {}",
                config.get("watermarking_depth").map_or("missing".to_owned(), ToString::to_string)
            ))
        })?;
        let weights = Weights::open(files)?;
        let likelihood = weights.root().child("likelihood_model_watermarked");
        let beta = read(&likelihood, "beta", &[1, 1, depth])?;
        let delta = read(&likelihood, "delta", &[1, 1, depth, depth])?;
        let prior = read(&weights.root(), "prior", &[1])?;
        let watermark = config.get("watermarking_config").filter(|value| !value.is_null());
        let watermarking_config = match watermark {
            None => None,
            Some(value) => {
                let mut fields = GenerationConfig::new();
                let value = FieldValue::from(value.clone());
                fields
                    .set("watermarking_config", &value)
                    .map_err(|error| Error::load(error.to_string()))
                    .context(|| "config.json")?;
                fields.watermarking_config
            }
        };
        Ok(Self {
            model: BayesianDetectorModel::new(beta, delta, prior.first().copied().unwrap_or(0.5))?,
            model_name: config.get("model_name").and_then(Value::as_str).map(str::to_owned),
            watermarking_config,
        })
    }
}

/// The numbers of a tensor.
fn read(scope: &WeightScope<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let tensor = scope.tensor(name, shape)?;
    tensor.row().to_f32().context(|| tensor.name.to_owned())
}

/// The deepest tournament.
const MAX_DEPTH: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::path::Path;

    /// Writes a detector of two layers.
    fn write(folder: &Path, config: &Value, depth: usize) {
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let tensors: [(&str, Vec<usize>); 3] = [
            ("likelihood_model_watermarked.beta", vec![1, 1, depth]),
            ("likelihood_model_watermarked.delta", vec![1, 1, depth, depth]),
            ("prior", vec![1]),
        ];
        let mut header = serde_json::Map::new();
        let mut bytes: Vec<u8> = Vec::new();
        for (name, shape) in tensors {
            let start = bytes.len();
            for index in 0..shape.iter().product::<usize>() {
                bytes.extend((0.25 + index as f32).to_le_bytes());
            }
            let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, bytes.len()]});
            header.insert(name.to_owned(), entry);
        }
        let header = Value::Object(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(bytes);
        fs::write(folder.join("model.safetensors"), file).unwrap();
    }

    #[test]
    fn a_detector_saved_by_transformers_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let watermark = json!({"ngram_len": 5, "keys": [654, 400], "debug_mode": false});
        write(
            folder.path(),
            &json!({"watermarking_depth": 2, "base_rate": 0.5, "model_name": "a/b", "watermarking_config": watermark}),
            2,
        );
        let detector = BayesianDetector::from_pretrained(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(detector.model_name.as_deref(), Some("a/b"));
        assert!(matches!(detector.watermarking_config, Some(Watermarking::SynthIDText(_))));
        let expected =
            BayesianDetectorModel::new(vec![0.25, 1.25], vec![0.25, 1.25, 2.25, 3.25], 0.25).unwrap();
        assert_eq!(detector.model, expected);
    }

    #[test]
    fn an_invalid_detector_is_refused_with_the_file_and_the_rule() {
        let folder = tempfile::tempdir().unwrap();
        let error = |config: Value, depth: usize| {
            write(folder.path(), &config, depth);
            BayesianDetector::from_pretrained(folder.path().to_str().unwrap()).unwrap_err().to_string()
        };
        assert!(
            error(json!({"hidden_size": 4}), 2).contains("`watermarking_depth` must be an integer from 1")
        );
        assert!(error(json!({"watermarking_depth": 0}), 2).contains("but is 0"));
        assert!(
            error(json!({"watermarking_depth": 3}), 2)
                .contains("predicts the shape [1, 1, 3], found [1, 1, 2]")
        );
        let wrong = json!({"watermarking_depth": 2, "watermarking_config": {"keys": 3}});
        assert!(error(wrong, 2).contains("config.json: `watermarking_config` needs `ngram_len`"));
    }
}
