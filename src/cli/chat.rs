//! `rsgen chat`: replies to a conversation, turn by turn on a terminal, or from a pipe.

use std::io::{ErrorKind, IsTerminal, Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};

use super::Shell;
use super::args::{AssistantArguments, LoadingArguments, OutputArguments};
use super::chat_commands::{Next, obey};
use super::conversation::{Conversation, read_conversations};
use super::decoding::DecodingArguments;
use super::failure::Failure;
use super::generate::{Report, reply, summary};
use super::output::write_report;
use super::terminal::Terminal;
use super::{model, prompt, wording};
use crate::engine::{GenerationOutput, Interrupt};
use crate::generator::Generator;
use rsgen_core::files::open_regular;
use rsgen_core::{Error, FinishReason, Result as Outcome, escape};
use rsgen_generation::GenerationConfig;
use rsgen_text::{ChatOptions, Message};

const EXAMPLES: &str = "\
Examples:
  rsgen chat path/to/llama --system \"Answer in one sentence.\"
  rsgen chat -p \"Tell me a story about a fox and a kite.\"
  echo '[{\"role\": \"user\", \"content\": \"Hi!\"}]' | rsgen chat --json";

/// Talk with a model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ChatArguments {
    /// A folder, GGUF file or Hub id [default: bundled]
    #[arg(env = "RSGEN_MODEL")]
    model: Option<String>,

    /// Say this, and end with the reply
    #[arg(short, long, value_name = "TEXT", env = "RSGEN_PROMPT")]
    prompt: Option<String>,
    /// What the model is told first
    #[arg(long, value_name = "TEXT", env = "RSGEN_SYSTEM")]
    system: Option<String>,
    /// A Jinja template instead of the model's own
    #[arg(long, value_name = "FILE", env = "RSGEN_CHAT_TEMPLATE")]
    chat_template: Option<PathBuf>,

    #[command(flatten)]
    decoding: DecodingArguments,
    #[command(flatten)]
    assistant: AssistantArguments,
    #[command(flatten)]
    loading: LoadingArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// The model and options of a chat.
struct Session<'a> {
    generator: &'a Generator,
    config: GenerationConfig,
    json: bool,
    loading: Duration,
    terminal: &'a Terminal,
}

pub(super) fn run(arguments: &ChatArguments, shell: Shell<'_>) -> Result<(), Failure> {
    let Shell { bundled, terminal, interrupted, .. } = shell;
    let given = given(arguments)?;
    let options = ChatOptions {
        chat_template: template(arguments.chat_template.as_deref())?,
        ..ChatOptions::default()
    };

    let started = Instant::now();
    let (named, assistant) = (arguments.model.as_deref(), Some(&arguments.assistant));
    let generator = model::load(named, &arguments.loading, assistant, bundled, terminal)?;
    if arguments.model.is_none() && terminal.is_interactive {
        terminal.note(format!(
            "{} writes stories and is no chat model; name one, as in: rsgen chat HuggingFaceTB/SmolLM2-135M-Instruct",
            escape::name(generator.name())
        ));
    }
    let session = Session {
        generator: &generator,
        config: arguments.decoding.0.clone(),
        json: arguments.output.json,
        loading: started.elapsed(),
        terminal,
    };
    let Some(conversations) = given else {
        return session.talk(arguments.system.as_deref(), &options, interrupted);
    };
    // What the model or the option lacks is said once, and not of each conversation.
    let has_tools = conversations.iter().flatten().any(|conversation| conversation.options.tools.is_some());
    generator.chat_templates().choose(options.chat_template.as_deref(), has_tools)?;
    let (total, mut failed) = (conversations.len(), 0);
    for (index, conversation) in conversations.into_iter().enumerate() {
        let replied = conversation.map_err(Failure::from).and_then(|mut conversation| {
            conversation.add_system(arguments.system.as_deref())?;
            conversation.options.chat_template.clone_from(&options.chat_template);
            session.reply(&conversation, &session.config, interrupted)
        });
        match replied {
            Ok(_) => {}
            // The other ones go on.
            Err(Failure::Library(error))
                if total > 1 && error.kind() == rsgen_core::error::ErrorKind::Input =>
            {
                let error = error.of_prompt("conversation", index);
                terminal.error(error.kind().as_str(), wording::told(&error));
                failed += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    if failed > 0 {
        return Err(Error::input(format!("{failed} of {total} conversations failed")).into());
    }
    Ok(())
}

/// The conversations of the arguments or a pipe; `None` on a terminal.
fn given(arguments: &ChatArguments) -> Result<Option<Vec<Outcome<Conversation>>>, Failure> {
    let of = |text: String| Some(vec![Ok(Conversation::from(Message::user(text)))]);
    match &arguments.prompt {
        Some(text) if text != "-" => Ok(of(text.clone())),
        None if stdin().is_terminal() => Ok(None),
        _ if arguments.output.json => read_conversations(&prompt::read_stdin()?).map(Some),
        _ => prompt::read_text(None).map(of),
    }
}

/// The text of a template.
fn template(file: Option<&Path>) -> Result<Option<String>, Failure> {
    // Larger templates are an error anyway.
    const MAX_BYTES: u64 = 1 << 20;
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    let read = open_regular(file).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.map_err(|error| {
        Error::input(format!(": {} cannot be read", file.display())).about("chat_template").with_source(error)
    })?;
    Ok(Some(prompt::without_mark(text)))
}

impl Session<'_> {
    /// Writes the reply to a conversation, and returns the text of the first row.
    fn reply(
        &self,
        conversation: &Conversation,
        config: &GenerationConfig,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<String, Failure> {
        let prompt =
            self.generator.fit_chat(&conversation.messages, &conversation.options, config, interrupted)?;
        let text = prompt.text.clone();
        let prepared = self.generator.call_chat(vec![prompt], config).prepare(true, interrupted)?;
        let write = |output: &GenerationOutput| {
            write_report(
                &mut stdout().lock(),
                &Report::new(self.generator.name(), &text, output, self.loading),
            )
        };
        let write_json = self.json.then_some(&write as &dyn Fn(&_) -> _);
        let output = reply(prepared, String::new(), write_json, self.terminal, interrupted)?;
        if !self.json {
            let was_cut =
                output.rows.first().is_some_and(|row| row.generated.finish_reason == FinishReason::Length);
            if was_cut && config.max_new_tokens.is_none() && config.max_length.is_none() {
                let file = self.generator.generation_config_file();
                log::warn!("the reply was cut: the context is full, or the model's {file} limits it");
            }
            if self.terminal.is_interactive {
                self.terminal.note(summary(&output));
            }
        }
        Ok(output.text().to_owned())
    }

    /// Chats turn by turn: Ctrl-C ends a reply, Ctrl-D the conversation.
    fn talk(
        &self,
        system: Option<&str>,
        options: &ChatOptions,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(), Failure> {
        // Questions are read from the terminal, wherever the replies go.
        let editing = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let cannot_ask =
            |error: ReadlineError| Error::input("the terminal cannot be used").with_source(error);
        let mut editor: Editor<(), MemHistory> =
            Editor::with_history(editing, MemHistory::new()).map_err(cannot_ask)?;
        self.terminal.note("/help lists commands, Ctrl-C stops a reply, Ctrl-D ends the conversation");
        let mut conversation = Conversation { options: options.clone(), ..Conversation::default() };
        conversation.add_system(system)?;
        let mut config = self.config.clone();
        loop {
            let line = match editor.readline("> ") {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                // The conversation goes on.
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    self.terminal.error("input", "the line must be UTF-8; type it again");
                    continue;
                }
                Err(error) => return Err(cannot_ask(error).into()),
            };
            match obey(&line, &mut conversation, &mut config, self.terminal) {
                Next::Send => self.turn(&mut conversation, line, &config, interrupted)?,
                Next::Ask => {}
                Next::End => return Ok(()),
            }
            stdout().flush()?;
        }
    }

    /// One question with its reply. A question that fails is dropped, and the conversation goes on.
    fn turn(
        &self,
        conversation: &mut Conversation,
        line: String,
        config: &GenerationConfig,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(), Failure> {
        // Ignores a Ctrl-C from before the question.
        let _ = interrupted();
        conversation.messages.push(Message::user(line));
        match self.reply(conversation, config, interrupted) {
            Ok(said) => conversation.messages.push(Message::assistant(said)),
            Err(Failure::Interrupted) => {
                conversation.messages.pop();
                self.terminal.note("(stopped; the question is forgotten)");
            }
            Err(failure @ Failure::Library(_)) => {
                conversation.messages.pop();
                failure.report(self.terminal);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;

    fn session<'a>(
        generator: &'a Generator,
        terminal: &'a Terminal,
        config: GenerationConfig,
    ) -> Session<'a> {
        Session { generator, config, json: false, loading: Duration::ZERO, terminal }
    }

    fn roles(conversation: &Conversation) -> Vec<&str> {
        let role = |message: &'_ Message| message.fields()["role"].as_str().map(str::to_owned);
        let roles: Vec<String> = conversation.messages.iter().filter_map(role).collect();
        roles.into_iter().map(|role| if role == "user" { "user" } else { "assistant" }).collect()
    }

    #[test]
    fn a_turn_adds_question_and_reply() {
        let (generator, terminal) = (Generator::bundled().unwrap(), Terminal::new(false));
        let session = session(&generator, &terminal, GenerationConfig::new().max_new_tokens(3));
        let mut conversation = Conversation::default();
        for turns in 1..3 {
            session.turn(&mut conversation, "A fox?".to_owned(), &session.config, &mut || false).unwrap();
            assert_eq!(roles(&conversation), ["user", "assistant"].repeat(turns));
        }
    }

    #[test]
    fn a_stopped_reply_and_an_impossible_one_leave_the_conversation_as_it_was() {
        let (generator, terminal) = (Generator::bundled().unwrap(), Terminal::new(false));
        let session = session(&generator, &terminal, GenerationConfig::new().max_new_tokens(3));
        let mut conversation = Conversation::default();
        session.turn(&mut conversation, "A fox?".to_owned(), &session.config, &mut || true).unwrap();
        session.turn(&mut conversation, "word ".repeat(2000), &session.config, &mut || false).unwrap();
        assert_eq!(roles(&conversation), [""; 0]);
        let mut asked = 0;
        let mut early = || {
            asked += 1;
            asked == 1
        };
        session.turn(&mut conversation, "A fox?".to_owned(), &session.config, &mut early).unwrap();
        assert_eq!(roles(&conversation), ["user", "assistant"], "an old Ctrl-C does not count");
    }

    #[test]
    fn long_conversations_are_replied_to() {
        let (generator, terminal) = (Generator::bundled().unwrap(), Terminal::new(false));
        let session = session(&generator, &terminal, GenerationConfig::new());
        let mut conversation = Conversation::default();
        for turns in 1..=10 {
            session
                .turn(&mut conversation, "Tell me about a fox.".to_owned(), &session.config, &mut || false)
                .unwrap();
            assert_eq!(roles(&conversation).len(), 2 * turns);
        }
    }
}
