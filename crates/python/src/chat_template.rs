//! `apply_chat_template`: of a generator, and of a tokenizer, whose templates are read at the first call.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::chat::{self, Conversations};
use super::errors::guarded;
use super::tokenizer::Tokenizer;
use super::walk::Text;
use rsgen_core::error::Result;
use rsgen_text::{ChatOptions, ChatTemplates};

/// The arguments that are those of a call of the tokenizer.
const OF_ENCODING: [&str; 5] = ["padding", "truncation", "max_length", "return_tensors", "return_dict"];

/// The arguments.
pub(super) struct Given<'a, 'py> {
    pub(super) conversation: &'a Bound<'py, PyAny>,
    pub(super) tools: Option<&'a Bound<'py, PyAny>>,
    pub(super) documents: Option<&'a Bound<'py, PyAny>>,
    pub(super) chat_template: Option<&'a str>,
    pub(super) add_generation_prompt: bool,
    pub(super) continue_final_message: Option<&'a Bound<'py, PyAny>>,
    pub(super) tokenize: bool,
    pub(super) kwargs: Option<&'a Bound<'py, PyDict>>,
}

impl<'py> Given<'_, 'py> {
    /// The prompts by these templates and that tokenizer; `of_python` is the same tokenizer, which pads and cuts.
    pub(super) fn apply<'t>(
        &self,
        py: Python<'py>,
        templates: &ChatTemplates,
        tokenizer: &(dyn Fn() -> Result<&'t rsgen_text::Tokenizer> + Sync),
        of_python: impl FnOnce() -> PyResult<Py<Tokenizer>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (kwargs, encoding) = (self.kwargs.map(PyDictMethods::copy).transpose()?, PyDict::new(py));
        for name in OF_ENCODING {
            if let Some(given) = kwargs.as_ref().map(|kwargs| kwargs.get_item(name)).transpose()?.flatten() {
                kwargs.as_ref().map_or(Ok(()), |kwargs| kwargs.del_item(name))?;
                encoding.set_item(name, given)?;
            }
        }
        let conversations = Conversations::extract(self.conversation)?;
        let options = ChatOptions {
            tools: self.tools.map(chat::schemas).transpose()?,
            documents: self.documents.map(|given| chat::plain_list(given, "documents")).transpose()?,
            chat_template: self.chat_template.map(str::to_owned),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self
                .continue_final_message
                .map_or(Ok(None), chat::continue_final_message)?,
            chat_template_kwargs: chat::variables(kwargs.as_ref())?,
        };
        if encoding.is_empty() || !self.tokenize {
            return conversations.apply(py, templates, self.tokenize.then_some(tokenizer), &options);
        }
        let text = conversations.apply(py, templates, None, &options)?;
        py.import("rsgen._tokenizer")?.call_method1("chat_encoding", (of_python()?, text, encoding))
    }
}

#[guarded]
#[pymethods]
impl Tokenizer {
    /// Returns the prompt of a conversation by the model's chat template, as transformers does.
    ///
    /// The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
    /// they run in a sandbox with limits of time and memory.
    ///
    /// Args:
    ///     conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
    ///         conversations, which gives a list of prompts.
    ///     tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
    ///         and a docstring.
    ///     documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
    ///     chat_template (str | None): A template, or the name of one of the model's.
    ///     add_generation_prompt (bool): Ends with the words that begin a reply.
    ///     continue_final_message (bool | str): Leaves the final message open, to be continued. A
    ///         text names the field of the message to continue.
    ///     tokenize (bool): Returns token ids; False returns the text.
    ///     padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
    ///         are the next three.
    ///     truncation (bool | None): Cuts the prompts.
    ///     max_length (int | None): The length for `padding` and `truncation`.
    ///     return_tensors (Literal["np"] | None): "np" returns arrays.
    ///     return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
    ///         returns the ids alone.
    ///     **kwargs (Any): Further variables for the template.
    ///
    /// Returns:
    ///     Any: The token ids or the text, one for each conversation of a list; or an encoding.
    ///
    /// Raises:
    ///     InputError: The model has no chat template and none is given, or the template fails.
    ///     LoadError: Its files are damaged.
    ///
    /// Example:
    ///     >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    ///     >>> messages = [{"role": "user", "content": "Once upon a time"}]
    ///     >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
    #[pyo3(
        signature = (
            conversation, tools=None, documents=None, chat_template=None, add_generation_prompt=false,
            continue_final_message=None, tokenize=true, **kwargs
        ),
        text_signature = "($self, conversation, tools=None, documents=None, chat_template=None, \
                          add_generation_prompt=False, continue_final_message=False, tokenize=True, padding=False, truncation=None, max_length=None, return_tensors=None, return_dict=True, **kwargs)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they are transformers'")]
    fn apply_chat_template<'py>(
        slf: &Bound<'py, Self>,
        conversation: &Bound<'py, PyAny>,
        tools: Option<&Bound<'py, PyAny>>,
        documents: Option<&Bound<'py, PyAny>>,
        chat_template: Option<Text<'_>>,
        add_generation_prompt: bool,
        continue_final_message: Option<&Bound<'py, PyAny>>,
        tokenize: bool,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let kwargs = kwargs.map_or_else(|| Ok(PyDict::new(py)), PyDictMethods::copy)?;
        if !kwargs.contains("return_dict")? {
            kwargs.set_item("return_dict", true)?;
        }
        let given = Given {
            conversation,
            tools,
            documents,
            chat_template: chat_template.map(|template| template.0),
            add_generation_prompt,
            continue_final_message,
            tokenize,
            kwargs: Some(&kwargs),
        };
        let spoken = this.spoken();
        given.apply(py, this.templates(py)?, &|| Ok(&spoken), || Ok(slf.clone().unbind()))
    }
}
