//! Conversations: prompts from the model's chat template, and replies.

use super::{Call, Generator, Prompt, Prompts};
use crate::engine::{GenerationOutput, Interrupt, TokenStream};
use rsgen_core::{Result, TokenId};
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, ChatTemplates, Message};

/// The tokens reserved for a reply without a limit; at most a quarter of the context.
const REPLY_TOKENS: usize = 1024;

/// The prompt for a reply to a conversation, short enough to leave room for the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatPrompt {
    /// The conversation as the chat template renders it.
    pub text: String,
    /// Its tokens.
    pub token_ids: Vec<TokenId>,
    /// The number of oldest messages that were left out.
    pub num_left_out: usize,
}

impl Generator {
    /// Replies to a conversation, or continues its final message: see
    /// [`ChatOptions::continue_final_message`].
    ///
    /// Without any limit in `config` it goes on to the end of the sequence or of the model's context. When
    /// the context has no room for a reply, it leaves out the oldest turns and logs a warning: see
    /// [`Generator::fit_chat`].
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
    /// `Input` when the model has no chat template and none is given, or the template rejects the
    /// conversation; and as for [`Generator::generate`].
    pub fn chat(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        config: &GenerationConfig,
    ) -> Result<GenerationOutput> {
        let prepared = self
            .call_chat(vec![self.fit_chat(messages, options, config, &mut || false)?], config)
            .prepare(true, &mut || false)?;
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
        self.call_chat(vec![self.fit_chat(messages, options, config, &mut || false)?], config).stream()
    }

    /// A call that replies to conversations, for options that [`Generator::chat`] lacks: processors,
    /// criteria, an interrupt. It runs to the end of the context, unless `config` or `max_new_tokens` of the
    /// model's file limits it.
    pub fn call_chat(&self, prompts: Vec<ChatPrompt>, config: &GenerationConfig) -> Call<'_> {
        let most = self.config().max_position_embeddings;
        let left_out = prompts.iter().filter(|prompt| prompt.num_left_out > 0);
        let warnings = left_out.map(|prompt| {
            format!(
                "the conversation leaves no room for a reply in the model's context of {most} tokens: its {} oldest messages \
                 were left out",
                prompt.num_left_out
            )
        });
        let warnings = warnings.map(Into::into).collect();
        let mut prompts: Vec<Prompt> =
            prompts.into_iter().map(|prompt| Prompt::Ids(prompt.token_ids)).collect();
        let prompts = match (prompts.pop(), prompts.is_empty()) {
            (Some(prompt), true) => Prompts::One(prompt),
            (last, _) => Prompts::List(prompts.into_iter().chain(last).collect()),
        };
        self.call(prompts).config(config).chat(warnings)
    }

    /// The prompt for a reply to a conversation. Leaves out the oldest turns until the reply has room for
    /// `max_new_tokens`, up to half of the context, or for 1024 tokens, up to a quarter. A system message at
    /// the beginning stays, and so does the last turn. A turn is a message of the user and all that follow
    /// before the next. Ends when `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`]; `Input` when the model came without a tokenizer;
    /// `Cancelled`.
    pub fn fit_chat(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        config: &GenerationConfig,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<ChatPrompt> {
        let most = self.config().max_position_embeddings.min(self.cache_tokens());
        let most = most.min(config.max_length.unwrap_or(most));
        let reply = match config.max_new_tokens.or(self.generation_config().max_new_tokens) {
            Some(new) => new.min(most / 2),
            None => REPLY_TOKENS.min(most / 4),
        };
        let has_role =
            |message: &Message, role: &str| message.fields().get("role").is_some_and(|is| is == role);
        let first = usize::from(messages.first().is_some_and(|message| has_role(message, "system")));
        let later = messages.iter().enumerate().skip(first + 1);
        let turns = later.filter(|(_, message)| has_role(message, "user")).map(|(place, _)| place);
        // The turns that the conversation may begin with, after its system message.
        let begins: Vec<usize> = std::iter::once(first).chain(turns).collect();

        let options = for_reply(options);
        let mut prompt = |begin: usize| -> Result<ChatPrompt> {
            let messages = [&messages[..first], &messages[begin..]].concat();
            let text = self.apply_chat_template_interruptible(&messages, &options, interrupted)?;
            Self::check_memory(&text)?;
            let token_ids = self.tokenizer()?.encode_interruptible(&text, false, interrupted)?;
            Ok(ChatPrompt { text, token_ids, num_left_out: begin - first })
        };
        let whole = prompt(first)?;
        let fits = |prompt: &ChatPrompt| prompt.token_ids.len() + reply <= most;
        if fits(&whole) || begins.len() == 1 {
            return Ok(whole);
        }
        // The first turn that fits, or the last one.
        let (mut low, mut high) = (1, begins.len() - 1);
        let mut fitted = prompt(begins[high])?;
        while low < high {
            let middle = usize::midpoint(low, high);
            let candidate = prompt(begins[middle])?;
            if fits(&candidate) {
                (fitted, high) = (candidate, middle);
            } else {
                low = middle + 1;
            }
        }
        Ok(fitted)
    }

    /// The prompt for a reply to a conversation: ends with the generation prompt, unless the final message is
    /// continued.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`].
    pub fn chat_prompt(&self, messages: &[Message], options: &ChatOptions) -> Result<Prompt> {
        self.encode_chat(messages, &for_reply(options)).map(Prompt::Ids)
    }

    /// The token ids of a conversation. The template writes the special tokens; the tokenizer adds none.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`]; `Input` when the model came without a tokenizer.
    pub fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<TokenId>> {
        let tokenizer = self.tokenizer()?;
        let text = self.apply_chat_template(messages, options)?;
        Self::check_memory(&text)?;
        tokenizer.encode(&text, false)
    }

    /// Renders a conversation with a chat template.
    ///
    /// # Errors
    /// `Input` when the model has no chat template and none is given, or the template rejects the
    /// conversation.
    pub fn apply_chat_template(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        self.apply_chat_template_interruptible(messages, options, &mut || false)
    }

    /// [`Generator::apply_chat_template`], until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::apply_chat_template`], and `Cancelled`.
    pub fn apply_chat_template_interruptible(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<String> {
        self.chat_templates().apply_interruptible(messages, options, interrupted)
    }

    /// The chat templates that the model comes with.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.shared.chat_templates
    }
}

/// The options for a prompt that a reply follows.
fn for_reply(options: &ChatOptions) -> ChatOptions {
    let mut options = options.clone();
    options.add_generation_prompt = options.continue_final_message.is_none();
    options
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;
    use rsgen_core::{ErrorKind, FinishReason};

    fn conversation(turns: usize) -> Vec<Message> {
        let turn =
            |_| [Message::user("Tell me about the fox."), Message::assistant("The fox ran. ".repeat(12))];
        let last = Message::user("And then?");
        std::iter::once(Message::system("Be brief.")).chain((0..turns).flat_map(turn)).chain([last]).collect()
    }

    #[test]
    fn a_chat_ignores_max_length_of_the_model() {
        let generator = Generator::bundled().unwrap();
        assert_eq!(generator.generation_config().max_length, Some(256), "no limit of a conversation");
        let config = GenerationConfig::new().min_new_tokens(300);
        let mut messages = Vec::new();
        for _ in 0..4 {
            messages.push(Message::user("Tell me a story."));
            let reply = generator.chat(&messages, &ChatOptions::default(), &config).unwrap();
            assert!(reply.rows[0].generated.token_ids.len() > 100, "{reply}");
            messages.push(Message::assistant(reply.text()));
        }
        let limited = config.clone().max_new_tokens(3).min_new_tokens(0);
        let reply = generator.chat(&messages[..1], &ChatOptions::default(), &limited).unwrap();
        assert_eq!(reply.rows[0].generated.finish_reason, FinishReason::Length);
        assert_eq!(reply.usage.generated_tokens, 3, "a limit of the caller's holds");
    }

    #[test]
    fn the_fewest_oldest_turns_are_left_out() {
        let generator = Generator::bundled().unwrap();
        let template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";
        let options = ChatOptions { chat_template: Some(template.to_owned()), ..ChatOptions::default() };
        let config = GenerationConfig::new();
        let fit = |messages: &[Message], config: &GenerationConfig| {
            generator.fit_chat(messages, &options, config, &mut || false).unwrap()
        };
        assert_eq!(fit(&conversation(3), &config).num_left_out, 0);
        let messages = conversation(20);
        for (config, reply) in [
            (config.clone(), 128),
            (config.clone().max_new_tokens(30), 30),
            (config.max_new_tokens(999), 256),
        ] {
            let fitted = fit(&messages, &config);
            assert!(fitted.token_ids.len() + reply <= 512, "{}", fitted.token_ids.len());
            let kept = [&messages[..1], &messages[1 + fitted.num_left_out..]].concat();
            assert_eq!(fit(&kept, &config), ChatPrompt { num_left_out: 0, ..fitted.clone() });
            assert!(fitted.text.starts_with("system: Be brief.\nuser: "), "{}", fitted.text);
            let one_turn_more = [&messages[..1], &messages[fitted.num_left_out - 1..]].concat();
            assert_eq!(fit(&one_turn_more, &config).num_left_out, 2);
            let call = generator.call_chat(vec![fitted], &config).prepare(true, &mut || false).unwrap();
            assert!(call.warnings()[0].to_string().contains("oldest messages were left out"));
        }
    }

    #[test]
    fn a_last_turn_that_is_too_long_is_an_error() {
        let generator = Generator::bundled().unwrap();
        let messages = [Message::user("Hi."), Message::assistant("Hi."), Message::user("word ".repeat(600))];
        let error = generator.chat(&messages, &ChatOptions::default(), &GenerationConfig::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(!error.to_string().contains("max_length"), "{error}");
    }
}
