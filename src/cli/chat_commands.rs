//! The commands of a chat: lines that begin with a slash.

use super::conversation::Conversation;
use super::terminal::Terminal;
use rsgen_core::escape;
use rsgen_generation::{GenerationConfig, OneOrMany};

/// The text of `/help`.
const HELP: &str = "\
/clear          forget the conversation, not what the model was told first
/system [TEXT]  tell the model something first, or nothing
/seed [N]       draw from this seed, or from a new one each time
/help           show this
/exit, /quit    end, as Ctrl-D does
Ctrl-C stops a reply. To send a text that begins with a slash, put a space before it.";

/// The result of handling a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The line is a message to the model.
    Send,
    /// The line was a command, which has run.
    Ask,
    /// The line ends the conversation.
    End,
}

/// Runs a line if it is a command. An unknown command is never sent to the model.
pub(super) fn obey(
    line: &str,
    conversation: &mut Conversation,
    config: &mut GenerationConfig,
    terminal: &Terminal,
) -> Next {
    let Some(command) = line.strip_prefix('/') else { return Next::Send };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
    match (name, rest) {
        ("exit" | "quit", None) => return Next::End,
        ("help", None) => terminal.note(HELP),
        ("clear", None) => {
            conversation.clear();
            terminal.note("(the conversation is forgotten)");
        }
        ("system", text) => {
            conversation.set_system(text);
            terminal.note(if text.is_some() { "(told)" } else { "(the model is told nothing first)" });
        }
        ("seed", None) => {
            config.seed = None;
            terminal.note("(each reply has a new seed)");
        }
        ("seed", Some(number)) => match number.parse() {
            Ok(seed) => {
                config.seed = Some(OneOrMany::One(seed));
                let off = if config.do_sample == Some(true) {
                    ""
                } else {
                    "; without --do-sample nothing is drawn"
                };
                terminal.note(format!("(the seed is {seed}{off})"));
            }
            Err(_) => {
                terminal
                    .note(format!("a seed must be an integer of 0 or more, got {}", escape::name(number)));
            }
        },
        _ => terminal.note(format!("there is no command {}; /help lists them", escape::name(line))),
    }
    Next::Ask
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_text::Message;

    #[test]
    fn commands_change_the_conversation_and_are_never_sent() {
        let (terminal, mut config) = (Terminal::new(false), GenerationConfig::new());
        let mut conversation = Conversation::from(Message::user("a"));
        let mut obey = |line: &str, conversation: &mut Conversation| {
            (obey(line, conversation, &mut config, &terminal), config.seed.clone())
        };
        for (line, next) in [
            ("hello", Next::Send),
            (" /exit", Next::Send),
            ("/exit", Next::End),
            ("/quit", Next::End),
            ("/help", Next::Ask),
            ("/exit now", Next::Ask),
            ("/frobnicate", Next::Ask),
            ("/seed many", Next::Ask),
        ] {
            assert_eq!(obey(line, &mut conversation), (next, None), "{line}");
            assert_eq!(conversation.messages, [Message::user("a")], "{line}");
        }
        obey("/system Be brief.", &mut conversation);
        obey("/system  Be long. ", &mut conversation);
        assert_eq!(conversation.messages, [Message::system("Be long."), Message::user("a")]);
        obey("/clear", &mut conversation);
        assert_eq!(conversation.messages, [Message::system("Be long.")]);
        obey("/system", &mut conversation);
        assert_eq!(conversation.messages, []);
        assert_eq!(obey("/seed 7", &mut conversation), (Next::Ask, Some(OneOrMany::One(7))));
        assert_eq!(obey("/seed", &mut conversation), (Next::Ask, None));
    }
}
