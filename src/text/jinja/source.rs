//! The source of a template before it is parsed: what it may be, and the one tag that is transformers' own.
//!
//! The parser recurses along chains of operators and of `elif`, and takes a template that ends within a block; both are
//! refused here. `{% generation %}` marks what an assistant wrote; it prints its body in a scope of its own, as `with`.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::failure::{Failure, Result};

/// The longest template that is read, in bytes.
pub(super) const MAX_SOURCE_BYTES: usize = 256 << 10;
/// The most lines, and the most characters of one: the lexer counts them in 16 bits.
const MAX_LINES: usize = 60_000;
/// The most tokens within one tag.
const MAX_TAG_TOKENS: usize = 2000;
/// The most `elif` of one `if`.
const MAX_BRANCHES: usize = 200;

/// Blocks that have an end, with their end's name.
const BLOCKS: [(&str, &str); 9] = [
    ("if", "endif"),
    ("for", "endfor"),
    ("macro", "endmacro"),
    ("call", "endcall"),
    ("filter", "endfilter"),
    ("with", "endwith"),
    ("set", "endset"),
    ("autoescape", "endautoescape"),
    ("generation", "endgeneration"),
];

/// How transformers sets Jinja up: a line that holds nothing but a block is no line of the text.
pub(super) fn syntax() -> Result<SyntaxConfig> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.map_err(|error| Failure::new(error.to_string()))
}

/// A block that is open.
struct Open<'s> {
    name: &'s str,
    line: u32,
    branches: usize,
}

/// The source as the parser is to read it.
pub(super) fn prepare(source: &str) -> Result<String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Failure::new(format!(
            "it may have at most {MAX_SOURCE_BYTES} bytes, found {}",
            source.len()
        )));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let longest = source.lines().map(str::len).max().unwrap_or(0);
    if longest.max(source.lines().count()) > MAX_LINES {
        return Err(Failure::new(format!(
            "it may have at most {MAX_LINES} lines, each of at most {MAX_LINES} bytes"
        )));
    }
    let mut generation_tags = Vec::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut tag = Vec::new();
    for token in tokenize(&source, false, syntax()?) {
        let (token, span) = token.map_err(|error| syntax_failure(&error))?;
        let line = u32::from(span.start_line);
        match token {
            Token::BlockStart | Token::VariableStart | Token::TemplateData(_) => tag.clear(),
            Token::BlockEnd => {
                let Some((Token::Ident(name), place)) = tag.first() else { continue };
                if name.trim_start_matches("end") == "generation" {
                    generation_tags.push(*place);
                }
                balance(&mut open, name, &tag, line)?;
            }
            _ => {
                tag.push((token, span.start_offset as usize));
                if tag.len() > MAX_TAG_TOKENS {
                    return Err(
                        Failure::new(format!("a tag may have at most {MAX_TAG_TOKENS} tokens")).at(line)
                    );
                }
            }
        }
    }
    if let Some(block) = open.last() {
        return Err(Failure::new(format!("`{}` has no end", block.name)).at(block.line));
    }
    let mut prepared = source.clone();
    for place in generation_tags {
        let name = if source[place..].starts_with("end") { "endgeneration" } else { "generation" };
        let stand_in = if name.starts_with("end") { "endwith" } else { "with" };
        // Of the same length, so that places stay what they are.
        prepared.replace_range(place..place + name.len(), &format!("{stand_in:width$}", width = name.len()));
    }
    Ok(prepared)
}

/// Keeps account of a block's beginning or end.
fn balance<'s>(open: &mut Vec<Open<'s>>, name: &'s str, tag: &[(Token<'s>, usize)], line: u32) -> Result<()> {
    if let Some((_, end)) = BLOCKS.iter().find(|(begin, _)| *begin == name) {
        // `set x = …` has no end; within parentheses `=` names an argument.
        let mut level = 0;
        let assigns = tag.iter().any(|(token, _)| {
            match token {
                Token::ParenOpen => level += 1,
                Token::ParenClose => level -= 1,
                _ => {}
            }
            level == 0 && matches!(token, Token::Assign)
        });
        if !(*end == "endset" && assigns) {
            open.push(Open { name, line, branches: 0 });
        }
        return Ok(());
    }
    if name == "elif"
        && let Some(block) = open.last_mut()
    {
        block.branches += 1;
        if block.branches > MAX_BRANCHES {
            return Err(Failure::new(format!("an `if` may have at most {MAX_BRANCHES} `elif`")).at(line));
        }
    }
    if BLOCKS.iter().any(|(_, end)| *end == name) {
        let expected = open.pop().and_then(|block| BLOCKS.iter().find(|(begin, _)| *begin == block.name));
        match expected {
            Some((_, end)) if *end == name => {}
            Some((_, end)) => return Err(Failure::new(format!("expected `{end}`, found `{name}`")).at(line)),
            None => return Err(Failure::new(format!("`{name}` ends nothing")).at(line)),
        }
    }
    Ok(())
}

/// A message of the lexer or the parser.
pub(super) fn syntax_failure(error: &minijinja::Error) -> Failure {
    let failure = Failure::new(error.detail().map_or_else(|| error.to_string(), str::to_owned));
    match error.line() {
        Some(line) => failure.at(line as u32),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> String {
        prepare(source).unwrap_err().into_error().to_string()
    }

    #[test]
    fn generation_tags_become_scopes_and_nothing_else_changes() {
        let source =
            "a{%- generation -%}\r\n{{ '{% generation %}' }}{% endgeneration %}{# {% generation %} #}";
        let prepared = prepare(source).unwrap();
        assert_eq!(
            prepared,
            "a{%- with       -%}\n{{ '{% generation %}' }}{% endwith       %}{# {% generation %} #}"
        );
        assert!(prepare("{% raw %}{% generation %}{% endraw %}").unwrap().contains("generation"));
    }

    #[test]
    fn blocks_must_be_closed_in_order() {
        assert!(refused("\n{% if x %}a").ends_with("line 2: `if` has no end"));
        assert!(
            refused("{% if x %}{% for a in b %}{% endif %}").contains("expected `endfor`, found `endif`")
        );
        assert!(refused("{% endfor %}").contains("`endfor` ends nothing"));
        assert!(refused("{% set x %}").contains("`set` has no end"));
        assert!(prepare("{% set x = f(a=1) %}{% set y | replace(old='a') %}{% endset %}").is_ok());
    }

    #[test]
    fn sizes_are_limited_before_parsing() {
        assert!(refused(&" ".repeat(MAX_SOURCE_BYTES + 1)).contains("at most 262144 bytes"));
        assert!(refused(&" ".repeat(MAX_LINES + 1)).contains("at most 60000 lines"));
        assert!(refused(&"\r".repeat(MAX_LINES + 1)).contains("at most 60000 lines"));
        assert!(refused(&format!("{{{{ a{} }}}}", "+a".repeat(1000))).contains("at most 2000 tokens"));
        let branches = format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(201));
        assert!(refused(&branches).contains("at most 200 `elif`"));
    }
}
