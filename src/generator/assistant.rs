//! Assistants: smaller models that draft tokens for another.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Generator, GeneratorOptions};
use crate::engine::ModelRunner;
use rsgen_core::{Result, ResultExt};
use rsgen_generation::{DraftContext, VocabularyMap};
use rsgen_kernels::ThreadPool;

/// The assistant that a model is opened with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Assistant {
    /// A folder, or the id of a model in the local Hub cache.
    Model(String),
    /// A model that is open. Its weights are shared.
    Generator(Generator),
    /// The bundled `story-draft`, which drafts for the bundled story model.
    #[cfg(feature = "bundled")]
    Bundled,
}

impl Assistant {
    /// Opens the model if it is not open yet, with the options and the threads of the model that it drafts
    /// for.
    pub(super) fn open(
        &self,
        options: &GeneratorOptions,
        pool: ThreadPool,
        cancelled: &AtomicBool,
    ) -> Result<Generator> {
        let options = GeneratorOptions {
            progress: None,
            revision: None,
            assistant: None,
            adapter: None,
            tokenizer: None,
            cache_dir: options.cache_dir.clone(),
            num_threads: None,
            thread_pool: Some(pool),
            ..*options
        };
        let opened = match self {
            Self::Generator(generator) => Ok(generator.clone()),
            Self::Model(model) => Generator::open_cancellable(model, &options, cancelled),
            #[cfg(feature = "bundled")]
            Self::Bundled => Generator::from_files(&crate::bundled::draft(), &options, cancelled),
        };
        opened.context(|| "the assistant")
    }
}

impl From<Generator> for Assistant {
    fn from(generator: Generator) -> Self {
        Self::Generator(generator)
    }
}

impl From<&str> for Assistant {
    fn from(model: &str) -> Self {
        Self::Model(model.to_owned())
    }
}

impl From<String> for Assistant {
    fn from(model: String) -> Self {
        Self::Model(model)
    }
}

impl Generator {
    /// The properties of an assistant that the plan of a call needs.
    ///
    /// # Errors
    /// When a tokenizer fails.
    pub(super) fn draft_context(&self, assistant: &Self) -> Result<DraftContext> {
        let shared = &assistant.shared;
        let mut context = DraftContext::new(shared.engine.model().vocab_size(), shared.config.context_len());
        context.model_defaults.clone_from(&shared.generation_config);
        context.encoder = assistant.encoder();
        context.kept_tokens.clone_from(&shared.kept_tokens);
        context.vocabulary_map = self.vocabulary_map(assistant)?;
        Ok(context)
    }

    /// The map to an assistant's vocabulary, made once; `None` if the vocabularies are equal or unknown.
    fn vocabulary_map(&self, assistant: &Self) -> Result<Option<Arc<VocabularyMap>>> {
        let (Some(own), Some(other)) = (&self.shared.vocabulary, &assistant.shared.vocabulary) else {
            return Ok(None);
        };
        let mut maps = self.shared.vocabulary_maps.lock();
        maps.retain(|(known, _)| known.strong_count() > 0);
        let engine = &assistant.shared.engine;
        if let Some((_, map)) =
            maps.iter().find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(engine)))
        {
            return Ok(map.clone());
        }
        // Heads may be padded to different sizes.
        let same_len = self.shared.engine.model().vocab_size() == engine.model().vocab_size();
        let is_same = same_len && VocabularyMap::is_same(&**own, &**other);
        let map = if is_same { None } else { Some(Arc::new(VocabularyMap::new(own, other)?)) };
        maps.push((Arc::downgrade(engine), map.clone()));
        Ok(map)
    }

    /// The slot of an assistant in this model's engine.
    ///
    /// # Errors
    /// `Capacity`, `Fork`.
    pub(super) fn draft_model(&self, assistant: &Self) -> Result<Arc<ModelRunner>> {
        self.shared.engine.draft(&assistant.shared.engine).map(Arc::new).context(|| "the assistant")
    }
}
