//! Conversations: their prompts by the model's chat template, and replies to them.

use super::{Generator, Prompt};
use crate::engine::{GenerationOutput, TokenStream};
use crate::error::Result;
use crate::generation::GenerationConfig;
use crate::text::{ChatOptions, ChatTemplates, Message};
use crate::types::TokenId;

impl Generator {
    /// Replies to a conversation, or continues its final message: see [`ChatOptions::continue_final_message`].
    ///
    /// Without any limit it goes on to the end of the sequence or of the model's context.
    ///
    /// ```no_run
    /// use rsgen::{ChatOptions, GenerationConfig, Generator, Message};
    ///
    /// let generator = Generator::open("path/to/chat-model")?;
    /// let conversation = [Message::system("Be brief."), Message::user("What is a llama?")];
    /// let reply = generator.chat(&conversation, &ChatOptions::default(), &GenerationConfig::new())?;
    /// println!("{}", reply.text());
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Input` when the model has no chat template and none is given, or the template does not take the conversation;
    /// and as for [`Generator::generate`].
    pub fn chat(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        let prepared = self.call(self.chat_prompt(messages, options)?).config(config).prepare(true)?;
        prepared.log_warnings();
        prepared.run(&mut || false)
    }

    /// Replies to a conversation token by token.
    ///
    /// # Errors
    /// As for [`Generator::chat`] and [`Generator::stream`].
    pub fn stream_chat(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        config: &GenerationConfig,
    ) -> Result<TokenStream> {
        self.stream(self.chat_prompt(messages, options)?, config)
    }

    /// The prompt for a reply to a conversation: with the words that begin a reply, unless the final message is
    /// continued.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`].
    pub fn chat_prompt(&self, messages: &[Message], options: &ChatOptions) -> Result<Prompt> {
        let mut options = options.clone();
        options.add_generation_prompt = options.continue_final_message.is_none();
        self.encode_chat(messages, &options).map(Prompt::Ids)
    }

    /// The token ids of a conversation. The template writes the special tokens; the tokenizer adds none.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`]; `Input` when the model came without a tokenizer.
    pub fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<TokenId>> {
        let tokenizer = self.tokenizer()?;
        tokenizer.encode(&self.apply_chat_template(messages, options)?, false)
    }

    /// The text of a conversation by a chat template.
    ///
    /// # Errors
    /// `Input` when the model has no chat template and none is given, or the template does not take the conversation.
    pub fn apply_chat_template(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let templates = self.chat_templates();
        let template = templates.choose(options.chat_template.as_deref(), options.tools.is_some())?;
        template.render(messages, options)
    }

    /// The chat templates that the model comes with.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.shared.chat_templates
    }
}
