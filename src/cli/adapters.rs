//! `--lora-scaled`: adapters beside the model, whose weighted products add up in everything that a command computes.

use crate::generator::{AdapterSum, Generator};
use rsgen_core::Result;

/// An adapter and its weight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScaledAdapter {
    folder: String,
    weight: f64,
}

/// Parses `FOLDER:WEIGHT`. The weight follows the last colon.
pub(super) fn scaled(text: &str) -> std::result::Result<ScaledAdapter, String> {
    let parsed = text.rsplit_once(':').filter(|(folder, _)| !folder.is_empty());
    let parsed = parsed.and_then(|(folder, weight)| Some((folder, weight.parse::<f64>().ok()?)));
    match parsed {
        Some((folder, weight)) if (weight as f32).is_finite() => {
            Ok(ScaledAdapter { folder: folder.to_owned(), weight })
        }
        _ => Err("it must be FOLDER:WEIGHT with a finite number, such as path/to/adapter:0.7".to_owned()),
    }
}

/// The generator with these adapters; itself without any.
///
/// # Errors
/// When one cannot be loaded beside the model.
pub(super) fn added(generator: Generator, adapters: &[ScaledAdapter]) -> Result<Generator> {
    if adapters.is_empty() {
        return Ok(generator);
    }
    let within = |error: rsgen_core::Error| error.within("lora_scaled");
    let mut sum = Vec::with_capacity(adapters.len());
    for ScaledAdapter { folder, weight } in adapters {
        // The number of the first with the same folder.
        let number = adapters.iter().position(|other| other.folder == *folder).unwrap_or_default();
        let name = format!("lora-scaled-{}", number + 1);
        if !generator.has_adapter(&name) {
            generator.load_adapter(folder, &name, None, &mut || false).map_err(within)?;
        }
        sum.push((name, *weight));
    }
    generator.with_adapter(AdapterSum::from(sum)).map_err(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_follows_the_last_colon() {
        let parsed = |folder: &str, weight| Ok(ScaledAdapter { folder: folder.to_owned(), weight });
        assert_eq!(scaled("a/b:0.5"), parsed("a/b", 0.5));
        assert_eq!(scaled("C:\\a:-1e-3"), parsed("C:\\a", -0.001));
        assert_eq!(scaled("a:b:0"), parsed("a:b", 0.0));
        for wrong in ["", "a", ":0.5", "a:", "a:b", "a:nan", "a:inf", "a:1e39", "a:0.5:"] {
            assert!(scaled(wrong).unwrap_err().contains("FOLDER:WEIGHT"), "{wrong}");
        }
    }
}
