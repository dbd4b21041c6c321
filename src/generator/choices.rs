//! Options of opening a model that are one of a few words: the one parser of what Python, the shell and files
//! say.

use rsgen_core::{Error, Result, json};
use rsgen_kernels::tensor::{ComputeDtype, DType, WeightType};
use rsgen_model::cache::KvDtype;

/// An option that is one of a few words.
#[derive(Debug, Clone, Copy)]
pub struct Choice<T: 'static> {
    /// The name of the option.
    pub name: &'static str,
    /// What `auto` means, for an option that has it besides its words.
    auto: Option<T>,
    words: &'static [(&'static str, T)],
}

/// What weights become; `None` keeps them as they are stored.
pub const DTYPE: Choice<Option<WeightType>> = Choice {
    name: "dtype",
    auto: Some(None),
    words: &[
        ("float32", Some(WeightType::Float(DType::F32))),
        ("bfloat16", Some(WeightType::Float(DType::Bf16))),
        ("float16", Some(WeightType::Float(DType::F16))),
        ("int8", Some(WeightType::Int8)),
        ("int4", Some(WeightType::Int4)),
    ],
};

/// The arithmetic of matrix products.
pub const COMPUTE_DTYPE: Choice<ComputeDtype> = Choice {
    name: "compute_dtype",
    auto: None,
    words: &[("float32", ComputeDtype::F32), ("bfloat16", ComputeDtype::Bf16), ("int8", ComputeDtype::Int8)],
};

/// The type of keys and values in the cache; `None` takes that of the arithmetic.
pub const KV_DTYPE: Choice<Option<KvDtype>> = Choice {
    name: "kv_dtype",
    auto: Some(None),
    words: &[("float32", Some(KvDtype::F32)), ("bfloat16", Some(KvDtype::Bf16)), ("int8", Some(KvDtype::I8))],
};

/// Where the defaults of fields come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelDefaults {
    /// The model's `generation_config.json`.
    Auto,
    /// Those of a model without that file.
    Ignore,
}

/// Whether the model's `generation_config.json` is used.
pub const GENERATION_CONFIG: Choice<ModelDefaults> = Choice {
    name: "generation_config",
    auto: None,
    words: &[("auto", ModelDefaults::Auto), ("ignore", ModelDefaults::Ignore)],
};

impl<T: Copy> Choice<T> {
    /// The same choice under another name.
    #[must_use]
    pub fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// All words, `auto` first.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.auto.map(|_| "auto").into_iter().chain(self.words.iter().map(|(word, _)| *word))
    }

    /// The value of a word.
    ///
    /// # Errors
    /// `Config` when it is none of them.
    pub fn parse(&self, given: &str) -> Result<T> {
        let auto = self.auto.filter(|_| given == "auto");
        let named = self.words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
        auto.or(named).ok_or_else(|| {
            let words: Vec<_> = self.words.iter().map(|(word, _)| format!("{word:?}")).collect();
            let auto = if self.auto.is_some() { "\"auto\" or " } else { "" };
            let (name, words, given) = (self.name, words.join(", "), json::shown(&given.into()));
            Error::config(format!("`{name}` must be {auto}one of {words}, got {given}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_names_of_the_types() {
        for dtype in WeightType::ALL {
            assert_eq!(DTYPE.parse(dtype.name()).unwrap(), Some(dtype));
        }
        assert_eq!(DTYPE.words().count(), 1 + WeightType::ALL.len());
        for (word, dtype) in KV_DTYPE.words {
            assert_eq!(dtype.map(KvDtype::as_str), Some(*word));
        }
        for (word, dtype) in COMPUTE_DTYPE.words {
            assert_eq!(dtype.name(), *word);
        }
        assert_eq!(KV_DTYPE.parse("auto").unwrap(), None);
        assert!(COMPUTE_DTYPE.parse("auto").is_err());
    }
}
