//! Assistants: smaller models that draft tokens for another.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Generator, GeneratorOptions};
use crate::engine::DraftModel;
use crate::error::{Result, ResultExt};
use crate::generation::DraftContext;
use crate::kernels::ThreadPool;
#[cfg(feature = "bundled")]
use crate::weights::ModelFiles;

/// The model that drafts tokens for another, when that is opened.
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
    /// Opens the model if it is not open yet, with the options and the threads of the model that it drafts for.
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
            cache_dir: options.cache_dir.clone(),
            num_threads: None,
            thread_pool: Some(pool),
            ..*options
        };
        let opened = match self {
            Self::Generator(generator) => Ok(generator.clone()),
            Self::Model(model) => Generator::open_cancellable(model, &options, cancelled),
            #[cfg(feature = "bundled")]
            Self::Bundled => Generator::from_files(&ModelFiles::bundled_draft(), &options, cancelled),
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
    /// What the plan of a call knows of this model as an assistant.
    pub(super) fn draft_context(&self) -> DraftContext {
        let shared = &self.shared;
        let mut context = DraftContext::new(shared.engine.model().vocab_size(), shared.config.context_len());
        context.vocabulary.clone_from(&shared.vocabulary);
        context.model_defaults.clone_from(&shared.generation_config);
        context.kept_tokens.clone_from(&shared.kept_tokens);
        context
    }

    /// The slot of an assistant in this model's engine.
    ///
    /// # Errors
    /// `Capacity`, `Fork`.
    pub(super) fn draft_model(&self, assistant: &Self) -> Result<Arc<DraftModel>> {
        self.shared.engine.draft(&assistant.shared.engine).map(Arc::new).context(|| "the assistant")
    }
}
