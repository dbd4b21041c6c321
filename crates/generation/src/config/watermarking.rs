//! `watermarking_config`: how generated text is marked, so that a detector with the same settings finds it.
//!
//! The types have transformers' names and defaults. A map, as files and JSON have it, is one of SynthID if it
//! holds a field that only that has. Ranges are checked where a processor or a detector is made.

use super::field::{FieldType, integer, words};
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

/// A key of 64 bits, signed or not.
impl FieldType for i128 {
    const KIND: FieldKind = u64::KIND;

    fn parse(value: &FieldValue) -> Option<Self> {
        integer(value).filter(|key| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(key))
    }

    fn to_value(&self) -> FieldValue {
        FieldValue::Int(*self)
    }
}

/// Keys of 64 bits.
impl FieldType for Vec<i64> {
    const KIND: FieldKind = FieldKind::List(&FieldKind::Int(i64::MIN as i128, i64::MAX as i128), usize::MAX);

    fn parse(value: &FieldValue) -> Option<Self> {
        let FieldValue::List(keys) = value else { return None };
        keys.iter().map(|key| integer(key)?.try_into().ok()).collect()
    }

    fn to_value(&self) -> FieldValue {
        self.iter().map(|&key| FieldValue::Int(i128::from(key))).collect()
    }
}

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

const GREEN_LIST: [&str; 5] = ["greenlist_ratio", "bias", "hashing_key", "seeding_scheme", "context_width"];
const SYNTHID: [&str; 7] = [
    "ngram_len",
    "keys",
    "context_history_size",
    "sampling_table_seed",
    "sampling_table_size",
    "skip_first_ngram_calls",
    "debug_mode",
];

impl Watermarking {
    /// The watermark that a map describes.
    ///
    /// # Errors
    /// What is wrong with the map, to follow the name of the field that holds it.
    fn read(value: &FieldValue) -> Result<Self, String> {
        let FieldValue::Map(entries) = value else {
            return Err(format!("must be {}, but is {value}", Self::KIND.describe()));
        };
        let is_synthid =
            entries.iter().any(|(key, _)| SYNTHID.iter().any(|name| *key == FieldValue::from(*name)));
        let names: &[&str] = if is_synthid { &SYNTHID } else { &GREEN_LIST };
        let unknown = |key: &&FieldValue| !names.iter().any(|name| **key == FieldValue::from(*name));
        if let Some(key) = entries.iter().map(|(key, _)| key).find(unknown) {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let class = if is_synthid { "SynthIDTextWatermarkingConfig" } else { "WatermarkingConfig" };
            return Err(format!(
                "holds {key}, which is no field of {class}; its fields are {}",
                names.join(", ")
            ));
        }
        let fields = Fields(entries);
        if !is_synthid {
            let default = WatermarkingConfig::default();
            return Ok(Self::GreenList(WatermarkingConfig {
                greenlist_ratio: fields.get("greenlist_ratio")?.unwrap_or(default.greenlist_ratio),
                bias: fields.get("bias")?.unwrap_or(default.bias),
                hashing_key: fields.get("hashing_key")?.unwrap_or(default.hashing_key),
                seeding_scheme: fields.get("seeding_scheme")?.unwrap_or(default.seeding_scheme),
                context_width: fields.get("context_width")?.unwrap_or(default.context_width),
            }));
        }
        let required = |name: &str| format!("needs `{name}`, as SynthIDTextWatermarkingConfig does; add it");
        let ngram_len = fields.get("ngram_len")?.ok_or_else(|| required("ngram_len"))?;
        let keys = fields.get("keys")?.ok_or_else(|| required("keys"))?;
        let default = SynthIDTextWatermarkingConfig::new(ngram_len, keys);
        Ok(Self::SynthIDText(SynthIDTextWatermarkingConfig {
            context_history_size: fields.get("context_history_size")?.unwrap_or(default.context_history_size),
            sampling_table_seed: fields.get("sampling_table_seed")?.unwrap_or(default.sampling_table_seed),
            sampling_table_size: fields.get("sampling_table_size")?.unwrap_or(default.sampling_table_size),
            skip_first_ngram_calls: fields.get("skip_first_ngram_calls")?.unwrap_or(false),
            debug_mode: fields.get("debug_mode")?.unwrap_or(false),
            ..default
        }))
    }

    /// How many keys it has.
    pub(super) fn num_keys(&self) -> usize {
        match self {
            Self::GreenList(_) => 1,
            Self::SynthIDText(config) => config.keys.len(),
        }
    }
}

/// The entries of a map.
struct Fields<'a>(&'a [(FieldValue, FieldValue)]);

impl Fields<'_> {
    /// A field; `None` where it is unset.
    fn get<T: FieldType>(&self, name: &str) -> Result<Option<T>, String> {
        let given = self.0.iter().find(|(key, _)| *key == FieldValue::from(name)).map(|(_, value)| value);
        match given {
            None | Some(FieldValue::Null) => Ok(None),
            Some(value) => match T::parse(value) {
                Some(parsed) => Ok(Some(parsed)),
                None => {
                    Err(format!("must have a `{name}` that is {}, but it is {value}", T::KIND.describe()))
                }
            },
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
        let values = match self {
            Self::GreenList(config) => vec![
                ("greenlist_ratio", config.greenlist_ratio.to_value()),
                ("bias", config.bias.to_value()),
                ("hashing_key", config.hashing_key.to_value()),
                ("seeding_scheme", config.seeding_scheme.to_value()),
                ("context_width", config.context_width.to_value()),
            ],
            Self::SynthIDText(config) => vec![
                ("ngram_len", config.ngram_len.to_value()),
                ("keys", config.keys.to_value()),
                ("context_history_size", config.context_history_size.to_value()),
                ("sampling_table_seed", config.sampling_table_seed.to_value()),
                ("sampling_table_size", config.sampling_table_size.to_value()),
                ("skip_first_ngram_calls", config.skip_first_ngram_calls.to_value()),
                ("debug_mode", config.debug_mode.to_value()),
            ],
        };
        FieldValue::Map(values.into_iter().map(|(name, value)| (FieldValue::from(name), value)).collect())
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
