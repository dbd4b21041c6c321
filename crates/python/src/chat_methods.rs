//! The methods of `Generator` that take conversations.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{self, Arguments, Method};
use super::chat_template::Given;
use super::errors::guarded;
use super::generator::Generator;
use super::output::GenerationOutput;
use super::stream::TokenStream;
use super::walk::Text;

#[guarded]
#[pymethods]
impl Generator {
    /// Replies to a conversation.
    ///
    /// The model's chat template turns the conversation into a prompt, as `apply_chat_template()`
    /// does. Without any limit of length the reply goes on to an end-of-sequence token or the end
    /// of the model's context. All other arguments are those of `generate()`.
    ///
    /// Args:
    ///     messages (Conversation | Sequence[Conversation]): A list of messages, each a dict with
    ///         "role" and "content". A list of conversations is a list of independent prompts.
    ///     tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with
    ///         type hints and a docstring.
    ///     tool_choice (str | Mapping[str, Any]): "auto" leaves calls to the model, "none" shows it no tools,
    ///         "required" asks for a call, and a name, or OpenAI's object with it, for a call of that tool. A
    ///         grammar holds calls that are asked for to their schemas.
    ///     parallel_tool_calls (bool): Whether a call that is asked for may be several.
    ///     tool_parser (ToolParser | None): The form of calls in the model's text; None takes that of its template.
    ///     reasoning_parser (ReasoningParser | None): The form of its thinking; None takes that of its template.
    ///     run_tools (bool): Runs the tools, which are functions, and goes on with their results until a reply calls none.
    ///     max_tool_rounds (int): How often tools are run at most; the calls of a last reply are left to the caller.
    ///     documents (Sequence[Mapping[str, Any]] | None): Dicts, usually with "title" and "text".
    ///     chat_template (str | None): A Jinja template, or the name of one of the model's. None is
    ///         the model's own.
    ///     chat_template_kwargs (Mapping[str, Any] | None): Further variables for the template, such
    ///         as `{"enable_thinking": False}`.
    ///     continue_final_message (bool | str): Continues the final message instead of replying. A
    ///         text names the field of the message to continue.
    ///     streamer (Streamer | None): An object with `put(ids)` and `end()`: see `generate()`.
    ///     cache (KeptCache | Sequence[KeptCache] | None): The `cache` of the last reply: what the
    ///         conversation shares with it is not computed again.
    ///     past_key_values (KeptCache | Sequence[KeptCache] | None): Another name of `cache`.
    ///     return_cache (bool): Keeps the blocks of the reply for the next call: see `generate()`.
    ///     describe_output (bool): Writes the schema of the `output_type` at the end of the last message of the
    ///         user.
    ///     progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
    ///         conversations. A function is called with the number done, and of all.
    ///
    /// Returns:
    ///     GenerationOutput[_T]: The replies.
    ///
    /// Example:
    ///     >>> gen.chat([{"role": "user", "content": "Tell me a story about a fox."}]).text
    #[pyo3(
        signature = (messages, generation_config=None, **keywords),
        text_signature = "($self, messages, generation_config=None, *, tools=None, tool_choice='auto', parallel_tool_calls=True, \
                          tool_parser=None, reasoning_parser=None, run_tools=False, max_tool_rounds=8, documents=None, chat_template=None, \
                          chat_template_kwargs=None, continue_final_message=False, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, constraints=None, adapter=None, streamer=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, progress=None, **fields)"
    )]
    fn chat<'py>(
        slf: &Bound<'py, Self>,
        messages: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, GenerationOutput>> {
        let py = slf.py();
        if let Some(output) = Self::run_tools(slf, messages, generation_config, keywords)? {
            return Ok(output);
        }
        let method = Method { name: "chat", strategy: None, to_the_end: true };
        let arguments = Arguments { given: calls::Given::Chat(messages), generation_config, keywords };
        Bound::new(py, slf.get().run(py, &method, &arguments)?)
    }

    /// Replies to a conversation token by token: `chat()` as a stream.
    ///
    /// Takes the arguments of `chat()`, with one conversation. Leaving the loop ends the work.
    ///
    /// Args:
    ///     messages (Conversation): A list of messages, each a dict with "role" and "content".
    ///
    /// Returns:
    ///     TokenStream[_T]: An iterator of `StreamedToken`.
    ///
    /// Example:
    ///     >>> for token in gen.stream_chat([{"role": "user", "content": "Tell me a story."}]):
    ///     ...     print(token, end="", flush=True)
    #[pyo3(
        signature = (messages, generation_config=None, **keywords),
        text_signature = "($self, messages, generation_config=None, *, tools=None, tool_choice='auto', parallel_tool_calls=True, \
                          tool_parser=None, reasoning_parser=None, documents=None, chat_template=None, \
                          chat_template_kwargs=None, continue_final_message=False, logits_processor=None, \
                          prefix_allowed_tokens_fn=None, allowed_sequences=None, stopping_criteria=None, constraints=None, adapter=None, assistant_model=None, cache=None, past_key_values=None, return_cache=False, output_type=None, describe_output=False, **fields)"
    )]
    fn stream_chat<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<TokenStream>> {
        self.open_stream(
            py,
            "stream_chat",
            &Arguments { given: calls::Given::Chat(messages), generation_config, keywords },
        )
    }

    /// Returns the prompt of a conversation by a chat template, as transformers does.
    ///
    /// The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
    /// they run in a sandbox with limits of time and memory.
    ///
    /// Args:
    ///     conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
    ///         conversations, which gives a list of prompts.
    ///     add_generation_prompt (bool): Ends with the words that begin a reply.
    ///     continue_final_message (bool | str): Leaves the final message open, to be continued. A
    ///         text names the field of the message to continue.
    ///     tokenize (bool): Returns token ids; False returns the text.
    ///     padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
    ///         are the next three.
    ///     truncation (bool | None): Cuts the prompts.
    ///     max_length (int | None): The length for `padding` and `truncation`.
    ///     return_tensors (Literal["np"] | None): "np" returns arrays.
    ///     return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
    ///     **kwargs (Any): Further variables for the template.
    ///
    /// Returns:
    ///     Any: The token ids or the text, one for each conversation of a list; or an encoding.
    ///
    /// Raises:
    ///     InputError: The model has no chat template and none is given, or the template fails.
    #[pyo3(
        signature = (
            conversation, tools=None, documents=None, chat_template=None, add_generation_prompt=false,
            continue_final_message=None, tokenize=true, **kwargs
        ),
        text_signature = "($self, conversation, tools=None, documents=None, chat_template=None, \
                          add_generation_prompt=False, continue_final_message=False, tokenize=True, padding=False, truncation=None, max_length=None, return_tensors=None, return_dict=False, **kwargs)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they are transformers'")]
    fn apply_chat_template<'py>(
        &self,
        py: Python<'py>,
        conversation: &Bound<'py, PyAny>,
        tools: Option<&Bound<'py, PyAny>>,
        documents: Option<&Bound<'py, PyAny>>,
        chat_template: Option<Text<'_>>,
        add_generation_prompt: bool,
        continue_final_message: Option<&Bound<'py, PyAny>>,
        tokenize: bool,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        let given = Given {
            conversation,
            tools,
            documents,
            chat_template: chat_template.map(|template| template.0),
            add_generation_prompt,
            continue_final_message,
            tokenize,
            kwargs,
        };
        given.apply(py, inner.chat_templates(), &|| inner.tokenizer(), || self.tokenizer(py))
    }
}
