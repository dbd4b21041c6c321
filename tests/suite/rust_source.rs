//! Scans Rust source for the rules of the architecture: tokens, the paths that leave a module, and where tests begin.
//!
//! Not a parser: names, `::` and punctuation with their lines are enough. Macros are not expanded.

/// Names and punctuation of Rust source with their lines; without comments, strings, characters and lifetimes.
pub(crate) fn tokens(source: &str) -> Vec<(usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let hashes = rest.trim_start_matches(['b', 'c']).strip_prefix('r').map_or(0, |raw| {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') { hashes + 1 } else { 0 }
        });
        let (length, kept) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (block_comment_len(rest), false)
        } else if hashes > 0 {
            let open = rest.find('"').unwrap_or(0) + 1;
            let end = format!("\"{}", "#".repeat(hashes - 1));
            (rest[open..].find(&end).map_or(rest.len(), |at| open + at + end.len()), false)
        } else if first == '"' {
            (quoted_len(rest, '"'), false)
        } else if first == '\'' {
            let is_char = rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'');
            (
                if is_char {
                    quoted_len(rest, '\'')
                } else {
                    1 + rest[1..].find(|c| !is_word(c)).unwrap_or(0)
                },
                false,
            )
        } else if is_word(first) {
            (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), !first.is_whitespace())
        };
        if kept {
            found.push((line, &rest[..length]));
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut index) = (0, 0);
    while index < text.len() {
        match &text.as_bytes()[index..] {
            [b'/', b'*', ..] => (depth, index) = (depth + 1, index + 2),
            [b'*', b'/', ..] => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    text.len()
}

/// The modules just below the crate's root that the paths of a file name, with their lines. `module` is the path of the
/// file's own module; in src/bin/ the library is called `rsgen` instead of `crate`.
pub(crate) fn root_paths<'a>(tokens: &[(usize, &'a str)], module: &[&str]) -> Vec<(usize, &'a str)> {
    let at = |index: usize| tokens.get(index).map_or("", |token| token.1);
    let in_bin = module.first() == Some(&"bin");
    let root = if in_bin { "rsgen" } else { "crate" };
    let mut found = Vec::new();
    let mut depth = 0;
    let mut inline_modules: Vec<usize> = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let mut after = index + 1;
        match at(index) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline_modules.pop_if(|opened| *opened == depth);
            }
            "mod" if at(index + 2) == "{" => inline_modules.push(depth),
            name if name == root && at(after) == "::" && (index == 0 || at(index - 1) != "::") => {
                found.extend(first_names(tokens, after + 1));
            }
            "super" if !in_bin => {
                let mut levels = 1;
                while at(after) == "::" && at(after + 1) == "super" {
                    (levels, after) = (levels + 1, after + 2);
                }
                if at(after) == "::" && levels == module.len() + inline_modules.len() {
                    found.extend(first_names(tokens, after + 1));
                }
            }
            _ => {}
        }
        index = after;
    }
    found
}

/// The first names of a path or of each path in a group.
fn first_names<'a>(tokens: &[(usize, &'a str)], start: usize) -> Vec<(usize, &'a str)> {
    let rest = &tokens[start.min(tokens.len())..];
    if rest.first().is_none_or(|token| token.1 != "{") {
        return rest.first().copied().into_iter().collect();
    }
    let mut depth = 0;
    let mut names = Vec::new();
    for pair in rest.windows(2) {
        match pair[0].1 {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && ["{", ","].contains(&pair[0].1) && pair[1].1 != "}" {
            names.push(pair[1]);
        }
    }
    names
}

/// The part of a source file that is tests: all of `tests.rs`, else what follows a `#[cfg(test)]` module at the margin.
pub(crate) fn test_code<'a>(path: &str, source: &'a str) -> &'a str {
    let opens = |at: &usize| source[*at..].lines().nth(2).is_some_and(|line| line.ends_with('{'));
    let foot = || source.match_indices("\n#[cfg(test)]\nmod ").map(|(at, _)| at).find(opens);
    let start = if path.ends_with("tests.rs") || path.contains("/tests/") {
        0
    } else {
        foot().unwrap_or(source.len())
    };
    &source[start..]
}

mod tests {
    use super::*;

    fn names(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.1).collect()
    }

    fn paths<'a>(source: &'a str, module: &[&str]) -> Vec<&'a str> {
        root_paths(&tokens(source), module).into_iter().map(|path| path.1).collect()
    }

    #[test]
    fn comments_strings_characters_and_lifetimes_are_no_names() {
        assert_eq!(names("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(names(r##"x("unsafe \" y", r#"a " b"#, b"c", '"', '\'', 'z')"##).concat(), "x(,,b,,,)");
        assert_eq!(names("fn f<'a>(x: &'a str)").concat(), "fnf<>(x:&str)");
        assert_eq!(tokens("a\n\"two\nlines\"\nb"), [(1, "a"), (4, "b")]);
    }

    #[test]
    fn paths_are_found_in_groups_and_in_the_middle_of_code() {
        let source =
            "use crate::{error::{Error, Result}, text}; fn f() { crate::model::x(); } pub(crate) fn g() {}";
        assert_eq!(paths(source, &["cache"]), ["error", "text", "model"]);
        assert_eq!(paths("rsgen::cli::main(); crate::own()", &["bin", "rsgen"]), ["cli"]);
    }

    #[test]
    fn a_chain_of_super_counts_when_it_reaches_the_root() {
        assert_eq!(paths("use super::text;", &["cache"]), ["text"]);
        assert_eq!(paths("use super::super::{text, model};", &["cache", "pool"]), ["text", "model"]);
        assert_eq!(paths("use super::table;", &["cache", "pool"]), [""; 0]);
        assert_eq!(paths("mod tests { use super::*; } use super::text;", &["cache"]), ["text"]);
        assert_eq!(paths("mod tests { fn f() {} use super::super::text; }", &["cache"]), ["text"]);
    }

    #[test]
    fn tests_begin_where_their_module_opens() {
        assert_eq!(test_code("src/a.rs", "code\n#[cfg(test)]\nmod tests {}\n").trim(), "");
        assert_eq!(
            test_code("src/a.rs", "code\n#[cfg(test)]\nmod tests {\n x }"),
            "\n#[cfg(test)]\nmod tests {\n x }"
        );
        assert_eq!(test_code("src/a.rs", "a\n#[cfg(test)]\nmod tests;\nb\n"), "");
        assert_eq!(test_code("src/a/tests.rs", "all of it"), "all of it");
    }
}
