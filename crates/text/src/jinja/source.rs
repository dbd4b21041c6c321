//! Rewrites the source of a template for minijinja: the same statements, with expressions rewritten by
//! `expression`.
//!
//! Tags keep their lines and their white space control. Where minijinja lacks a scope that Jinja has, a
//! `with` makes one; so does `{% generation %}`, transformers' own tag. Errors: statements that load other
//! templates, and source that the parser cannot handle or accepts although Jinja does not, such as long
//! chains and open blocks.

use std::sync::LazyLock;

use fancy_regex::Regex;

use super::expression::Parser;
use super::lexer::{Tag, is_name, tag};

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
    start: usize,
    branches: usize,
}

/// The rewritten source, or a line and its error.
pub(super) fn prepare(source: &str) -> std::result::Result<String, (usize, String)> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err((0, format!("it may have at most {MAX_SOURCE_BYTES} bytes, found {}", source.len())));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let line = |at: usize| source[..at].matches('\n').count() + 1;
    let mut out = String::with_capacity(2 * source.len());
    let (mut open, mut at) = (Vec::new(), 0);
    while at < source.len() {
        let mut starts = source[at..].match_indices('{').map(|(index, _)| at + index);
        let is_tag = |start: &usize| source[*start + 1..].starts_with(['{', '%', '#']);
        let start = starts.find(is_tag).unwrap_or(source.len());
        out.push_str(&source[at..start]);
        let end = match source.get(start..start + 2) {
            Some("{#") => {
                let end = source[start + 2..].find("#}").map(|end| start + end + 4);
                out.push_str(&source[start..end.unwrap_or(start)]);
                end.ok_or_else(|| "a comment has no `#}`".to_owned())
            }
            Some("{{") => tag(&source, start + 2, "}}").and_then(|tag| {
                let value = Parser::all(&tag.tokens)?;
                write(&tag, &source[start..tag.end], ["{{", "}}"], &[format!("({value})")], &mut out);
                Ok(tag.end)
            }),
            Some(_) => statement(&source, start, &mut open, &mut out),
            None => Ok(source.len()),
        };
        at = end.map_err(|message| (line(start), message))?;
    }
    if let Some(block) = open.last() {
        return Err((line(block.start), format!("`{}` has no end", block.name)));
    }
    if out.lines().map(str::len).max().unwrap_or(0).max(out.lines().count()) > MAX_LINES {
        return Err((0, format!("it may have at most {MAX_LINES} lines, each of at most {MAX_LINES} bytes")));
    }
    Ok(out)
}

fn statement<'s>(source: &'s str, start: usize, open: &mut Vec<Open<'s>>, out: &mut String) -> Result<usize> {
    let tag = tag(source, start + 2, "%}")?;
    let Some((&name, tokens)) = tag.tokens.split_first().filter(|(name, _)| is_name(name)) else {
        return Err("a tag begins with the name of a statement".to_owned());
    };
    if name == "raw" && tokens.is_empty() {
        static END: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\{%[-+]?\s*endraw\s*[-+]?%\}").ok());
        let end = END
            .as_ref()
            .and_then(|end| end.find_from_pos(source, tag.end).ok()?)
            .ok_or("`raw` has no end")?
            .end();
        out.push_str(&source[start..end]);
        return Ok(end);
    }
    let tags = match (name, tokens) {
        ("generation", []) => vec!["with".to_owned()],
        ("endgeneration", []) => vec!["endwith".to_owned()],
        ("endset" | "endfilter", []) => vec!["endwith".to_owned(), name.to_owned()],
        (
            "else" | "break" | "continue" | "endif" | "endfor" | "endmacro" | "endcall" | "endwith"
            | "endautoescape" | "with",
            [],
        ) => vec![name.to_owned()],
        ("call", ["(", ..]) => {
            let at = find(tokens, &[")"]).map_or(tokens.len(), |at| at + 1);
            vec![format!("call {} {}", tokens[..at].join(" "), Parser::all(&tokens[at..])?)]
        }
        ("if" | "elif" | "call" | "with" | "autoescape", _) => {
            vec![format!("{name} {}", Parser::all(tokens)?)]
        }
        ("for", _) => vec![for_loop(tokens)?],
        ("set", _) => set(tokens)?,
        ("macro", _) => macro_tags(tokens)?,
        ("filter", _) => vec![format!("filter {}", Parser::all(tokens)?), "with".to_owned()],
        _ => return Err(format!("chat templates have no statement `{name}` like this")),
    };
    if name != "set" || tags.len() > 1 {
        balance(open, name, start)?;
    }
    write(&tag, &source[start..tag.end], ["{%", "%}"], &tags, out);
    Ok(tag.end)
}

/// Writes one or more tags in place of one, with its white space control at both ends and all its line
/// breaks: an error has the line where the tag begins.
fn write(tag: &Tag<'_>, source: &str, [open, close]: [&str; 2], insides: &[String], out: &mut String) {
    let count = |text: &str| text.matches('\n').count();
    let breaks = "\n".repeat(count(source).saturating_sub(count(&insides.concat())));
    for (index, inside) in insides.iter().enumerate() {
        let first = if index == 0 { tag.open } else { "" };
        let [breaks, last] = if index + 1 == insides.len() { [&breaks, tag.close] } else { ["", ""] };
        out.extend([open, first, " ", inside, breaks, " ", last, close]);
    }
}

/// Where one of these words or signs stands outside of brackets.
fn find(tokens: &[&str], words: &[&str]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += i32::from(["(", "[", "{"].contains(token));
        depth -= i32::from([")", "]", "}"].contains(token));
        depth == 0 && words.contains(token)
    })
}

/// The names to assign to, as they stand.
fn target(tokens: &[&str]) -> Result<String> {
    if let Some([_, name]) = tokens.windows(2).find(|pair| pair[0] == "." && pair[1].starts_with('_')) {
        return Err(format!("a namespace cannot have the attribute `{name}`: rename it"));
    }
    Ok(tokens.join(" "))
}

fn for_loop(tokens: &[&str]) -> Result<String> {
    let at = find(tokens, &["in"]).ok_or("`for` has no `in`")?;
    let (names, tokens) = (target(&tokens[..at])?, &tokens[at + 1..]);
    let (values, rest) = tokens.split_at(find(tokens, &["if", "recursive"]).unwrap_or(tokens.len()));
    let rest = if rest.is_empty() { String::new() } else { Parser::all(rest)? };
    Ok(format!("for {names} in (({})|_each){rest}", Parser::all(values)?))
}

fn set(tokens: &[&str]) -> Result<Vec<String>> {
    let Some(at) = find(tokens, &["="]) else {
        return Ok(vec![format!("set {}", Parser::all(tokens)?), "with".to_owned()]);
    };
    let (names, value) = (target(&tokens[..at])?, Parser::all(&tokens[at + 1..])?);
    let check = if names.contains('.') { "_plain" } else { "_sized" };
    Ok(vec![format!("set {names} = (({value})|{check})")])
}

/// A macro. minijinja's default values cannot name other parameters, so they are set inside.
fn macro_tags(tokens: &[&str]) -> Result<Vec<String>> {
    let [name, "(", parameters @ .., ")"] = tokens else {
        return Err("`macro` needs a name and `()`".to_owned());
    };
    let mut tags = vec![format!("macro {name}(")];
    let mut rest = parameters;
    while !rest.is_empty() {
        let (parameter, after) = rest.split_at(find(rest, &[","]).unwrap_or(rest.len()));
        rest = after.get(1..).unwrap_or_default();
        let (name, default) = parameter.split_at(find(parameter, &["="]).unwrap_or(parameter.len()));
        let name = name.join(" ");
        tags[0].extend([&name, ", "]);
        if let [_, default @ ..] = default {
            let set = format!("set {name} = ({})", Parser::all(default)?);
            tags.extend([format!("if {name} is undefined"), set, "endif".to_owned()]);
        }
    }
    tags[0] += ")";
    Ok(tags)
}

/// Tracks the beginning or end of a block.
fn balance<'s>(open: &mut Vec<Open<'s>>, name: &'s str, start: usize) -> Result<()> {
    match (name, name.strip_prefix("end"), open.last_mut()) {
        ("break" | "continue", ..) => {}
        ("else" | "elif", _, Some(block)) if ["if", "for"].contains(&block.name) => {
            block.branches += 1;
            if block.branches > MAX_BRANCHES {
                return Err(format!("an `if` may have at most {MAX_BRANCHES} `elif`"));
            }
        }
        ("else" | "elif", ..) => return Err(format!("`{name}` belongs to no `if`")),
        (_, Some(end), Some(block)) if block.name == end => drop(open.pop()),
        (_, Some(_), Some(block)) => return Err(format!("expected `end{}`, found `{name}`", block.name)),
        (_, Some(_), None) => return Err(format!("`{name}` ends nothing")),
        _ => open.push(Open { name, start, branches: 0 }),
    }
    Ok(())
}
