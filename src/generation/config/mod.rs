//! [`GenerationConfig`]: transformers' generation fields as plain data, made by one table.
//!
//! Every field is an `Option`, so that the precedence call > passed config > model's file > default works
//! field by field. Nothing is checked here but types: whether a value is possible is decided when a plan is
//! made ([`GenerationPlan`](super::GenerationPlan)), because that depends on the prompt, the model and the
//! other fields.

mod biases;
mod choices;
mod elsewhere;
mod field;
mod file;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
mod value;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json;
use crate::types::TokenId;

use super::logits::for_each_processor;
use super::search::for_each_search;

pub use biases::{LogitBias, SequenceBias};
pub use choices::{Compat, DolaLayers, EarlyStopping, ForcedWord};
pub(super) use field::FieldType;
pub use field::OneOrMany;
pub use value::FieldValue;

/// What there is to know of a field, for help pages and bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The name, as in transformers.
    pub name: &'static str,
    /// What a value has to be, to complete "must be …".
    pub kind: &'static str,
    /// What holds when the field is set nowhere.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// The type of a builder method's argument: the field's own, unless another is given.
macro_rules! argument {
    ($type:ty) => {
        $type
    };
    ($type:ty, $argument:ty) => {
        $argument
    };
}

/// Makes the struct, the builder methods, the table of fields and the conversions from one list of
/// `name: type (as argument type of the builder method) = default as shown;`.
macro_rules! generation_config {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty $(as $argument:ty)? = $default:literal; )*) => {
        /// How to generate: transformers' `GenerationConfig`, with every field unset until somebody sets it.
        ///
        /// ```
        /// use rsgen::generation::GenerationConfig;
        ///
        /// let config = GenerationConfig::new().max_new_tokens(60).do_sample(true).top_p(0.9);
        /// assert_eq!(config.top_p, Some(0.9));
        /// assert_eq!(config.temperature, None);
        /// ```
        #[derive(Debug, Clone, Default, PartialEq)]
        #[non_exhaustive]
        pub struct GenerationConfig {
            $( $(#[doc = $doc])+ pub $name: Option<$type>, )*
            /// The keys of a file that are no fields, as they were read.
            pub extra: Map<String, Value>,
        }

        impl GenerationConfig {
            /// Every field, in the order of their documentation.
            pub const FIELDS: &'static [FieldInfo] = &[$( FieldInfo {
                name: stringify!($name),
                kind: <$type as FieldType>::KIND,
                default: $default,
                doc: concat!($($doc),+),
            } ),*];

            $( $(#[doc = $doc])+
            #[must_use]
            pub fn $name(mut self, $name: argument!($type $(, $argument)?)) -> Self {
                self.$name = Some($name.into());
                self
            } )*

            /// Sets a field by its name; [`FieldValue::Null`] unsets it.
            ///
            /// # Errors
            /// When there is no such field, with the name that was probably meant, or what to do instead where it is one of
            /// transformers'; and when the value is of another type.
            pub fn set(&mut self, name: &str, value: &FieldValue) -> Result<()> {
                match name {
                    $( stringify!($name) => self.$name = parse(name, value)?, )*
                    // What is left out does not matter.
                    other if *value == FieldValue::Null && elsewhere::reason(other).is_some() => {}
                    unknown => return Err(Error::config(Self::unknown_field(unknown))),
                }
                Ok(())
            }

            /// This configuration, with fields that are unset taken from `base`.
            #[must_use]
            pub fn merged_over(&self, base: &Self) -> Self {
                let mut extra = base.extra.clone();
                extra.extend(self.extra.iter().map(|(name, value)| (name.clone(), value.clone())));
                Self { $( $name: self.$name.clone().or_else(|| base.$name.clone()), )* extra }
            }

            /// This configuration, the fields of a call, with those that are unset taken from one that was passed as a
            /// whole.
            ///
            /// In transformers 4.49 a `max_length` of 20 that was not given in the call counts as unset, since that is
            /// its default.
            #[must_use]
            pub fn over_passed(&self, passed: &Self) -> Self {
                let mut merged = self.merged_over(passed);
                if merged.compat == Some(Compat::V4_49) && merged.max_length == Some(20) {
                    merged.max_length = self.max_length;
                }
                merged
            }

            /// The type of a field as Python's annotations write it; `None` when there is no such field.
            pub fn python_type(name: &str) -> Option<String> {
                match name {
                    $( stringify!($name) => Some(<$type as FieldType>::python()), )*
                    _ => None,
                }
            }

            /// The value of a field; `None` when it is unset, or there is no such field.
            pub fn get(&self, name: &str) -> Option<FieldValue> {
                match name {
                    $( stringify!($name) => self.$name.as_ref().map(FieldType::to_value), )*
                    _ => None,
                }
            }
        }
    };
}

/// The table: the fields below, those that belong to a search, and those that belong to a single processor.
macro_rules! fields {
    (processors { $( $place:ident { $(
        #[doc = $doc:literal]
        $module:ident::$class:ident $arguments:tt in $applies_to:ident
        $(, field $field:ident: $type:ty $(as $argument:ty)? = $default:literal)?
        $(, by $switch:ident)?;
    )* } )* }
    $( $file:ident { $( $(#[doc = $search_doc:literal])* $name:ident $mode:ident when $condition:ident {
        fixed: [$($fixed:tt)*],
        presets: [$($presets:tt)*],
        least_beams: $least_beams:literal,
        fields: [$($search_fields:tt)*]
    } )* } )*) => {
        generation_config! {
            /// The most tokens of a sequence, prompt included; `max_new_tokens` has precedence over it.
            max_length: usize = "prompt + 20";
            /// The most tokens to generate.
            max_new_tokens: usize = "unset";
            /// The length, prompt included, before which no end-of-sequence token is generated.
            min_length: usize = "0";
            /// The number of new tokens before which no end-of-sequence token is generated.
            min_new_tokens: usize = "unset";
            /// Seconds after which generation stops, at the end of the step that is running.
            max_time: f64 = "unset";
            /// Texts that end a row when they are completed; they stay in the output.
            stop_strings: OneOrMany<String> as impl Into<OneOrMany<String>> = "unset";
            /// Whether to draw each token at random instead of taking the most probable one.
            do_sample: bool = "false";
            /// The number of beams; 1 is no beam search.
            num_beams: usize = "1";
            /// Accepted for transformers' sake, without effect: candidates share the memory of what they have in common.
            low_memory: bool = "false";
            /// The number of rows generated for each prompt.
            num_return_sequences: usize = "1";
            /// The token that fills rows up to equal length.
            pad_token_id: TokenId as impl Into<TokenId> = "the first eos_token_id";
            /// The token that begins a text, used when there is no prompt.
            bos_token_id: TokenId as impl Into<TokenId> = "unset";
            /// The token, or tokens, that end a row; an empty list: none.
            eos_token_id: OneOrMany<TokenId> as impl Into<OneOrMany<TokenId>> = "unset";
            /// Whether to keep the processed scores of every step.
            output_scores: bool = "false";
            /// Whether to keep the model's own logits of every step.
            output_logits: bool = "false";
            /// The number of most probable tokens to keep for each generated token, with their log-probabilities under
            /// the model's own logits.
            top_logprobs: usize = "0";
            /// Accepted for transformers' sake, without effect: results are always objects.
            return_dict_in_generate: bool = "true";
            /// An older transformers whose results are wanted where they differ: "4.49".
            compat: Compat = "unset";
            /// Accepted for transformers' sake: the KV cache is always used.
            use_cache: bool = "true";
            /// The most prompt tokens computed in one pass; changes no result.
            prefill_chunk_size: usize = "chosen by the engine";
            /// The seed of sampling: the tokens that `torch.manual_seed(seed)` gives transformers. For a list of
            /// prompts, one seed each, or one from which prompt `i` takes `seed + i`.
            seed: OneOrMany<u64> as impl Into<OneOrMany<u64>> = "drawn, and reported in the output";
            $($( $($search_fields)* )*)*
            $($($(
                #[doc = $doc]
                $field: $type $(as $argument)? = $default;
            )?)*)*
        }
    };
}

/// Puts the table of processors before that of searches.
macro_rules! with_searches {
    ($($processors:tt)*) => { for_each_search!(fields processors { $($processors)* }); };
}

for_each_processor!(with_searches);

/// The longest file that is read.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Keys of a file that say nothing about how to generate.
const BOOKKEEPING: &[&str] =
    &["transformers_version", "_from_model_config", "_commit_hash", "_name_or_path", "_original_object_hash"];

impl GenerationConfig {
    /// A configuration with every field unset.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a `generation_config.json`. Keys that are no fields are kept in `extra` and logged.
    ///
    /// # Errors
    /// `Load` when the text is longer than 16 MiB, no JSON object, has a key twice, or a field has a value of another
    /// type. The caller names the file.
    pub fn from_json_file(text: &str) -> Result<Self> {
        let map = json::object(text.as_bytes(), MAX_FILE_BYTES)?;
        let mut config = Self::new();
        let mut unused = Vec::new();
        for (name, json) in map {
            if Self::is_field(&name) {
                let value = without_negative_ids(&name, json.into());
                config.set(&name, &value).map_err(|error| Error::load(error.to_string()))?;
                continue;
            }
            if !BOOKKEEPING.contains(&name.as_str()) && !json.is_null() {
                unused.push(name.clone());
            }
            config.extra.insert(name, json);
        }
        if !unused.is_empty() {
            log::warn!(
                "generation_config.json: these entries have no effect in this version: {}",
                unused.join(", ")
            );
        }
        Ok(config)
    }

    /// The configuration that the keyword arguments of a call make.
    ///
    /// # Errors
    /// When a name is no field, with the name that was probably meant, or a value is of another type.
    pub fn from_call<V: Into<FieldValue>>(fields: impl IntoIterator<Item = (String, V)>) -> Result<Self> {
        let mut config = Self::new();
        for (name, value) in fields {
            config.set(&name, &value.into())?;
        }
        Ok(config)
    }

    /// The fields that are set, and the extra keys, as `generation_config.json` holds them.
    pub fn to_json(&self) -> Map<String, Value> {
        let set = |info: &FieldInfo| Some((info.name.to_owned(), self.get(info.name)?.into()));
        let mut json: Map<_, _> = Self::FIELDS.iter().filter_map(set).collect();
        json.extend(self.extra.iter().map(|(name, value)| (name.clone(), value.clone())));
        json
    }

    /// Whether there is a field of that name.
    pub fn is_field(name: &str) -> bool {
        Self::FIELDS.iter().any(|field| field.name == name)
    }

    /// Whether transformers or this version knows a name, so that `set` has an answer to it.
    pub fn is_known(name: &str) -> bool {
        Self::is_field(name) || elsewhere::reason(name).is_some()
    }

    /// The error message for a name that is no field.
    pub fn unknown_field(name: &str) -> String {
        if let Some(reason) = elsewhere::reason(name) {
            return format!("`{name}` {reason}");
        }
        let shown: String = name.chars().take(64).collect();
        match suggest::suggest(name, Self::FIELDS.iter().map(|field| field.name)) {
            Some(meant) => format!("`{shown}` is not a field of GenerationConfig; did you mean `{meant}`?"),
            None => format!("`{shown}` is not a field of GenerationConfig, or not one of this version"),
        }
    }
}

fn parse<T: FieldType>(name: &str, value: &FieldValue) -> Result<Option<T>> {
    if *value == FieldValue::Null {
        return Ok(None);
    }
    let parsed = T::parse(value).ok_or_else(|| {
        Error::config(format!("`{name}` must be {}, but is {value}; None leaves it unset", T::KIND))
    })?;
    Ok(Some(parsed))
}

/// Old checkpoints write -1 for "no such token": such an id is left out.
fn without_negative_ids(name: &str, value: FieldValue) -> FieldValue {
    if !name.ends_with("_token_id") {
        return value;
    }
    match value {
        FieldValue::Int(id) if id < 0 => FieldValue::Null,
        FieldValue::List(ids) => FieldValue::List(
            ids.into_iter().filter(|id| !matches!(id, FieldValue::Int(id) if *id < 0)).collect(),
        ),
        value => value,
    }
}
