//! The tools of a conversation: the form in which the model calls them, the grammar that holds it to them, and
//! the calls in its answers.

use std::sync::Arc;

use super::Generator;
use crate::engine::Interrupt;
use rsgen_core::error::{Error, ErrorKind, Result};
use rsgen_core::types::TokenId;
use rsgen_generation::GenerationConfig;
use rsgen_text::{
    ChatOptions, ChatTemplate, Message, Tokenizer, ToolChoice, ToolForm, ToolParser, ToolTokens, Tools,
};
use serde_json::json;

/// The name of a tool that tells whether a template shows tools.
const PROBE: &str = "rsgen_probe";

/// How a model calls the tools of a conversation. Clones share it.
#[derive(Debug, Clone)]
pub struct ToolUse {
    form: &'static ToolForm,
    tools: Tools,
    tokenizer: Tokenizer,
    /// The special tokens that calls are written with.
    kept: Arc<[TokenId]>,
}

impl Generator {
    /// How the model calls the tools of a conversation; `None` if it has none. The form is that of the chat
    /// template, or `parser` by its name.
    ///
    /// # Errors
    /// `Input` when a tool is not one, the template does not show tools, or there is no parser of the name.
    pub fn tool_use(
        &self,
        options: &ChatOptions,
        parser: Option<&str>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Option<ToolUse>> {
        let named = parser.map(ToolForm::named).transpose()?;
        let Some(given) = options.tools.as_ref().filter(|tools| !tools.is_empty()) else { return Ok(None) };
        let tools = Tools::read(given)?;
        let template = self.chat_templates().choose(options.chat_template.as_deref(), true)?;
        if !shows_tools(&template, options, interrupted)? {
            return Err(Error::input(
                ": the chat template does not show tools to the model; leave them out, or give a template that does",
            )
            .about("tools"));
        }
        let form = named.unwrap_or_else(|| ToolForm::of_template(template.source()));
        let tokenizer = self.tokenizer()?.clone();
        let kept = form.marks().filter_map(|mark| special(&tokenizer, mark)).collect();
        Ok(Some(ToolUse { form, tools, tokenizer, kept }))
    }
}

impl Generator {
    /// The grammar that holds an answer to the calls of a choice. Where the model chooses, it holds calls from
    /// their mark on; `None` if they have none. A tool whose schema no grammar can follow then takes any
    /// arguments.
    ///
    /// # Errors
    /// `Input` for a tool that there is not, and for one that has to be called whose schema cannot be
    /// followed; `Cancelled`.
    pub fn tool_grammar(
        &self,
        tools: &ToolUse,
        choice: &ToolChoice,
        parallel: bool,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Option<String>> {
        let Some(whole) = tools.grammar(&tools.tools, choice, parallel)? else { return Ok(None) };
        let mut compile = |grammar: &str| {
            let config = GenerationConfig::new().grammar(grammar);
            let vocab_size = self.engine().model().vocab_size();
            self.shared.grammars.prepare(&config, self.shared.vocabulary.as_ref(), vocab_size, interrupted)
        };
        let Err(refused) = compile(&whole) else { return Ok(Some(whole)) };
        if refused.kind() != ErrorKind::Config {
            return Err(refused);
        }
        let mut wrong = None;
        let loosened = tools.tools.loosened(&mut |name| {
            let alone = tools.grammar(&tools.tools, &ToolChoice::Named(name.to_owned()), false);
            let why = alone.and_then(|alone| compile(&alone.unwrap_or_default())).err();
            let is_right = why.is_none();
            wrong = wrong.take().or(why.map(|why| (name.to_owned(), why)));
            is_right
        });
        if *choice == ToolChoice::Auto {
            return tools.grammar(&loosened, choice, parallel);
        }
        let (name, why) =
            wrong.map_or_else(|| (String::new(), refused), |(name, why)| (format!(" of {name:?}"), why));
        Err(Error::input(format!(": the parameters{name} cannot be held to their schema: {why}"))
            .about("tools"))
    }
}

/// Whether a template shows tools, which it may not use at all. One that cannot say is believed.
fn shows_tools(
    template: &ChatTemplate,
    options: &ChatOptions,
    interrupted: &mut Interrupt<'_>,
) -> Result<bool> {
    if !template.source().contains("tools") {
        return Ok(false);
    }
    let parameters = json!({ "type": "object", "properties": {} });
    let function = json!({ "name": PROBE, "description": PROBE, "parameters": parameters });
    let options = ChatOptions {
        tools: Some(vec![json!({ "type": "function", "function": function })]),
        chat_template: None,
        continue_final_message: None,
        add_generation_prompt: true,
        ..options.clone()
    };
    match template.render_interruptible(&[Message::user("?")], &options, interrupted) {
        Ok(text) => Ok(text.contains(PROBE)),
        Err(error) if error.kind() == ErrorKind::Input => Ok(true),
        Err(error) => Err(error),
    }
}

/// The special token of a text.
fn special(tokenizer: &Tokenizer, text: &str) -> Option<TokenId> {
    tokenizer.id(text).filter(|&id| tokenizer.is_special(id))
}

impl ToolUse {
    /// The special tokens that are part of an answer's text.
    #[must_use]
    pub fn kept_tokens(&self) -> &Arc<[TokenId]> {
        &self.kept
    }

    /// What finds the calls in an answer.
    #[must_use]
    pub fn parser(&self) -> ToolParser {
        ToolParser::new(self.form, &self.tools)
    }

    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn grammar(&self, tools: &Tools, choice: &ToolChoice, parallel: bool) -> Result<Option<String>> {
        let tokens = ToolTokens {
            special: &|mark| special(&self.tokenizer, mark),
            any: &|mark| self.tokenizer.id(mark).filter(|&id| self.tokenizer.token(id) == Some(mark)),
        };
        self.form.grammar(tools, choice, parallel, &tokens)
    }
}
