//! The model of the command, and the progress bar of loading it.

use std::path::Path;
use std::sync::OnceLock;

use indicatif::ProgressBar;

use super::adapters::added;
use super::args::{AssistantArguments, LoadingArguments};
use super::failure::Failure;
use super::progress::{bar, shows_bars};
use super::terminal::Terminal;
#[cfg(feature = "serve")]
use crate::engine::Interrupt;
#[cfg(feature = "serve")]
use crate::generator::GeneratorOptions;
use crate::generator::{Assistant, Generator, Progress};
use rsgen_core::Error;
use rsgen_model::weights::ModelFiles;

/// Smaller models load before a bar could be read.
const BAR_FROM_BYTES: u64 = 200_000_000;

/// The name of the bundled model that drafts for the story model, and its folder beside that one's.
const DRAFT: (&str, &str) = ("draft", "story-draft");

const TEMPLATE: &str = "loading {wide_bar} {bytes}/{total_bytes}";

/// The named model, or the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelSource<'a> {
    /// A folder, or the id of a model in the Hub cache.
    Named(&'a str),
    /// The bundled model.
    #[cfg(feature = "bundled")]
    BuiltIn,
}

impl<'a> ModelSource<'a> {
    /// The model that the user names, or else the story model.
    pub(super) fn choose(named: Option<&'a str>, bundled: Option<&'a Path>) -> Result<Self, Failure> {
        match (named, bundled) {
            (Some(""), _) => {
                Err(Error::config("must be a folder or a Hub id, but is empty").about("model").into())
            }
            (Some(named), _) => Ok(Self::Named(named)),
            (None, Some(bundled)) => match bundled.to_str() {
                Some(bundled) => Ok(Self::Named(bundled)),
                None => Err(Error::load(format!(
                    "the path {} must be UTF-8; install elsewhere",
                    bundled.display()
                ))
                .into()),
            },
            #[cfg(feature = "bundled")]
            (None, None) => Ok(Self::BuiltIn),
            #[cfg(not(feature = "bundled"))]
            (None, None) => {
                let message =
                    "no model is built into this program; name a folder, or the id of one in the Hub cache";
                Err(Error::config(message).into())
            }
        }
    }
}

impl ModelSource<'_> {
    /// The files of the model.
    pub(super) fn files(self) -> Result<ModelFiles, Failure> {
        match self {
            Self::Named(model) => Ok(ModelFiles::open(model, None, None)?),
            #[cfg(feature = "bundled")]
            Self::BuiltIn => Ok(crate::bundled::story()),
        }
    }
}

/// Loads the model that is named, if any, and the one that drafts for it.
pub(super) fn load(
    named: Option<&str>,
    loading: &LoadingArguments,
    assistant: Option<&AssistantArguments>,
    bundled: Option<&Path>,
    terminal: &Terminal,
) -> Result<Generator, Failure> {
    let mut options = loading.options();
    if shows_bars(terminal) {
        let bar = OnceLock::new();
        options.progress = Some(Box::new(move |progress| show(&bar, progress)));
    }
    let assistant = assistant.and_then(|arguments| arguments.assistant.as_deref());
    options.assistant = assistant.map(|named| find_assistant(named, bundled)).transpose()?;
    let generator = match ModelSource::choose(named, bundled)? {
        ModelSource::Named(model) => Generator::open_with(model, &options),
        #[cfg(feature = "bundled")]
        ModelSource::BuiltIn => Generator::bundled_with(&options),
    };
    Ok(added(generator?, &loading.lora_scaled)?)
}

/// Opens the same model whenever it is called, without a bar.
#[cfg(feature = "serve")]
pub(super) fn opener(
    named: Option<&str>,
    loading: &LoadingArguments,
    assistant: Option<&AssistantArguments>,
    bundled: Option<&Path>,
) -> Result<impl Fn(&mut Interrupt<'_>) -> rsgen_core::Result<Generator> + Send + Sync + 'static, Failure> {
    let named = match ModelSource::choose(named, bundled)? {
        ModelSource::Named(model) => Some(model.to_owned()),
        #[cfg(feature = "bundled")]
        ModelSource::BuiltIn => None,
    };
    let assistant = assistant.and_then(|arguments| arguments.assistant.as_deref());
    let assistant = assistant.map(|named| find_assistant(named, bundled)).transpose()?;
    let loading = loading.clone();
    Ok(move |interrupted: &mut Interrupt<'_>| {
        let options = GeneratorOptions { assistant: assistant.clone(), ..loading.options() };
        let generator = match &named {
            Some(model) => Generator::open_interruptible(model, &options, interrupted)?,
            #[cfg(feature = "bundled")]
            None => Generator::bundled_with(&options)?,
            #[cfg(not(feature = "bundled"))]
            None => return Err(Error::internal("no model is built in")),
        };
        added(generator, &loading.lora_scaled)
    })
}

/// The model that drafts.
fn find_assistant(named: &str, bundled: Option<&Path>) -> Result<Assistant, Failure> {
    match (named, bundled) {
        ("", _) => Err(Error::config("must be a folder or a Hub id, but is empty").about("assistant").into()),
        (named, Some(bundled)) if named == DRAFT.0 => {
            let folder = bundled.with_file_name(DRAFT.1);
            match ModelSource::choose(None, Some(&folder))? {
                ModelSource::Named(folder) => Ok(folder.into()),
                #[cfg(feature = "bundled")]
                ModelSource::BuiltIn => Ok(Assistant::Bundled),
            }
        }
        #[cfg(feature = "bundled")]
        (named, None) if named == DRAFT.0 => Ok(Assistant::Bundled),
        (named, _) => Ok(named.into()),
    }
}

pub(super) fn show(loading: &OnceLock<ProgressBar>, progress: Progress) {
    if progress.total < BAR_FROM_BYTES {
        return;
    }
    // It clears itself when it is dropped, also after an error.
    let loading = loading.get_or_init(|| bar(progress.total, TEMPLATE));
    loading.set_position(progress.done);
    if progress.done >= progress.total {
        loading.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressStyle;

    use super::*;

    #[test]
    fn a_named_model_takes_precedence_over_the_bundled_one() {
        let bundled = Path::new("/models/story");
        assert_eq!(ModelSource::choose(Some("other"), Some(bundled)).unwrap(), ModelSource::Named("other"));
        assert_eq!(ModelSource::choose(None, Some(bundled)).unwrap(), ModelSource::Named("/models/story"));
        assert_eq!(ModelSource::choose(Some(""), None).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn the_template_of_the_bar_is_valid_and_the_bar_ends_with_loading() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        let bar = OnceLock::new();
        let stage = crate::generator::Stage::Pack;
        show(&bar, Progress { stage, done: 10, total: BAR_FROM_BYTES - 1 });
        assert!(bar.get().is_none(), "a small model has no bar");
        show(&bar, Progress { stage, done: 10, total: BAR_FROM_BYTES });
        assert!(!bar.get().unwrap().is_finished());
        show(&bar, Progress { stage, done: BAR_FROM_BYTES, total: BAR_FROM_BYTES });
        assert!(bar.get().unwrap().is_finished());
    }
}
