//! Chat templates: render a conversation as a prompt in the model's format, as transformers 5.23 does.
//!
//! A template is Jinja from the model's folder or from the caller, and is not trusted: see `jinja`. `choice`
//! selects one of the model's templates; `messages` prepares the messages.

mod choice;
mod messages;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use choice::ChatTemplates;
pub use messages::Message;

use super::jinja;
use rsgen_core::error::{Error, ErrorKind, Result};

/// Variables that the call itself sets.
const RESERVED: &str = "\
    messages tools documents add_generation_prompt continue_final_message chat_template conversation conversations";

/// A template with the special tokens that it may use. Clones share it.
///
/// ```
/// use rsgen_text::{ChatOptions, ChatTemplate, Message};
///
/// let template = ChatTemplate::from_source("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")?;
/// let prompt = template.render(&[Message::user("Hello!")], &ChatOptions::default())?;
/// assert_eq!(prompt, "[user] Hello!\n");
/// # Ok::<(), rsgen_core::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    /// The source, prepared for rendering.
    prepared: Arc<str>,
    /// `bos_token` and so on, with their texts.
    special_tokens: Arc<[(String, Value)]>,
}

/// How to render a conversation, with the names of transformers' `apply_chat_template`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatOptions {
    /// The tools that the model may call, each as a JSON schema.
    pub tools: Option<Vec<Value>>,
    /// Documents to answer from, each an object, usually with `title` and `text`.
    pub documents: Option<Vec<Value>>,
    /// A template, or the name of one of the model's; the model's default if `None`. A [`ChatTemplate`]
    /// ignores it.
    pub chat_template: Option<String>,
    /// Whether the prompt ends with the beginning of a reply.
    pub add_generation_prompt: bool,
    /// The field of the final message to be continued, usually `content`; the prompt ends within it.
    pub continue_final_message: Option<String>,
    /// More variables for the template, such as `enable_thinking`; they override special tokens of the same
    /// name.
    pub chat_template_kwargs: Map<String, Value>,
}

impl ChatTemplate {
    /// A template without special tokens.
    ///
    /// # Errors
    /// `Input` when it is longer than 256 KiB or cannot be read, with the line.
    pub fn from_source(source: impl Into<String>) -> Result<Self> {
        Self::with_special_tokens(source, std::iter::empty::<(&str, &str)>())
    }

    /// A template that may use special tokens: `bos_token`, `eos_token` and so on, with their texts.
    ///
    /// # Errors
    /// As for [`ChatTemplate::from_source`].
    pub fn with_special_tokens<'a>(
        source: impl Into<String>,
        special_tokens: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let source = source.into();
        let prepared = jinja::prepare(&source)?;
        let special_tokens =
            special_tokens.into_iter().map(|(name, token)| (name.to_owned(), Value::from(token)));
        Ok(Self { source: source.into(), prepared, special_tokens: special_tokens.collect() })
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt for a conversation.
    ///
    /// Time and memory are bounded, and grow with the conversation. A hostile template may take 10 seconds of
    /// processor time.
    ///
    /// # Errors
    /// `Input` when the conversation is empty, the options contradict each other, or the template raises an
    /// exception or cannot be rendered within its bounds.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        self.render_interruptible(messages, options, &mut || false)
    }

    /// [`ChatTemplate::render`], until `interrupted` returns true. It is polled every few milliseconds, on
    /// this thread.
    ///
    /// # Errors
    /// As for [`ChatTemplate::render`], and `Cancelled`.
    pub fn render_interruptible(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String> {
        if messages.is_empty() {
            return Err(Error::input("the conversation must have at least one message"));
        }
        if options.add_generation_prompt && options.continue_final_message.is_some() {
            return Err(Error::input(
                "goes on with the last message and `add_generation_prompt` begins a new one; set one of \
                 them",
            )
            .about("continue_final_message"));
        }
        if let Some(name) = RESERVED.split(' ').find(|name| options.chat_template_kwargs.contains_key(*name))
        {
            return Err(Error::input(
                "must not be among the variables of a chat template: it is an argument of its own",
            )
            .about(name));
        }
        if let Some(document) = options.documents.iter().flatten().find(|document| !document.is_object()) {
            return Err(Error::input(format!(
                "documents must be objects with `title` and `text`, got {}",
                messages::kind(document)
            )));
        }
        let mut messages = messages::normalized(messages);
        let marked = match &options.continue_final_message {
            Some(field) => Some(messages::mark_end(&mut messages, field, &self.source)?),
            None => None,
        };
        let without_content = messages::without_content(&messages);
        let messages = Value::Array(messages.into_iter().map(Value::Object).collect());
        let list = |values: &Option<Vec<Value>>| values.clone().map_or(Value::Null, Value::Array);
        let (tools, documents) = (list(&options.tools), list(&options.documents));
        let add_generation_prompt = Value::Bool(options.add_generation_prompt);
        let tokens = self.special_tokens.iter().map(|(name, token)| (name, token));
        let named = tokens.chain(&options.chat_template_kwargs).map(|(name, value)| (name.as_str(), value));
        let own = [
            ("messages", &messages),
            ("tools", &tools),
            ("documents", &documents),
            ("add_generation_prompt", &add_generation_prompt),
        ];
        let variables = named.chain(own).map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let rendered = jinja::render(Arc::clone(&self.prepared), variables, interrupted);
        let rendered = rendered.map_err(|error| match without_content {
            Some(index) if error.kind() == ErrorKind::Input => {
                error.context(format!("message {index} has no `content`; give it a text, \"\" for none"))
            }
            _ => error,
        })?;
        match marked {
            Some(marked) => marked.cut(rendered),
            None => Ok(rendered),
        }
    }
}
