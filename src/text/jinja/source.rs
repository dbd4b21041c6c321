//! Rewrites the source of a template for minijinja: the same statements, with expressions rewritten by `expression`.
//!
//! Tags keep their lines and their white space control. Where minijinja lacks a scope that Jinja has, a `with` makes
//! one; so does `{% generation %}`, transformers' own tag. Errors: statements that load other templates, and source
//! that the parser cannot handle or accepts although Jinja does not, such as long chains and open blocks.

use std::sync::LazyLock;

use regex::Regex;

use super::expression::Parser;
use super::lexer::{Kind, Tag, Token, tag};

/// The longest template that is read, in bytes.
const MAX_SOURCE_BYTES: usize = 256 << 10;
/// The most lines, and the most bytes of a line: the lexer counts them in 16 bits.
const MAX_LINES: usize = 60_000;
/// The most `elif` of one `if`.
const MAX_BRANCHES: usize = 200;
type Result<T> = std::result::Result<T, String>;

/// An open block.
struct Open<'s> {
    name: &'s str,
    line: usize,
    branches: usize,
}

/// The rewritten source, or a line and its error.
pub(super) fn prepare(source: &str) -> std::result::Result<String, (usize, String)> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err((0, format!("it may have at most {MAX_SOURCE_BYTES} bytes, found {}", source.len())));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(2 * source.len());
    let mut open: Vec<Open<'_>> = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < source.len() {
        let starts = source[at..].match_indices('{').map(|(index, _)| at + index);
        let is_tag = |start: &usize| source[*start + 1..].starts_with(['{', '%', '#']);
        let start = starts.into_iter().find(is_tag).unwrap_or(source.len());
        out.push_str(&source[at..start]);
        line += source[at..start].matches('\n').count();
        let end = match source.get(start..start + 2) {
            Some("{#") => {
                let end = source[start + 2..].find("#}").map(|end| start + end + 4);
                out.push_str(&source[start..end.unwrap_or(start)]);
                end.ok_or_else(|| "a comment has no `#}`".to_owned())
            }
            Some("{{") => printed(&source, start, &mut out),
            Some(_) => statement(&source, start, line, &mut open, &mut out),
            None => Ok(source.len()),
        };
        at = end.map_err(|message| (line, message))?;
        line += source[start..at].matches('\n').count();
    }
    if let Some(block) = open.last() {
        return Err((block.line, format!("`{}` has no end", block.name)));
    }
    if out.lines().map(str::len).max().unwrap_or(0).max(out.lines().count()) > MAX_LINES {
        return Err((0, format!("it may have at most {MAX_LINES} lines, each of at most {MAX_LINES} bytes")));
    }
    Ok(out)
}

fn printed(source: &str, start: usize, out: &mut String) -> Result<usize> {
    let tag = tag(source, start + 2, "}}")?;
    let value = Parser::new(&tag.tokens).all()?;
    let breaks = line_breaks(&source[start..tag.end], &value);
    out.extend(["{{", tag.open, " (", &value, ")", &breaks, " ", tag.close, "}}"]);
    Ok(tag.end)
}

fn statement<'s>(
    source: &'s str,
    start: usize,
    line: usize,
    open: &mut Vec<Open<'s>>,
    out: &mut String,
) -> Result<usize> {
    let tag = tag(source, start + 2, "%}")?;
    let Some((name, tokens)) = tag.tokens.split_first().filter(|(name, _)| name.kind == Kind::Name) else {
        return Err("a tag begins with the name of a statement".to_owned());
    };
    if name.text == "raw" && tokens.is_empty() {
        let end = raw_end(source, tag.end)?;
        out.push_str(&source[start..end]);
        return Ok(end);
    }
    let tags = match (name.text, tokens) {
        ("generation", []) => vec!["with".to_owned()],
        ("endgeneration", []) => vec!["endwith".to_owned()],
        ("endset" | "endfilter", []) => vec!["endwith".to_owned(), name.text.to_owned()],
        (
            "else" | "break" | "continue" | "endif" | "endfor" | "endmacro" | "endcall" | "endwith" | "with",
            [],
        ) => {
            vec![name.text.to_owned()]
        }
        ("if" | "elif" | "call" | "with", _) => vec![format!("{} {}", name.text, Parser::new(tokens).all()?)],
        ("for", _) => vec![for_loop(tokens)?],
        ("set", _) => set(tokens)?,
        ("macro", _) => macro_tags(tokens)?,
        ("filter", _) => vec![format!("filter {}", Parser::new(tokens).all()?), "with".to_owned()],
        (other, _) => return Err(format!("chat templates have no statement `{other}` like this")),
    };
    balance(open, name.text, name.text != "set" || tags.len() > 1, line)?;
    write_tags(&tag, &source[start..tag.end], &tags, out);
    Ok(tag.end)
}

/// Writes several tags in place of one, with its white space control at both ends.
fn write_tags(tag: &Tag<'_>, source: &str, tags: &[String], out: &mut String) {
    for (index, inside) in tags.iter().enumerate() {
        let open = if index == 0 { tag.open } else { "" };
        let is_last = index + 1 == tags.len();
        let close = if is_last { tag.close } else { "" };
        let breaks = if is_last { line_breaks(source, &tags.concat()) } else { String::new() };
        out.extend(["{%", open, " ", inside, &breaks, " ", close, "%}"]);
    }
}

/// The line breaks of a tag that are not in its rewritten inside: an error has the line where the tag begins.
fn line_breaks(source: &str, inside: &str) -> String {
    let count = |text: &str| text.matches('\n').count();
    "\n".repeat(count(source).saturating_sub(count(inside)))
}

/// Where the `endraw` of a `raw` ends.
fn raw_end(source: &str, start: usize) -> Result<usize> {
    static END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{%[-+]?\s*endraw\s*[-+]?%\}").ok());
    let end = END.as_ref().and_then(|end| end.find_at(source, start));
    end.map(|end| end.end()).ok_or_else(|| "`raw` has no end".to_owned())
}

/// Where one of these words or signs stands outside of brackets.
fn find(tokens: &[Token<'_>], words: &[&str]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += i32::from(["(", "[", "{"].contains(&token.text));
        depth -= i32::from([")", "]", "}"].contains(&token.text));
        depth == 0 && words.contains(&token.text)
    })
}

/// The names to assign to, as they stand.
fn target(tokens: &[Token<'_>]) -> Result<String> {
    if let Some(pair) = tokens.windows(2).find(|pair| pair[0].is(".") && pair[1].text.starts_with('_')) {
        return Err(format!("a namespace cannot have the attribute `{}`: rename it", pair[1].text));
    }
    Ok(tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" "))
}

fn for_loop(tokens: &[Token<'_>]) -> Result<String> {
    let at = find(tokens, &["in"]).ok_or("`for` has no `in`")?;
    let (names, tokens) = (target(&tokens[..at])?, &tokens[at + 1..]);
    let (values, rest) = tokens.split_at(find(tokens, &["if", "recursive"]).unwrap_or(tokens.len()));
    let rest = if rest.is_empty() { String::new() } else { Parser::new(rest).all()? };
    Ok(format!("for {names} in (({})|_iter){rest}", Parser::new(values).all()?))
}

fn set(tokens: &[Token<'_>]) -> Result<Vec<String>> {
    let Some(at) = find(tokens, &["="]) else {
        return Ok(vec![format!("set {}", Parser::new(tokens).all()?), "with".to_owned()]);
    };
    let (names, value) = (target(&tokens[..at])?, Parser::new(&tokens[at + 1..]).all()?);
    // The contents of a namespace outlive its scope.
    let store = if names.contains('.') { "|_store" } else { "" };
    Ok(vec![format!("set {names} = (({value}){store})")])
}

/// A macro. minijinja's default values cannot name other parameters, so those that name anything are set inside.
fn macro_tags(tokens: &[Token<'_>]) -> Result<Vec<String>> {
    let [name, open, parameters @ .., close] = tokens else {
        return Err("`macro` needs a name and `()`".to_owned());
    };
    let mut rest = parameters;
    let mut tags = vec![format!("macro {}{}", name.text, open.text)];
    while !rest.is_empty() {
        let (parameter, after) = rest.split_at(find(rest, &[","]).unwrap_or(rest.len()));
        rest = after.get(1..).unwrap_or_default();
        let mut head = Parser::new(parameter).all()?;
        if let [name, equals, default @ ..] = parameter
            && equals.is("=")
            && default.iter().any(|token| token.kind == Kind::Name)
        {
            name.text.clone_into(&mut head);
            let set = format!("set {head} = ({})", Parser::new(default).all()?);
            tags.extend([format!("if {head} is undefined"), set, "endif".to_owned()]);
        }
        tags[0].extend([&*head, ", "]);
    }
    tags[0] += close.text;
    Ok(tags)
}

/// Tracks the beginning or end of a block.
fn balance<'s>(open: &mut Vec<Open<'s>>, name: &'s str, is_open: bool, line: usize) -> Result<()> {
    match name {
        "break" | "continue" => {}
        "else" | "elif" => match open.last_mut().filter(|block| ["if", "for"].contains(&block.name)) {
            Some(block) if block.branches < MAX_BRANCHES => block.branches += 1,
            Some(_) => return Err(format!("an `if` may have at most {MAX_BRANCHES} `elif`")),
            None => return Err(format!("`{name}` belongs to no `if`")),
        },
        _ => match (name.strip_prefix("end"), open.last()) {
            (Some(block), Some(last)) if last.name == block => {
                open.pop();
            }
            (Some(_), Some(last)) => return Err(format!("expected `end{}`, found `{name}`", last.name)),
            (Some(_), None) => return Err(format!("`{name}` ends nothing")),
            (None, _) if is_open => open.push(Open { name, line, branches: 0 }),
            _ => {}
        },
    }
    Ok(())
}
