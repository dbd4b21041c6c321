//! Rewrites the source of a template for minijinja: the same statements, with expressions rewritten by `expression`.
//!
//! Tags keep their lines and their white space control. Where minijinja lacks a scope that Jinja has, a `with` makes
//! one; so does `{% generation %}`, transformers' own tag. Errors: statements that load other templates, and source
//! that the parser cannot handle or accepts although Jinja does not, such as long chains and open blocks.

use super::expression::{Parser, is_constant};
use super::lexer::{Kind, Tag, tag};

/// The longest template that is read, in bytes.
const MAX_SOURCE_BYTES: usize = 256 << 10;
/// The most lines, and the most bytes of a line: the lexer counts them in 16 bits.
const MAX_LINES: usize = 60_000;
/// The most `elif` of one `if`.
const MAX_BRANCHES: usize = 200;
/// The length of text between tags that is free to print: it costs no more than an instruction.
const FREE_BYTES: usize = 64;
/// The most bytes of white space between tags, which cannot be divided.
const MAX_SPACE: usize = 4096;

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
        let start = next_tag(&source, at);
        text(&source[at..start], &mut out).map_err(|message| (line, message))?;
        line += source[at..start].matches('\n').count();
        let end = match source.get(start..start + 2) {
            Some("{#") => comment(&source, start, &mut out),
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

/// Where the next tag begins.
fn next_tag(source: &str, at: usize) -> usize {
    let bytes = source.as_bytes();
    let is_tag =
        |index: &usize| bytes[*index] == b'{' && matches!(bytes.get(index + 1), Some(b'{' | b'%' | b'#'));
    (at..bytes.len()).find(is_tag).unwrap_or(bytes.len())
}

/// Text between tags. Charged after its first character that is not white space, where no tag can strip it.
fn text(text: &str, out: &mut String) -> Result<()> {
    let letter = text.char_indices().find(|(_, char)| !char.is_whitespace());
    match letter {
        Some((index, char)) if text.len() > FREE_BYTES => {
            let (before, after) = text.split_at(index + char.len_utf8());
            out.extend([before, &format!("{{{{ {}|_text }}}}", text.len()), after]);
        }
        None if text.len() > MAX_SPACE => return Err(format!("white space may be {MAX_SPACE} bytes long")),
        _ => out.push_str(text),
    }
    Ok(())
}

fn comment(source: &str, start: usize, out: &mut String) -> Result<usize> {
    let end = source[start + 2..].find("#}").ok_or("a comment has no `#}`")?;
    let end = start + 2 + end + 2;
    out.push_str(&source[start..end]);
    Ok(end)
}

fn printed(source: &str, start: usize, out: &mut String) -> Result<usize> {
    let tag = tag(source, start + 2, "}}")?;
    let mut parser = Parser::new(&tag.tokens);
    let value = parser.tuple(true)?;
    let lines = parser.finish()?;
    out.extend(["{{", tag.open, " ", &value, &lines, " ", tag.close, "}}"]);
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
    let Some(name) = tag.tokens.first().filter(|token| token.kind == Kind::Name) else {
        return Err("a tag begins with the name of a statement".to_owned());
    };
    if name.text == "raw" && tag.tokens.len() == 1 {
        let end = raw_end(source, tag.end)?;
        let pay = format!("if {}|_text", end - start);
        write_tags(&tag, &[pay, "endif".to_owned()], "", out);
        // Only the first tag strips what is before it.
        out.push_str(&source[start..end].replacen("{%-", "{%", usize::from(tag.open == "-")));
        return Ok(end);
    }
    let mut parser = Parser::new(&tag.tokens[1..]);
    let tags = match name.text {
        "generation" => vec!["with".to_owned()],
        "endgeneration" => vec!["endwith".to_owned()],
        "endset" | "endfilter" => vec!["endwith".to_owned(), name.text.to_owned()],
        "else" | "break" | "continue" | "endif" | "endfor" | "endmacro" | "endcall" | "endwith" => {
            vec![name.text.to_owned()]
        }
        "if" | "elif" => vec![format!("{} {}", name.text, parser.tuple(false)?)],
        "for" => vec![for_loop(&mut parser)?],
        "set" => set(&mut parser)?,
        "macro" => {
            let (head, mut tags) = signature(&mut parser)?;
            tags.insert(0, format!("macro {head}"));
            tags
        }
        "call" => call(&mut parser)?,
        "filter" => {
            let mut filters = parser.filter()?;
            while parser.skip(Kind::Sign, "|") {
                filters = format!("{filters}|{}", parser.filter()?);
            }
            vec![format!("filter {filters}"), "with".to_owned()]
        }
        "with" => with(&mut parser)?,
        other => return Err(format!("chat templates have no statement `{other}`")),
    };
    let lines = parser.finish()?;
    let is_open = name.text != "set" || tags.len() > 1;
    balance(open, name.text, is_open, line)?;
    write_tags(&tag, &tags, &("\n".repeat(name.lines) + &lines), out);
    Ok(tag.end)
}

/// Writes several tags in place of one, with its white space control at both ends.
fn write_tags(tag: &Tag<'_>, tags: &[String], lines: &str, out: &mut String) {
    for (index, inside) in tags.iter().enumerate() {
        let (is_first, is_last) = (index == 0, index + 1 == tags.len());
        let open = if is_first { tag.open } else { "" };
        let (lines, close) = if is_last { (lines, tag.close) } else { ("", "") };
        out.extend(["{%", open, " ", inside, lines, " ", close, "%}"]);
    }
}

/// Where the `endraw` of a `raw` ends.
fn raw_end(source: &str, start: usize) -> Result<usize> {
    let ends = source[start..].match_indices("{%").filter_map(|(index, _)| {
        let rest = source[start + index + 2..].trim_start_matches(['-', '+']).trim_start();
        let rest = rest.strip_prefix("endraw")?.trim_start().trim_start_matches(['-', '+']);
        Some(source.len() - rest.strip_prefix("%}")?.len())
    });
    ends.into_iter().next().ok_or_else(|| "`raw` has no end".to_owned())
}

fn for_loop(parser: &mut Parser<'_, '_>) -> Result<String> {
    let target = target(parser, Kind::Name, "in")?;
    let mut text = format!("for {target} in ({}|_iter)", parser.tuple(false)?);
    if parser.skip(Kind::Name, "if") {
        text = format!("{text} if {}", parser.expression(true)?);
    }
    if parser.skip(Kind::Name, "recursive") {
        text.push_str(" recursive");
    }
    Ok(text)
}

/// The names to assign to, up to a token outside of brackets.
fn target(parser: &mut Parser<'_, '_>, kind: Kind, end: &str) -> Result<String> {
    let mut target = String::new();
    while !parser.skip(kind, end) {
        let part = parser.take("a name to assign to", |token| {
            token.kind == Kind::Name || ["(", ")", ",", "."].contains(&token.text)
        })?;
        if target.ends_with('.') && part.trim_start().starts_with('_') {
            return Err(format!("a namespace cannot have the attribute `{}`: rename it", part.trim_start()));
        }
        target.push_str(&part);
    }
    Ok(target)
}

fn set(parser: &mut Parser<'_, '_>) -> Result<Vec<String>> {
    if !parser.tokens.iter().take_while(|token| token.text != "|").any(|token| token.is(Kind::Sign, "=")) {
        let mut text = format!("set {}", parser.name()?);
        while parser.skip(Kind::Sign, "|") {
            text = format!("{text}|{}", parser.filter()?);
        }
        return Ok(vec![text, "with".to_owned()]);
    }
    let target = target(parser, Kind::Sign, "=")?;
    let value = parser.tuple(true)?;
    // The contents of a namespace outlive its scope.
    let value = if target.contains('.') { format!("({value}|_store)") } else { value };
    Ok(vec![format!("set {target} = {value}")])
}

/// A macro's name and parameters, and the tags that set those whose default value is not a constant.
fn signature(parser: &mut Parser<'_, '_>) -> Result<(String, Vec<String>)> {
    let name = parser.name()?;
    parser.expect("(")?;
    let (parameters, tags) = parameters(parser)?;
    Ok((format!("{name}({parameters})"), tags))
}

fn parameters(parser: &mut Parser<'_, '_>) -> Result<(String, Vec<String>)> {
    let mut tags = Vec::new();
    let parameters = parser.list(")", |parser| {
        let name = parser.name()?;
        if !parser.skip(Kind::Sign, "=") {
            return Ok(name);
        }
        let default = parser.expression(true)?;
        if is_constant(&default) {
            return Ok(format!("{name}={default}"));
        }
        let bare = name.trim_start();
        tags.extend([
            format!("if {bare} is undefined"),
            format!("set {bare} = {default}"),
            "endif".to_owned(),
        ]);
        Ok(name)
    })?;
    Ok((parameters.join(", "), tags))
}

fn call(parser: &mut Parser<'_, '_>) -> Result<Vec<String>> {
    let mut head = String::new();
    let mut tags = Vec::new();
    if parser.skip(Kind::Sign, "(") {
        let (parameters, more) = parameters(parser)?;
        (head, tags) = (format!("({parameters})"), more);
    }
    let name = parser.name()?;
    parser.expect("(")?;
    tags.insert(0, format!("call{head} {name}({})", parser.arguments(true)?));
    Ok(tags)
}

/// All values are evaluated outside of the block.
fn with(parser: &mut Parser<'_, '_>) -> Result<Vec<String>> {
    let (mut values, mut targets) = (Vec::new(), Vec::new());
    while !parser.tokens.is_empty() {
        if !values.is_empty() {
            parser.expect(",")?;
        }
        let target = target(parser, Kind::Sign, "=")?;
        targets.push(format!("{target} = with_{}", values.len()));
        values.push(format!("with_{} = {}", values.len(), parser.expression(true)?));
    }
    values.append(&mut targets);
    Ok(vec![format!("with {}", values.join(", "))])
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
