//! Writes a model as a GGUF file, as llama.cpp's converter does: the tensors in their types, and what its folder
//! says in metadata.
//!
//! It holds no second table of names. A plan of the file is read by the reader itself, whose names, orders of rows
//! and configuration then say what is written where. A model that the reader would not make of it again is refused.

mod entries;
mod metadata;
mod tensors;
mod tokenizer;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use self::entries::{Entries, Entry};
use self::tensors::{Names, Planned};
use super::architecture::{self, Architecture};
use super::config::{self, Description};
use super::store::Named;
use super::{names, tokenizer as read_tokenizer};
use crate::families::{experts_alternate, same_model};
use crate::weights::config::ModelConfig;
use crate::weights::shards::Weights;
use crate::weights::source::ModelFiles;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;

/// Whether the texts of a tokenizer are that of the model.
pub type FitsTokenizer<'a> = dyn Fn(&[(String, Vec<u8>)]) -> Result<bool> + 'a;

/// A file that is planned, and not yet written.
pub struct GgufPlan<'a> {
    config: &'a ModelConfig,
    weights: &'a Weights,
    entry: &'static Architecture,
    entries: Entries,
    plan: Vec<Planned>,
    named: Vec<Named>,
}

impl<'a> GgufPlan<'a> {
    /// Plans the file of a model; `fits` says whether a tokenizer that the reader would make is the model's.
    ///
    /// # Errors
    /// `Load`, naming it, when the architecture, a field, a tensor or the tokenizer has no form in GGUF files.
    pub fn new(
        files: &ModelFiles,
        config: &'a ModelConfig,
        weights: &'a Weights,
        fits: &FitsTokenizer<'_>,
    ) -> Result<Self> {
        let mut refusal = None;
        let (of_decoders, others): (Vec<_>, Vec<_>) =
            architecture::of_class(&config.architecture).partition(|entry| entry.sides.is_empty());
        if !others.is_empty() {
            return Err(Error::load(format!(
                "{} has an encoder, and only decoders are written to GGUF files; use convert_hf_to_gguf.py of llama.cpp",
                config.architecture
            )));
        }
        for entry in of_decoders {
            for with_pattern in [false, true] {
                match Self::of_entry(config, weights, entry, with_pattern) {
                    Ok(mut plan) => {
                        plan.refuse_others()?;
                        let tokens = plan.tokenizer(files, fits).context(|| "the tokenizer")?;
                        plan.entries.extend(tokens);
                        return Ok(plan);
                    }
                    Err(error) => refusal = refusal.or(Some(error)),
                }
            }
        }
        Err(refusal.unwrap_or_else(|| {
            Error::load(format!(
                "{} has no architecture in GGUF files; docs/weight_files.md lists those that have one",
                config.architecture
            ))
        }))
    }

    fn of_entry(
        config: &'a ModelConfig,
        weights: &'a Weights,
        entry: &'static Architecture,
        with_pattern: bool,
    ) -> Result<Self> {
        let mut entries = metadata::entries(config, entry, weights, with_pattern)?;
        let names = Self::names(config, weights, entry)?;
        let mut plan = metadata::rotary(config)?;
        // What follows begins where these end.
        let mut end = 0;
        for planned in &mut plan {
            let len = planned.info.place.len();
            planned.info.place = end..end + len;
            end = (end + len).next_multiple_of(entries::ALIGNMENT);
        }
        for mut planned in names.plan()? {
            let place = planned.info.place;
            planned.info.place = place.start + end..place.end + end;
            plan.push(planned);
        }
        let kinds =
            plan.iter().filter(|planned| planned.info.shape.len() > 1).map(|planned| planned.info.type_id);
        entries.set(
            "general.file_type",
            Entry::U32(match kinds.max() {
                Some(30) => 32,
                kind => kind.unwrap_or(0),
            }),
        );
        let files = tensors::container("the new file", entries.metadata(), &plan);
        let by_name = files[0].tensors.iter().map(|tensor| (&*tensor.name, tensor)).collect();
        let floats = |name: &str| -> Result<Option<Vec<f32>>> {
            let found = plan.iter().find(|planned| planned.info.name == name);
            let bytes = found.and_then(|planned| planned.given.as_deref());
            Ok(bytes.map(|bytes| rsgen_kernels::tensor::DType::F32.to_f32(bytes).collect()))
        };
        let model = Description {
            architecture: entry.name,
            metadata: &files[0].metadata,
            tensors: &by_name,
            floats: &floats,
        };
        let found = architecture::find(&model)?;
        let made = serde_json::Value::from(config::config(&model, found)?).to_string();
        same_model(config, made.as_bytes())?;
        let named = names::named(&files, &model, found)?;
        names.check(&named)?;
        Ok(Self { config, weights, entry: found, entries, plan, named })
    }

    fn names(config: &ModelConfig, weights: &'a Weights, entry: &'a Architecture) -> Result<Names<'a>> {
        Ok(Names {
            weights,
            entry,
            num_layers: config.num_hidden_layers,
            num_experts: config.fields().integer("num_experts", 0..=1 << 12)?.unwrap_or(0),
            alternates: experts_alternate(config)?,
            is_tied: config.tie_word_embeddings,
        })
    }

    /// Refuses tensors that would be left out, but for buffers that are computed.
    fn refuse_others(&self) -> Result<()> {
        const COMPUTED: [&str; 4] = [".inv_freq", ".attn.bias", ".masked_bias", ".attention.bias"];
        for tensor in &self.named {
            let _ = self.weights.tensor(&tensor.name)?;
        }
        let is_computed = |name: &&str| COMPUTED.iter().any(|ending| name.ends_with(ending));
        match self.weights.unused().find(|name| !is_computed(name)) {
            None => Ok(()),
            Some(name) => Err(Error::load(format!(
                "{} has no name in GGUF files of the architecture {}; use the model as it is",
                escape::name(name),
                self.entry.name
            ))),
        }
    }

    /// The entries of the tokenizer: of the forms that GGUF has, the first whose tokenizer is that of the model.
    fn tokenizer(&self, files: &ModelFiles, fits: &FitsTokenizer<'_>) -> Result<Entries> {
        let given = tokenizer::Given::read(files, self.config)?;
        for form in given.forms()? {
            let metadata = form.metadata();
            let mut texts = read_tokenizer::texts(&metadata, self.entry.name)?;
            // Rules of a class may depend on the type of the model.
            texts.push((
                "config.json".to_owned(),
                serde_json::json!({"model_type": self.entry.model_type}).to_string().into_bytes(),
            ));
            if fits(&texts)? {
                return Ok(form);
            }
        }
        Err(Error::load(
            "no form in GGUF files gives texts the ids that it gives: they name how texts are cut, and added tokens have neither lstrip \
             nor rstrip there; use the model as it is, or another tokenizer",
        ))
    }

    /// Writes the file, tensor by tensor. Returns the bytes of its tensors.
    ///
    /// # Errors
    /// `Load` when a tensor cannot be read or the file cannot be written; `Cancelled`.
    pub fn write(&self, path: &Path, cancelled: &AtomicBool) -> Result<u64> {
        let unwritable = |error| {
            Error::load(format!("{} cannot be written", escape::name(&path.to_string_lossy())))
                .with_source(error)
        };
        let names = Self::names(self.config, self.weights, self.entry)?;
        let mut file = BufWriter::new(File::create(path).map_err(unwritable)?);
        file.write_all(&self.entries.header(&self.plan)).map_err(unwritable)?;
        let (mut at, mut bytes, mut kept) = (0, 0, None);
        for planned in &self.plan {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            file.write_all(&vec![0; planned.info.place.start - at]).map_err(unwritable)?;
            let tensor = names.bytes(planned, &self.named, &mut kept)?;
            file.write_all(&tensor).map_err(unwritable)?;
            (at, bytes) = (planned.info.place.end, bytes + tensor.len() as u64);
        }
        file.flush().map_err(unwritable)?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for GgufPlan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GgufPlan").field("tensors", &self.plan.len()).finish_non_exhaustive()
    }
}
