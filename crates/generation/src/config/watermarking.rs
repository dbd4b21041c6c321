//! `watermarking_config`: how generated text is marked, so that a detector with the same settings finds it.
//!
//! The types have transformers' names and defaults. A map, as files and JSON have it, is one of SynthID if it
//! holds a field that only that has. Ranges are checked where a processor or a detector is made.

use super::field::{FieldType, words};
use super::kind::FieldKind;
use super::value::FieldValue;

/// The watermark of Kirchenbauer et al.: a pseudorandom part of the vocabulary, the green list, gains a bias.
///
/// ```
/// use rsgen_generation::{GenerationConfig, WatermarkingConfig};
///
/// let config = GenerationConfig::new()
///     .watermarking_config(WatermarkingConfig { bias: 2.5, ..WatermarkingConfig::default() });
/// assert!(config.watermarking_config.is_some());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct WatermarkingConfig {
    /// The part of the vocabulary that is green, above 0 and below 1.
    pub greenlist_ratio: f64,
    /// What is added to the scores of green tokens.
    pub bias: f64,
    /// The key that green lists depend on: from -2^63 to 2^64 - 1, with selfhash to 2^63 - 1.
    pub hashing_key: i128,
    /// What else they depend on.
    pub seeding_scheme: SeedingScheme,
    /// The tokens before the first marked one; with selfhash also how many tokens the green list depends on.
    pub context_width: usize,
}

impl Default for WatermarkingConfig {
    fn default() -> Self {
        Self {
            greenlist_ratio: 0.25,
            bias: 2.0,
            hashing_key: 15_485_863,
            seeding_scheme: SeedingScheme::LeftHash,
            context_width: 1,
        }
    }
}

/// What the green list of a step depends on, besides the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeedingScheme {
    /// `"lefthash"`: the last token.
    #[default]
    LeftHash,
    /// `"selfhash"`: the candidate itself and the tokens before it. Of the 40 best candidates those gain that
    /// are green.
    SelfHash,
}

words!(SeedingScheme { LeftHash = "lefthash", SelfHash = "selfhash" });

/// SynthID's watermark: tokens win tournaments whose outcome depends on keys and on the tokens before.
///
/// ```
/// use rsgen_generation::{GenerationConfig, SynthIDTextWatermarkingConfig};
///
/// let watermark = SynthIDTextWatermarkingConfig::new(5, vec![654, 400, 836, 123, 340, 443, 597, 160, 57]);
/// assert_eq!(watermark.sampling_table_size, 65_536);
/// let config = GenerationConfig::new().do_sample(true).watermarking_config(watermark);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynthIDTextWatermarkingConfig {
    /// The length of the n-grams that are hashed: a token and those before it.
    pub ngram_len: usize,
    /// A key for each layer of the tournament.
    pub keys: Vec<i64>,
    /// How many of the latest contexts are not used a second time.
    pub context_history_size: usize,
    /// The seed of the table that hashes are looked up in.
    pub sampling_table_seed: u64,
    /// The size of that table, up to 2^24.
    pub sampling_table_size: usize,
    /// Whether the first `ngram_len - 1` tokens are left unmarked.
    pub skip_first_ngram_calls: bool,
    /// Whether all scores are taken as equal, to test detectors.
    pub debug_mode: bool,
}

impl SynthIDTextWatermarkingConfig {
    /// These n-grams and keys, and transformers' defaults for all else.
    pub fn new(ngram_len: usize, keys: Vec<i64>) -> Self {
        Self {
            ngram_len,
            keys,
            context_history_size: 1024,
            sampling_table_seed: 0,
            sampling_table_size: 1 << 16,
            skip_first_ngram_calls: false,
            debug_mode: false,
        }
    }
}

/// A watermark of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Watermarking {
    /// Green lists.
    GreenList(WatermarkingConfig),
    /// SynthID's tournaments.
    SynthIDText(SynthIDTextWatermarkingConfig),
}

impl From<WatermarkingConfig> for Watermarking {
    fn from(config: WatermarkingConfig) -> Self {
        Self::GreenList(config)
    }
}

impl From<SynthIDTextWatermarkingConfig> for Watermarking {
    fn from(config: SynthIDTextWatermarkingConfig) -> Self {
        Self::SynthIDText(config)
    }
}

/// A field of a configuration, whatever its type.
trait AnyField {
    /// Sets it.
    ///
    /// # Errors
    /// What it must be.
    fn read(&mut self, value: &FieldValue) -> Result<(), String>;

    fn value(&self) -> FieldValue;
}

impl<T: FieldType> AnyField for T {
    fn read(&mut self, value: &FieldValue) -> Result<(), String> {
        *self = T::parse(value).ok_or_else(|| T::KIND.describe())?;
        Ok(())
    }

    fn value(&self) -> FieldValue {
        self.to_value()
    }
}

impl Watermarking {
    /// All fields, by their names.
    fn fields(&mut self) -> Vec<(&'static str, &mut dyn AnyField)> {
        match self {
            Self::GreenList(config) => vec![
                ("greenlist_ratio", &mut config.greenlist_ratio),
                ("bias", &mut config.bias),
                ("hashing_key", &mut config.hashing_key),
                ("seeding_scheme", &mut config.seeding_scheme),
                ("context_width", &mut config.context_width),
            ],
            Self::SynthIDText(config) => vec![
                ("ngram_len", &mut config.ngram_len),
                ("keys", &mut config.keys),
                ("context_history_size", &mut config.context_history_size),
                ("sampling_table_seed", &mut config.sampling_table_seed),
                ("sampling_table_size", &mut config.sampling_table_size),
                ("skip_first_ngram_calls", &mut config.skip_first_ngram_calls),
                ("debug_mode", &mut config.debug_mode),
            ],
        }
    }

    /// The watermark that a map describes.
    ///
    /// # Errors
    /// What is wrong with the map, to follow the name of the field that holds it.
    fn read(value: &FieldValue) -> Result<Self, String> {
        let FieldValue::Map(entries) = value else {
            return Err(format!("must be {}, but is {value}", Self::KIND.describe()));
        };
        let given = |name: &str| entries.iter().find(|(key, _)| *key == FieldValue::from(name));
        let mut watermark = Self::from(SynthIDTextWatermarkingConfig::new(0, Vec::new()));
        let (mut class, mut required) = ("SynthIDTextWatermarkingConfig", &["ngram_len", "keys"][..]);
        if watermark.fields().iter().all(|(name, _)| given(name).is_none()) {
            watermark = WatermarkingConfig::default().into();
            (class, required) = ("WatermarkingConfig", &[]);
        }
        let mut fields = watermark.fields();
        let unknown = |key: &&FieldValue| fields.iter().all(|(name, _)| **key != FieldValue::from(*name));
        if let Some(key) = entries.iter().map(|(key, _)| key).find(unknown) {
            let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            let names = names.join(", ");
            return Err(format!("holds {key}, which is no field of {class}; its fields are {names}"));
        }
        for (name, field) in &mut fields {
            match given(name) {
                Some((_, value)) if *value != FieldValue::Null => field
                    .read(value)
                    .map_err(|kind| format!("must have a `{name}` that is {kind}, but it is {value}"))?,
                _ if required.contains(name) => {
                    return Err(format!("needs `{name}`, as {class} does; add it"));
                }
                _ => {}
            }
        }
        Ok(watermark)
    }

    /// How many keys it has.
    pub(super) fn num_keys(&self) -> usize {
        match self {
            Self::GreenList(_) => 1,
            Self::SynthIDText(config) => config.keys.len(),
        }
    }
}

impl FieldType for Watermarking {
    const KIND: FieldKind = FieldKind::Other(
        "a WatermarkingConfig or a SynthIDTextWatermarkingConfig, or a map of the fields of one",
        "WatermarkingConfig | SynthIDTextWatermarkingConfig | dict[str, Any]",
        &["object"],
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        Self::read(value).ok()
    }

    fn explain(value: &FieldValue) -> Option<String> {
        Self::read(value).err()
    }

    fn to_value(&self) -> FieldValue {
        let mut own = self.clone();
        let fields = own.fields();
        FieldValue::Map(fields.into_iter().map(|(name, field)| (name.into(), field.value())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::GenerationConfig;
    use super::*;
    use serde_json::json;

    fn set(value: serde_json::Value) -> Result<Option<Watermarking>, String> {
        let mut config = GenerationConfig::new();
        let result = config.set("watermarking_config", &value.into());
        result.map(|()| config.watermarking_config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_map_is_read_as_the_kind_whose_fields_it_holds_and_goes_back() {
        let green = WatermarkingConfig {
            greenlist_ratio: 0.5,
            hashing_key: u64::MAX.into(),
            seeding_scheme: SeedingScheme::SelfHash,
            ..WatermarkingConfig::default()
        };
        let map = json!({"greenlist_ratio": 0.5, "hashing_key": u64::MAX, "seeding_scheme": "selfhash", "bias": null});
        assert_eq!(set(map).unwrap(), Some(green.clone().into()));
        assert_eq!(set(json!({})).unwrap(), Some(WatermarkingConfig::default().into()));
        let synthid = SynthIDTextWatermarkingConfig {
            sampling_table_seed: 7,
            debug_mode: true,
            ..SynthIDTextWatermarkingConfig::new(5, vec![3, -4])
        };
        let map = json!({"ngram_len": 5, "keys": [3, -4], "sampling_table_seed": 7, "debug_mode": true});
        assert_eq!(set(map).unwrap(), Some(synthid.clone().into()));
        for watermark in [Watermarking::from(green), synthid.into()] {
            let config = GenerationConfig::new().watermarking_config(watermark.clone());
            let text = serde_json::to_string(&config).unwrap();
            let again = GenerationConfig::from_json_file(&text).unwrap();
            assert_eq!(again.watermarking_config, Some(watermark), "{text}");
        }
    }

    #[test]
    fn a_wrong_map_is_explained() {
        for (value, expected) in [
            (
                json!(5),
                "`watermarking_config` must be a WatermarkingConfig or a SynthIDTextWatermarkingConfig, or a map",
            ),
            (
                json!({"bais": 2.0}),
                "`watermarking_config` holds \"bais\", which is no field of WatermarkingConfig; its",
            ),
            (
                json!({"keys": [1], "bias": 2.0}),
                "holds \"bias\", which is no field of SynthIDTextWatermarkingConfig",
            ),
            (json!({"keys": [1]}), "`watermarking_config` needs `ngram_len`"),
            (json!({"ngram_len": 5}), "`watermarking_config` needs `keys`"),
            (json!({"ngram_len": 5, "keys": 3}), "must have a `keys` that is a list of integers from -2^63"),
            (
                json!({"seeding_scheme": "left"}),
                "a `seeding_scheme` that is \"lefthash\" or \"selfhash\", but it is \"left\"",
            ),
            (json!({"hashing_key": 1.5}), "must have a `hashing_key` that is an integer"),
            (json!({"context_width": -1}), "must have a `context_width` that is an integer of 0 or more"),
        ] {
            let error = set(value.clone()).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }
}
