//! Translation: the languages of a call, by the names of the tokenizer.

use super::{Call, Generator, Prompt, Prompts};
use crate::engine::Interrupt;
use rsgen_core::{Error, Result, message, refuse_if};
use rsgen_generation::GenerationConfig;
use rsgen_text::{LanguagePlace, Tokenizer};

/// The model type whose decoder begins with the language instead of being forced to it.
const BEGINS_WITH_LANGUAGE: &str = "mbart";

/// The languages of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Translation {
    source: Option<String>,
    target: Option<String>,
}

impl Call<'_> {
    /// Makes it a translation between languages that the tokenizer knows: see [`Generator::languages`]. `None`
    /// is the language that the tokenizer's files name.
    ///
    /// The languages decide the special tokens of the texts, and `forced_bos_token_id` or
    /// `decoder_start_token_id`, unless the call sets them.
    pub fn translation(mut self, source: Option<&str>, target: Option<&str>) -> Self {
        let owned = |language: Option<&str>| language.map(str::to_owned);
        self.translation = Some(Translation { source: owned(source), target: owned(target) });
        self
    }
}

impl Generator {
    /// The languages that the model translates from and to, as `translate` takes them; none for a model of a
    /// single pair.
    pub fn languages(&self) -> Vec<String> {
        let tokenizer = self.shared.tokenizer.iter();
        tokenizer.flat_map(|tokenizer| tokenizer.languages().map(|name| plain(name).to_owned())).collect()
    }

    /// The languages of sources and of targets that the files of a model of a single pair name, such as `en` and
    /// `de`.
    pub fn language_pair(&self) -> [Option<&str>; 2] {
        self.shared.tokenizer.as_ref().map_or([None; 2], Tokenizer::language_pair)
    }
}

impl Translation {
    /// Encodes the texts among the prompts, and sets the fields that the languages decide.
    pub(super) fn apply(
        &self,
        generator: &Generator,
        prompts: Prompts,
        config: &mut GenerationConfig,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Prompts> {
        if !generator.has_encoder() {
            return Err(Error::input(format!(
                "{} has no encoder to translate with; use `generate` and say in the text what to do",
                generator.name()
            )));
        }
        let given = generator.tokenizer()?;
        let name = |language: &Option<String>| language.as_deref().map(|language| known(given, language));
        let (source, target) = (name(&self.source), name(&self.target));
        let tokenizer = given
            .with_languages(source.as_deref(), target.as_deref())
            .map_err(|error| Error::input(error.to_string()))?;
        self.set_fields(generator, &tokenizer, config)?;
        let mut encode = |prompt: Prompt| match prompt {
            Prompt::Text(text) => {
                generator.check_bytes(&text)?;
                tokenizer.encode_interruptible(&text, true, interrupted).map(Prompt::Ids)
            }
            given => Ok(given),
        };
        Ok(match prompts {
            Prompts::One(prompt) => Prompts::One(encode(prompt)?),
            Prompts::List(list) => {
                let named =
                    |(index, prompt)| encode(prompt).map_err(|error| error.of_prompt("prompt", index));
                Prompts::List(list.into_iter().enumerate().map(named).collect::<Result<_>>()?)
            }
            batch @ Prompts::Batch(_) => batch,
        })
    }

    /// Sets the token that the target begins with.
    fn set_fields(
        &self,
        generator: &Generator,
        tokenizer: &Tokenizer,
        config: &mut GenerationConfig,
    ) -> Result<()> {
        let place = tokenizer.language_place();
        let Some(place) = place.filter(|&place| place != LanguagePlace::BeforeSource) else { return Ok(()) };
        let merged = config.merged_over(generator.generation_config());
        let begins =
            place == LanguagePlace::After && generator.config().raw["model_type"] == BEGINS_WITH_LANGUAGE;
        let Some(language) = tokenizer.target_language() else {
            let is_set = if begins {
                merged.decoder_start_token_id.is_some()
            } else {
                merged.forced_bos_token_id.is_some()
            };
            return refuse_if(!is_set, "target", || {
                let some: Vec<&str> = tokenizer.languages().take(3).collect();
                message!(("must name the language to translate into, such as {}", some.join(", ")))
            });
        };
        let id = tokenizer.language_id(language)?;
        if begins {
            config.decoder_start_token_id.get_or_insert(id.into());
        } else if self.target.is_some() {
            config.forced_bos_token_id.get_or_insert(id);
        } else if merged.forced_bos_token_id.is_none() {
            config.forced_bos_token_id = Some(id);
        }
        Ok(())
    }
}

/// A language by its name, without the marks that some tokenizers put around it.
fn plain(name: &str) -> &str {
    let marked = |before, after| name.strip_prefix(before)?.strip_suffix(after);
    marked(">>", "<<").or_else(|| marked("__", "__")).unwrap_or(name)
}

/// The tokenizer's own name of a language.
fn known(tokenizer: &Tokenizer, language: &str) -> String {
    let is_it = |name: &&str| *name == language || plain(name) == language;
    tokenizer.languages().find(is_it).unwrap_or(language).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_plain_names() {
        for (name, language) in
            [(">>deu<<", "deu"), ("__de__", "de"), ("deu_Latn", "deu_Latn"), ("de_DE", "de_DE")]
        {
            assert_eq!(plain(name), language);
        }
    }
}
