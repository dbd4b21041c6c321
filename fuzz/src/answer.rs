//! The parsers of answers: thinking and calls of tools in any text, in any pieces.

use serde_json::json;

use super::split;
use rsgen_text::{
    ReasoningEvent, ReasoningForm, ReasoningParser, ToolCall, ToolEvent, ToolForm, ToolParser, Tools,
};

/// What marks alone do not say.
const WORDS: [&str; 24] = [
    "{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}",
    "{\"name\": \"weather\", ",
    "\"arguments\": {",
    "\"parameters\": ",
    "weather",
    "get_time",
    "(city='Bern')",
    "[weather(",
    ", days=3)]",
    "[{",
    "}]",
    "<parameter=city>\n",
    "\n</parameter>",
    "</function>",
    "```",
    "\\",
    "\"",
    "ü",
    "日本",
    " to=functions.",
    "commentary",
    "analysis",
    "Here is my",
    " \n",
];

/// How an answer is read: the forms, whether the prompt has begun the thinking, and the lengths of its pieces in
/// letters.
struct Reading {
    form: &'static ToolForm,
    thinking: &'static ReasoningForm,
    is_open: bool,
    lengths: Vec<usize>,
    tools: Tools,
}

/// Bytes that say how it is read; after a zero byte an answer: letters as they are, all others as marks and words.
pub fn answer(data: &[u8]) {
    let (settings, text) = split(data);
    let setting = |index: usize| usize::from(settings.get(index).copied().unwrap_or_default());
    let (forms, thoughts): (Vec<_>, Vec<_>) = (ToolForm::all().collect(), ReasoningForm::all().collect());
    let tool = |name: &str| {
        json!({ "type": "function", "function": { "name": name, "parameters": {
            "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
        } } })
    };
    let reading = Reading {
        form: forms[setting(0) % forms.len()],
        thinking: thoughts[setting(1) % thoughts.len()],
        is_open: setting(2) % 2 == 1,
        lengths: settings.iter().skip(3).map(|len| usize::from(*len).max(1)).chain([7]).collect(),
        tools: Tools::read(&["weather", "get_time"].map(tool)).expect("they are tools"),
    };
    let marks: Vec<&str> = reading.form.marks().chain(reading.thinking.marks()).chain(WORDS).collect();
    let mut answer = String::new();
    for &byte in text.iter().take(4096) {
        match byte {
            0..128 => answer.push(char::from(byte)),
            _ => answer.push_str(marks[usize::from(byte - 128) % marks.len()]),
        }
    }
    reading.check(&answer);
}

impl Reading {
    fn check(&self, answer: &str) {
        let whole = ReasoningParser::new(self.thinking, self.is_open).parse(answer);
        let mut parser = ReasoningParser::new(self.thinking, self.is_open);
        let mut events = Vec::new();
        self.pieces(answer, &mut |piece| events.extend(parser.push(piece)));
        events.extend(parser.finish());
        let mut found = (String::new(), String::new());
        for event in events {
            let (text, all) = match event {
                ReasoningEvent::Reasoning(text) => (text, &mut found.0),
                ReasoningEvent::Answer(text) => (text, &mut found.1),
                other => panic!("{other:?} is neither thinking nor answer"),
            };
            assert!(!text.is_empty(), "a part says nothing");
            all.push_str(&text);
        }
        assert_eq!(found, whole, "{}: {answer:?} in pieces", self.thinking.name);
        self.check_calls(answer);
        self.check_calls(&whole.1);
    }

    fn check_calls(&self, answer: &str) {
        let whole = ToolParser::new(self.form, &self.tools).parse(answer);
        let mut parser = ToolParser::new(self.form, &self.tools);
        let mut events = Vec::new();
        self.pieces(answer, &mut |piece| events.extend(parser.push(piece)));
        events.extend(parser.finish());
        let mut found: (String, Vec<ToolCall>) = Default::default();
        for event in events {
            match &event {
                ToolEvent::Begin { index, .. } => assert_eq!(*index, found.1.len(), "calls come in order"),
                ToolEvent::Arguments { index, .. } => {
                    assert_eq!(*index + 1, found.1.len(), "a name comes before its arguments");
                }
                ToolEvent::Text(text) => assert!(!text.is_empty(), "a part says nothing"),
                other => panic!("{other:?} is neither text nor call"),
            }
            event.add_to(&mut found.0, &mut found.1);
        }
        assert_eq!(found, whole, "{}: {answer:?} in pieces", self.form.name);
    }

    /// Hands over an answer in pieces of the lengths, in turns.
    fn pieces(&self, answer: &str, push: &mut dyn FnMut(&str)) {
        let mut letters = answer.chars().peekable();
        for len in self.lengths.iter().cycle() {
            if letters.peek().is_none() {
                return;
            }
            push(&letters.by_ref().take(*len).collect::<String>());
        }
    }
}
