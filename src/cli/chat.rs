//! `rsgen chat`: replies to a conversation, on the terminal turn by turn, or of a pipe.

use std::fs;
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};

use super::args::{
    DecodingArguments, LoadingArguments, ModelArguments, NamedModelArguments, OutputArguments,
};
use super::conversation::{Conversation, read_conversations};
use super::failure::Failure;
use super::generate::{Report, read_to_end, summary, write_text};
use super::output::write_json;
use super::terminal::Terminal;
use super::{model, prompt};
use crate::engine::Interrupt;
use crate::error::Error;
use crate::generation::GenerationConfig;
use crate::generator::{Generator, Prompt};
use crate::text::{ChatOptions, Message};

const EXAMPLES: &str = "\
Examples:
  rsgen chat path/to/llama --system \"Answer in one sentence.\"
  rsgen chat -p \"Tell me a story about a fox and a kite.\"
  echo '[{\"role\": \"user\", \"content\": \"Hi!\"}]' | rsgen chat --json";

/// Talk with a model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ChatArguments {
    /// A folder or a Hub cache id [default: bundled]
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
    loading: LoadingArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// What a conversation goes on with.
struct Session<'a> {
    generator: &'a Generator,
    config: GenerationConfig,
    num_rows: usize,
    json: bool,
    loading: Duration,
    terminal: &'a Terminal,
}

pub(super) fn run(
    arguments: &ChatArguments,
    bundled: Option<&Path>,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<(), Failure> {
    let given = given(arguments)?;
    let options = ChatOptions {
        chat_template: template(arguments.chat_template.as_deref())?,
        ..ChatOptions::default()
    };

    let started = Instant::now();
    let generator = model::load(&arguments.model(), bundled, terminal)?;
    let config = arguments.decoding.generation_config();
    let session = Session {
        generator: &generator,
        num_rows: config.merged_over(generator.generation_config()).num_return_sequences.unwrap_or(1),
        config,
        json: arguments.output.json,
        loading: started.elapsed(),
        terminal,
    };
    let Some(conversations) = given else {
        return session.talk(arguments.system.as_deref(), &options, interrupted);
    };
    for mut conversation in conversations {
        conversation.tell(arguments.system.as_deref())?;
        conversation.options.chat_template.clone_from(&options.chat_template);
        session.reply(&conversation, interrupted)?;
    }
    Ok(())
}

impl ChatArguments {
    fn model(&self) -> ModelArguments {
        ModelArguments {
            named: NamedModelArguments { model: self.model.clone() },
            loading: self.loading.clone(),
        }
    }
}

/// The conversations of the arguments or of a pipe; none when somebody sits at the terminal.
fn given(arguments: &ChatArguments) -> Result<Option<Vec<Conversation>>, Failure> {
    let of = |text: String| Some(vec![Conversation::from(Message::user(text))]);
    match &arguments.prompt {
        Some(text) if text != "-" => Ok(of(text.clone())),
        None if stdin().is_terminal() => Ok(None),
        _ if arguments.output.json => read_conversations(&prompt::read_text(None)?).map(Some),
        _ => prompt::read_text(None).map(of),
    }
}

/// The text of a template.
fn template(file: Option<&Path>) -> Result<Option<String>, Failure> {
    // Larger templates are refused anyway.
    const MOST_BYTES: u64 = 1 << 20;
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    let read = fs::File::open(file).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    read.map_err(|error| {
        Error::input(format!("`chat_template`: {} cannot be read", file.display())).with_source(error)
    })?;
    Ok(Some(text))
}

impl Session<'_> {
    /// Writes the reply to a conversation, and returns what the first row says.
    fn reply(&self, conversation: &Conversation, interrupted: &mut Interrupt<'_>) -> Result<String, Failure> {
        let mut options = conversation.options.clone();
        options.add_generation_prompt = options.continue_final_message.is_none();
        let text = self.generator.apply_chat_template(&conversation.messages, &options)?;
        let ids = self.generator.tokenizer()?.encode(&text, false)?;
        let prepared = self.generator.call(Prompt::Ids(ids)).config(&self.config).prepare(true)?;
        for warning in prepared.warnings() {
            log::warn!("{warning}");
        }
        let mut stream = prepared.stream()?;
        let result = if self.json {
            let result = read_to_end(&mut stream, interrupted);
            if let (Ok(()) | Err(Failure::Interrupted), Some(output)) = (&result, stream.output()) {
                write_json(
                    &mut stdout().lock(),
                    &Report::new(self.generator.name(), &text, output, self.loading),
                )?;
            }
            result
        } else {
            write_text(&mut stream, String::new(), self.num_rows, self.terminal, interrupted)
        };
        let said = stream.output().map_or_else(String::new, |output| output.text().to_owned());
        match (result, stream.output()) {
            (Ok(()), output) => {
                if let (true, false, Some(output)) = (self.terminal.is_watched(), self.json, output) {
                    self.terminal.note(summary(output));
                }
                Ok(said)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Turn by turn: Ctrl-C ends a reply, Ctrl-D the conversation.
    fn talk(
        &self,
        system: Option<&str>,
        options: &ChatOptions,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(), Failure> {
        // Questions are asked on the terminal, wherever the replies go.
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let cannot_ask =
            |error: ReadlineError| Error::input("the terminal cannot be used").with_source(error);
        let mut editor: Editor<(), MemHistory> =
            Editor::with_history(config, MemHistory::new()).map_err(cannot_ask)?;
        self.terminal.note("Ctrl-C stops a reply, Ctrl-D ends the conversation");
        let mut conversation = Conversation { options: options.clone(), ..Conversation::default() };
        conversation.tell(system)?;
        loop {
            let line = match editor.readline("> ") {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(cannot_ask(error).into()),
            };
            self.turn(&mut conversation, line, interrupted)?;
            stdout().flush()?;
        }
    }

    /// One question with its reply. What cannot be replied to is forgotten, and the conversation goes on.
    fn turn(
        &self,
        conversation: &mut Conversation,
        line: String,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(), Failure> {
        // A Ctrl-C from before the question is not meant for the reply.
        let _ = interrupted();
        conversation.messages.push(Message::user(line));
        match self.reply(conversation, interrupted) {
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
        Session { generator, config, num_rows: 1, json: false, loading: Duration::ZERO, terminal }
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
            session.turn(&mut conversation, "A fox?".to_owned(), &mut || false).unwrap();
            assert_eq!(roles(&conversation), ["user", "assistant"].repeat(turns));
        }
    }

    #[test]
    fn a_stopped_reply_and_an_impossible_one_leave_the_conversation_as_it_was() {
        let (generator, terminal) = (Generator::bundled().unwrap(), Terminal::new(false));
        let session = session(&generator, &terminal, GenerationConfig::new().max_new_tokens(3));
        let mut conversation = Conversation::default();
        session.turn(&mut conversation, "A fox?".to_owned(), &mut || true).unwrap();
        session.turn(&mut conversation, "word ".repeat(2000), &mut || false).unwrap();
        assert_eq!(roles(&conversation), [""; 0]);
        let mut asked = 0;
        let mut early = || {
            asked += 1;
            asked == 1
        };
        session.turn(&mut conversation, "A fox?".to_owned(), &mut early).unwrap();
        assert_eq!(roles(&conversation), ["user", "assistant"], "an old Ctrl-C does not count");
    }
}
