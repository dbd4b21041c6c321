//! The fields of a call that are texts of its output: words that it must and must not hold, a glossary, and what it
//! begins with.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Generator, Prompt, Prompts};
use crate::engine::Interrupt;
use rsgen_core::{Error, Result, ResultExt as _, TokenId, message, refuse_if};
use rsgen_generation::config::ForcedWord;
use rsgen_generation::{GenerationConfig, PlanContext};
use rsgen_text::Phrases;

/// Those fields of a call, as tokens.
#[derive(Debug, Default)]
pub(super) struct OutputTexts {
    /// What the output for each prompt has to hold by the glossary; empty without one.
    terms: Vec<Vec<ForcedWord>>,
    /// The field that forces words, for messages.
    forcing: Option<&'static str>,
    /// What the output begins with: one for all prompts, or one for each.
    prefixes: Vec<Vec<TokenId>>,
}

/// The prompts of a call, and the texts of those that are given as their tokens.
#[derive(Clone, Copy)]
pub(super) struct PromptTexts<'p> {
    pub(super) prompts: &'p Prompts,
    /// One for each prompt, or none at all.
    pub(super) texts: &'p [Option<Arc<str>>],
}

impl<'p> PromptTexts<'p> {
    /// The text of each prompt; `None` of one that is none.
    fn all(self) -> Vec<Option<&'p str>> {
        let list = match self.prompts {
            Prompts::One(prompt) => std::slice::from_ref(prompt),
            Prompts::List(list) => list,
            Prompts::Batch(batch) => return vec![None; batch.rows().len()],
        };
        let text = |(index, prompt): (usize, &'p Prompt)| match prompt {
            Prompt::Text(text) => Some(&**text),
            _ => self.texts.get(index)?.as_deref(),
        };
        list.iter().enumerate().map(text).collect()
    }
}

impl OutputTexts {
    /// Takes the fields out of those of a call and of the model's defaults, and sets those for tokens.
    ///
    /// # Errors
    /// When a text has no tokens, the prompts are not as the fields need them, or the search has no beams to
    /// force words with; `Cancelled`.
    pub(super) fn take(
        generator: &Generator,
        prompts: PromptTexts<'_>,
        config: &mut GenerationConfig,
        context: &mut PlanContext,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Self> {
        let merged = config.merged_over(&context.model_defaults);
        if !merged.has_output_texts() {
            return Ok(Self::default());
        }
        config.clear_output_texts();
        if context.model_defaults.has_output_texts() {
            Arc::make_mut(&mut context.model_defaults).clear_output_texts();
        }
        let forcing = match (&merged.glossary, &merged.force_words) {
            (Some(_), _) => Some("glossary"),
            (None, Some(_)) => Some("force_words"),
            (None, None) => None,
        };
        let mut texts = Self { forcing, ..Self::default() };
        if let Some(field) = forcing {
            let beams = merged.num_beams.unwrap_or(1);
            refuse_if(
                beams < 2,
                field,
                || message!("needs beams, but " {num_beams} " is {beams}; set " {num_beams = 4} ", for example"),
            )?;
        }
        if let Some(words) = &merged.bad_words {
            let mut all = merged.bad_words_ids.clone().unwrap_or_default();
            let mut known: HashSet<Vec<TokenId>> = all.iter().cloned().collect();
            for word in words.as_slice() {
                for text in [word.clone(), format!(" {}", word.trim_start())] {
                    let ids = tokens(generator, "bad_words", &text, interrupted)?;
                    if known.insert(ids.clone()) {
                        all.push(ids);
                    }
                }
            }
            config.bad_words_ids = Some(all).filter(|all| !all.is_empty());
        }
        if let Some(words) = &merged.force_words {
            let words = words.as_slice();
            refuse_if(
                words.is_empty(),
                "force_words",
                || "must hold at least one text, but is empty; leave it unset",
            )?;
            let words = words.iter().map(|word| generator.word("force_words", word, interrupted));
            let mut all = merged.force_words_ids.clone().unwrap_or_default();
            for word in words {
                all.push(ForcedWord::Phrase(word?));
            }
            config.force_words_ids = Some(all);
        }
        if merged.glossary.is_some() {
            texts.terms = terms(generator, prompts, &merged, interrupted)?;
        }
        if let Some(prefixes) = &merged.target_prefix {
            refuse_if(
                !generator.has_encoder(),
                "target_prefix",
                || "goes with models that have an encoder, which this one has not; write it at the end of the prompt",
            )?;
            let (prefixes, count) = (prefixes.as_slice(), prompts.prompts.len());
            refuse_if(prefixes.len() != 1 && prefixes.len() != count, "target_prefix", || {
                format!("must be a text, or one for each prompt ({count}), but holds {}", prefixes.len())
            })?;
            let ids = prefixes.iter().map(|text| tokens(generator, "target_prefix", text, interrupted));
            texts.prefixes = ids.collect::<Result<_>>()?;
        }
        Ok(texts)
    }

    /// The prompts of the decoder that begin so; a token that is forced as the first comes before them.
    pub(super) fn decoder_rows(&self, forced_bos: Option<TokenId>) -> Option<Vec<Vec<TokenId>>> {
        let row = |ids: &Vec<TokenId>| forced_bos.into_iter().chain(ids.iter().copied()).collect();
        (!self.prefixes.is_empty()).then(|| self.prefixes.iter().map(row).collect())
    }

    /// How many tokens of the decoder's prompt for this one are text of the output.
    pub(super) fn prefix_len(&self, index: usize) -> usize {
        self.prefixes.get(index).or(self.prefixes.first()).map_or(0, Vec::len)
    }

    /// Whether an output may have to hold something.
    pub(super) fn force_words(&self) -> bool {
        self.forcing.is_some()
    }

    /// Adds what the glossary says for a prompt.
    pub(super) fn add_terms(&self, index: usize, defaults: &GenerationConfig, config: &mut GenerationConfig) {
        let terms = self.terms.get(index).map_or(&[][..], Vec::as_slice);
        if !terms.is_empty() {
            let all = config
                .force_words_ids
                .get_or_insert_with(|| defaults.force_words_ids.clone().unwrap_or_default());
            all.extend_from_slice(terms);
        }
    }

    /// An error about forced tokens, as one about the field that the call has.
    pub(super) fn named(&self, error: Error) -> Error {
        match self.forcing {
            Some(field) if error.field() == Some("force_words_ids") => error.within(field),
            _ => error,
        }
    }
}

/// What each prompt forces by the glossary.
fn terms(
    generator: &Generator,
    prompts: PromptTexts<'_>,
    merged: &GenerationConfig,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vec<Vec<ForcedWord>>> {
    let entries = merged.glossary.as_ref().map_or(&[][..], |glossary| glossary.entries());
    let phrases = Phrases::new(entries.iter().map(|(term, _)| term.as_str()));
    let texts = prompts.all().into_iter().collect::<Option<Vec<_>>>();
    let texts = texts.ok_or_else(|| {
        let rule = "is for prompts that are texts, but one is not; give texts, or `force_words`";
        Error::config(rule).about("glossary")
    })?;
    let mut words: Vec<Option<ForcedWord>> = vec![None; entries.len()];
    for ((term, forms), word) in entries.iter().zip(&mut words) {
        refuse_if(term.trim().is_empty() || forms.is_empty(), "glossary", || {
            format!(
                "must map terms to their translations, but has {term:?} with {}; leave it out",
                forms.len()
            )
        })?;
        let forms: Result<Vec<_>> =
            forms.iter().map(|form| generator.word("glossary", form, interrupted)).collect();
        *word = Some(one_of(forms?));
    }
    let of_text =
        |text: &str| phrases.within(text).into_iter().filter_map(|index| words[index].clone()).collect();
    Ok(texts.into_iter().map(of_text).collect())
}

/// One of several forms; those that begin with another one need not be named.
fn one_of(mut forms: Vec<Vec<TokenId>>) -> ForcedWord {
    // Those that begin with a form come right after it.
    forms.sort_unstable();
    let mut all: Vec<Vec<TokenId>> = Vec::new();
    for form in forms {
        if all.last().is_none_or(|shorter| !form.starts_with(shorter)) {
            all.push(form);
        }
    }
    all.sort_by_key(Vec::len);
    if all.len() == 1 { ForcedWord::Phrase(all.swap_remove(0)) } else { ForcedWord::AnyOf(all) }
}

/// The tokens of a text of the output; `field` is for messages.
fn tokens(
    generator: &Generator,
    field: &'static str,
    text: &str,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vec<TokenId>> {
    generator.check_bytes(text).context(|| format!("`{field}`"))?;
    let ids = generator.tokenizer()?.encode_target_interruptible(text, false, interrupted)?;
    refuse_if(ids.is_empty(), field, || {
        format!("must be texts with tokens, but {text:?} has none; leave it out")
    })?;
    Ok(ids)
}

impl Generator {
    /// The tokens of a word after a space: some tokenizers put the space there, others have to be given it.
    fn word(&self, field: &'static str, word: &str, interrupted: &mut Interrupt<'_>) -> Result<Vec<TokenId>> {
        let word = word.trim();
        let (ids, tokenizer) = (tokens(self, field, word, interrupted)?, self.tokenizer()?);
        refuse_if(tokenizer.unknown().is_some_and(|unknown| ids.contains(&unknown)), field, || {
            format!(
                "must be words that the tokenizer can write, but {word:?} has pieces that it does not know; \
                 leave it out, or give another form"
            )
        })?;
        let begins_with_space = tokenizer.token_bytes(ids[0]).is_some_and(|bytes| bytes.starts_with(b" "));
        if begins_with_space { Ok(ids) } else { tokens(self, field, &format!(" {word}"), interrupted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_forms_of_a_form_are_left_out() {
        let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
        assert_eq!(one_of(vec![ids(&[5, 6]), ids(&[5])]), ForcedWord::Phrase(ids(&[5])));
        assert_eq!(
            one_of(vec![ids(&[5, 6]), ids(&[7]), ids(&[7]), ids(&[5, 8])]),
            ForcedWord::AnyOf(vec![ids(&[7]), ids(&[5, 6]), ids(&[5, 8])])
        );
    }
}
