//! The texts that are calls, as a grammar in the notation of Lark: what is held to it has names of tools and
//! arguments that follow their schemas.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::forms::{Arguments, ToolForm, Writes};
use super::tools::Tools;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;

/// Whether an answer calls tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// It calls none, and is not shown any.
    None,
    /// It calls at least one.
    Required,
    /// It calls the tool of this name.
    Named(String),
}

/// The id of the token of a text: of a special one, or of any.
pub struct Tokens<'a> {
    /// Of a special token.
    pub special: &'a dyn Fn(&str) -> Option<TokenId>,
    /// Of any token.
    pub any: &'a dyn Fn(&str) -> Option<TokenId>,
}

impl ToolForm {
    /// The grammar that holds an answer to calls of these tools, one or, with `parallel`, several. Where the
    /// model chooses, it holds calls from the mark that begins one; `None` for a form without such a mark.
    ///
    /// # Errors
    /// `Input` when there are no tools, or none of the name.
    pub fn grammar(
        &self,
        tools: &Tools,
        choice: &ToolChoice,
        parallel: bool,
        tokens: &Tokens<'_>,
    ) -> Result<Option<String>> {
        let is_chosen = |name: &str| match choice {
            ToolChoice::Named(chosen) => name == chosen,
            _ => true,
        };
        let chosen: Vec<_> = tools.iter().filter(|(name, _)| is_chosen(name)).collect();
        match choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Auto if chosen.is_empty() => return Ok(None),
            _ if !chosen.is_empty() => {}
            _ => {
                let names: Vec<&str> = tools.names().collect();
                let rule = match choice {
                    ToolChoice::Named(name) if !names.is_empty() => {
                        format!("must name one of the tools {}, but names {name:?}", names.join(", "))
                    }
                    _ => "asks for a call, but there are no tools; give some, or leave it out".to_owned(),
                };
                return Err(Error::input(rule).about("tool_choice"));
            }
        }
        let Writes { begin, end, between, .. } = &self.writes;
        let mut marks: Vec<&str> = self.marks().collect();
        marks.sort_by_key(|mark| std::cmp::Reverse(mark.len()));
        let literal = |text: &str| literal(text, &marks, tokens.special);
        let is_several = parallel && !matches!(choice, ToolChoice::Named(_));
        let more = if is_several { format!(" ({} call)*", literal(between)) } else { String::new() };
        let mut lark = String::new();
        if *choice == ToolChoice::Auto {
            let Some((trigger, skipped)) = self.trigger(tokens) else { return Ok(None) };
            // What a mark of its own begins needs nothing between.
            let more = if skipped > begin.len() { "" } else { &more };
            let section = format!("first{more} {}", literal(end));
            // What else the mark may begin: the heads of messages that are no calls.
            let others: Vec<String> =
                self.dropped.iter().filter_map(|mark| Some(literal(mark.strip_prefix(trigger)?))).collect();
            let (all, once) = if let (Some(id), false) = ((tokens.any)(trigger), others.is_empty()) {
                let free = format!("<[^{id}]> | <[{id}]> ({})", others.join(" | "));
                (format!("({free} | <[{id}]> {section})*"), format!("({free})* (<[{id}]> {section})?"))
            } else if let Some(id) = (tokens.any)(trigger) {
                (format!("(<[^{id}]> | <[{id}]> {section})*"), format!("<[^{id}]>* (<[{id}]> {section})?"))
            } else {
                let section = [&[section], &others[..]].concat().join(" | ");
                let section = if others.is_empty() { section } else { format!("({section})") };
                let _ = writeln!(lark, "TEXT: /(.|\\n)*/\ntrigger[lazy]: /(.|\\n)*{}/", escaped(trigger));
                (format!("(trigger {section})* TEXT"), format!("trigger {section} | TEXT"))
            };
            let start = format!("start: {}\n", if is_several { all } else { once });
            lark.insert_str(0, &start);
            self.write_calls(&mut lark, "first", &chosen, &literal, skipped);
        } else {
            let _ = writeln!(lark, "start: {} call{more} {}", literal(begin), literal(end));
        }
        self.write_calls(&mut lark, "call", &chosen, &literal, begin.len());
        if lark.contains("RAW_TEXT") {
            lark.push_str("RAW_TEXT: /([^<]|<[^\\/])+/\n");
        }
        Ok(Some(lark))
    }

    /// The mark that begins calls in a free text, and the length of what it leaves out of their beginning.
    fn trigger(&self, tokens: &Tokens<'_>) -> Option<(&'static str, usize)> {
        let text = format!("{}{}", self.writes.begin, self.writes.call[0]);
        let written = self.marks().filter_map(|mark| Some((text.find(mark)?, mark))).min();
        if let Some((at, mark)) = written {
            return Some((mark, at + mark.len()));
        }
        // A block of code may be anything.
        let mark = self.marks.first()?.0;
        (tokens.special)(mark).map(|_| (mark, 0))
    }

    /// Writes a rule for a call of each tool, without the first bytes of what comes before its name.
    fn write_calls(
        &self,
        lark: &mut String,
        rule: &str,
        tools: &[(&str, &Value)],
        literal: &dyn Fn(&str) -> String,
        skipped: usize,
    ) {
        let Writes { begin, call: [before, middle, after], arguments, .. } = &self.writes;
        let before = &format!("{begin}{before}")[skipped..];
        let names: Vec<String> = (0..tools.len()).map(|index| format!("{rule}_{index}")).collect();
        let _ = writeln!(lark, "{rule}: {}", names.join(" | "));
        for (rule, (name, schema)) in names.iter().zip(tools) {
            let name = Value::from(*name).to_string();
            let head = format!("{before}{}{middle}", &name[1..name.len() - 1]);
            let held = match arguments {
                Arguments::Json => format!("%json {}", closed(schema)),
                Arguments::Xml => members(schema, "<parameter={}>\n", "\n</parameter>\n", ""),
                Arguments::Python => members(schema, "{}=", "", ", "),
            };
            let _ = writeln!(lark, "{rule}: {} {held} {}", literal(&head), literal(after));
        }
    }
}

/// A text as a regular expression in Lark.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if "\\.+*?()|[]{}^$#&-~/".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// A text in the notation of Lark, with special tokens by their ids.
fn literal(text: &str, marks: &[&str], special: &dyn Fn(&str) -> Option<TokenId>) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    let found = marks.iter().filter_map(|mark| Some((text.find(mark)?, *mark, special(mark)?)));
    match found.min_by_key(|(at, ..)| *at) {
        Some((at, mark, id)) => {
            let around = [&text[..at], &text[at + mark.len()..]].map(|text| literal(text, marks, special));
            format!("{} <[{id}]> {}", around[0], around[1])
        }
        None => Value::from(text).to_string(),
    }
}

/// The schema of parameters, which are an object whatever it says, with the listed properties alone where it
/// does not say otherwise.
fn closed(schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    let is_plain = !["$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| schema.contains_key(*key));
    if is_plain && schema.get("properties").is_some_and(Value::is_object) {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    Value::Object(schema)
}

/// The properties of an object one after the other, each between texts; those that need not be may be left out.
fn members(schema: &Value, before: &str, after: &str, between: &str) -> String {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let quoted = |text: &str| Value::from(text).to_string();
    // The needed ones come first, so that what stands between them is known.
    let (needed, others): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| required.contains(&name.as_str()));
    let member = |(name, property): (&String, &Value)| {
        let value = value(property, schema, between.is_empty());
        format!("{} {value} {}", quoted(&before.replace("{}", name)), quoted(after))
    };
    let separator = quoted(between);
    let all: Vec<String> = needed.iter().copied().map(member).collect();
    let mut lark = all.join(&format!(" {separator} "));
    let others: Vec<String> = others.into_iter().map(member).collect();
    let optional: Vec<String> = others.iter().map(|other| format!(" ({separator} {other})?")).collect();
    let rest = |from: usize| optional[from..].concat();
    if !needed.is_empty() {
        lark.push_str(&rest(0));
    } else if !others.is_empty() {
        let begun = others.iter().enumerate().map(|(index, other)| format!("{other}{}", rest(index + 1)));
        lark = format!("({})?", begun.collect::<Vec<_>>().join(" | "));
    }
    if lark.is_empty() { quoted("") } else { lark }
}

/// The value of a property: JSON, or where `is_raw` the letters of a text.
fn value(property: &Value, schema: &Value, is_raw: bool) -> String {
    let texts =
        property.get("enum").and_then(Value::as_array).filter(|texts| texts.iter().all(Value::is_string));
    match texts {
        Some(texts) if is_raw && !texts.is_empty() => {
            let texts: Vec<String> = texts.iter().map(Value::to_string).collect();
            return format!("({})", texts.join(" | "));
        }
        _ if is_raw && property.get("type").is_some_and(|kind| kind == "string") => {
            return "RAW_TEXT".to_owned();
        }
        _ => {}
    }
    let mut property = property.clone();
    if let (Some(object), Some(definitions)) = (property.as_object_mut(), schema.get("$defs")) {
        object.insert("$defs".to_owned(), definitions.clone());
    }
    format!("%json {property}")
}
