//! The methods `translate` and `summarize` of `Generator`, and its languages.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{Arguments, Given, Method};
use super::errors::guarded;
use super::generator::Generator;
use super::output::GenerationOutput;

#[guarded]
#[pymethods]
impl Generator {
    /// Translates a text, or a list of any length, with a model that has an encoder.
    ///
    /// Takes the arguments of `generate()`. The languages decide the special tokens of the texts, and the
    /// token that the translation begins with. Without any limit of length it goes on to an
    /// end-of-sequence token, or to 512 tokens or twice those of the longest text.
    ///
    /// Args:
    ///     texts (Prompt): A text, or a list of them, or their token ids.
    ///     generation_config (AnyGenerationConfig | None): As for `generate()`.
    ///     source (str | None): The language of the texts, one of `languages`. None is the one that the
    ///         tokenizer's files name.
    ///     target (str | None): The language to translate into. A model of a single pair takes None.
    ///     split (Literal["sentences"] | None): "sentences" translates each text sentence by sentence, cut by
    ///         the rules of Unicode, and puts the translations together with the white space between them. Limits
    ///         of length are those of a sentence, and no term of a `glossary` is cut. A text without words stays
    ///         as it is.
    ///     **keywords (Any): The other arguments of `generate()`.
    ///
    /// Returns:
    ///     GenerationOutput: The translations: `text`, and `texts` of a list.
    ///
    /// Raises:
    ///     InputError: The model has no encoder or does not know a language, or a text is too long.
    ///
    /// Example:
    ///     mt = rsgen.Generator("path/to/opus-mt-en-de")
    ///     mt.translate(["The house is small.", "I like tea."], num_beams=4).texts
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(
        signature = (texts, generation_config=None, *, source=None, target=None, split=None, **keywords),
        text_signature = "($self, texts, generation_config=None, *, source=None, target=None, split=None, **keywords)"
    )]
    fn translate<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, PyAny>>,
        source: Option<String>,
        target: Option<String>,
        split: Option<String>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let splits_sentences = match split.as_deref() {
            None => false,
            Some("sentences") => true,
            Some(other) => {
                return Err(input_error!(
                    py,
                    "`split` must be \"sentences\" or None, got {other:?}; leave it out"
                ));
            }
        };
        let method = Method { name: "translate", strategy: None, to_the_end: true };
        let given = Given::Translation { texts, source, target, splits_sentences };
        self.run(py, &method, &Arguments { given, generation_config, keywords })
    }

    /// Summarizes a text, or a list of any length, with a model that has an encoder.
    ///
    /// It is `generate()` with the model's own defaults; without any limit of length it goes on to an
    /// end-of-sequence token, or to 512 tokens or twice those of the longest text. T5 takes its task in the text:
    /// "summarize: …".
    ///
    /// Args:
    ///     texts (Prompt): A text, or a list of them, or their token ids.
    ///     generation_config (AnyGenerationConfig | None): As for `generate()`.
    ///     **keywords (Any): The other arguments of `generate()`.
    ///
    /// Returns:
    ///     GenerationOutput: The summaries: `text`, and `texts` of a list.
    ///
    /// Raises:
    ///     InputError: The model has no encoder, or a text is too long.
    #[pyo3(
        signature = (texts, generation_config=None, **keywords),
        text_signature = "($self, texts, generation_config=None, **keywords)"
    )]
    fn summarize<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<GenerationOutput> {
        let inner = self.inner(py)?;
        if !inner.has_encoder() {
            return Err(input_error!(
                py,
                "{} has no encoder to summarize with; use `generate` and say in the text what to do",
                inner.name()
            ));
        }
        let method = Method { name: "summarize", strategy: None, to_the_end: true };
        self.run(py, &method, &Arguments { given: Given::Prompt(Some(texts)), generation_config, keywords })
    }

    /// list[str]: The languages that the model translates from and to; empty for a model of one pair.
    #[getter]
    fn languages(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.inner(py)?.languages())
    }
}
