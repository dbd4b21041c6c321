//! `\d`, `\w` and `\s` in every notation that takes a pattern.

use serde_json::json;

use super::super::super::config::GenerationConfig;
use super::{config, is_accepted, refusal};

/// Characters of each kind: those of ASCII, and those that Unicode adds.
const DIGITS: (&str, &str) = ("07", "\u{969}\u{ff13}");
const WORDS: (&str, &str) = ("aZ_5", "\u{e9}\u{663}\u{4e2d}\u{17f}\u{212a}");
const SPACES: (&str, &str) = (" \t\r\n\u{b}\u{c}", "\u{a0}\u{2003}\u{85}");
/// Of none of them.
const OTHERS: &str = "-!\u{20ac}";

/// The forms of a pattern that matches one character.
fn forms(class: char) -> Vec<(String, bool)> {
    let negated = class.to_ascii_uppercase();
    let one = |pattern: String| (pattern, false);
    let not = |pattern: String| (pattern, true);
    vec![
        one(format!(r"\{class}")),
        not(format!(r"\{negated}")),
        one(format!(r"[\{class}]")),
        not(format!(r"[\{negated}]")),
        not(format!(r"[^\{class}]")),
        one(format!(r"[^\{negated}]")),
        one(format!(r"[\{class}\{class}]")),
        one(format!(r"[[\{class}]&&\p{{Any}}]")),
        not(format!(r"[\p{{Any}}--\{class}]")),
        one(format!(r"(?:\{class})")),
        one(format!(r"(?i)\{class}")),
        not(format!(r"(?i)\{negated}")),
        one(format!(r"(?i)[\{class}]")),
        not(format!(r"(?i)[^\{class}]")),
        one(format!(r"(?i:[\{class}])")),
        one(format!(r"(?x: [ \{class} ] )")),
        one(format!(r"(?:(?i)[\{class}])|\{class}{{1}}")),
    ]
}

type Entrance = fn(&str) -> GenerationConfig;

/// Where patterns enter. Each matches a JSON text, so that one check suits all.
fn entrances() -> Vec<(&'static str, Entrance)> {
    vec![
        ("regex", |pattern| config().regex(format!("\"(?:{pattern})\""))),
        ("a terminal", |pattern| config().grammar(format!("start: T\nT: \"\\\"\" /{pattern}/ \"\\\"\""))),
        ("a rule", |pattern| config().grammar(format!("start: \"\\\"\" /{pattern}/ \"\\\"\" // /\\d/"))),
        ("a terminal that ignores case", |pattern| {
            config().grammar(format!("# \\d \"\nstart: T\nT: \"\\\"\" /{pattern}/i \"\\\"\""))
        }),
        ("a schema in a grammar", |pattern| {
            let schema = json!({"type": "string", "pattern": format!("^(?:{pattern})$")});
            config().grammar(format!("start: \"\" %json {schema}"))
        }),
        ("a pattern", |pattern| {
            config().json_schema(json!({"type": "string", "pattern": format!("^(?:{pattern})$")}))
        }),
        ("a pattern within", |pattern| {
            let word = json!({"type": "string", "pattern": format!("^(?:{pattern})$")});
            config().json_schema(json!({"anyOf": [{"$ref": "#/$defs/word"}], "$defs": {"word": word}}))
        }),
        ("names", |pattern| {
            let names = json!({format!("^(?:{pattern})$"): {"type": "null"}});
            config().json_schema(
                json!({"type": "object", "patternProperties": names, "additionalProperties": false}),
            )
        }),
        ("property names", |pattern| {
            let names = json!({"pattern": format!("^(?:{pattern})$")});
            config().json_schema(json!({"type": "object", "propertyNames": names}))
        }),
    ]
}

#[test]
fn classes_are_ascii_in_each_notation() {
    let classes = [('d', DIGITS), ('w', WORDS), ('s', SPACES)];
    for (entrance, config) in entrances() {
        for (class, (ascii, beyond)) in classes {
            for (form, is_negated) in forms(class) {
                let config = config(&form);
                for (letters, is_in) in [(ascii, true), (beyond, false), (OTHERS, false)] {
                    for letter in letters.chars() {
                        let is_json =
                            ["schema", "pattern", "name"].iter().any(|part| entrance.contains(part));
                        let quoted = json!(letter.to_string()).to_string();
                        let text = if is_json { quoted } else { format!("\"{letter}\"") };
                        let text = if entrance.contains("names") { format!("{{{text}:null}}") } else { text };
                        assert_eq!(
                            is_accepted(&config, &text),
                            is_in != is_negated,
                            "{entrance}: {form} of {letter:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn other_classes_remain_unicode() {
    for (entrance, config) in entrances() {
        let text = |letter: &str| {
            if entrance.contains("names") {
                format!("{{\"{letter}\":null}}")
            } else {
                format!("\"{letter}\"")
            }
        };
        for (pattern, letter) in [
            (r"\p{Nd}", "\u{969}"),
            (r"[\p{L}\d]", "\u{e9}"),
            (r"\pL", "\u{4e2d}"),
            (".", "\u{e9}"),
            ("[^a]", "\u{e9}"),
        ] {
            assert!(is_accepted(&config(pattern), &text(letter)), "{entrance}: {pattern} of {letter}");
        }
        assert!(is_accepted(&config(r"(?i)[\dk]"), &text("\u{212a}")), "{entrance}: as case is ignored");
    }
}

#[test]
fn a_pattern_that_cannot_be_followed_is_refused_with_its_reason_alone() {
    for (pattern, why) in [
        ("(a", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        (r"a\b", r"it has `\b` or `\B`"),
        ("a^b", "`^` or `$` stands within"),
    ] {
        for (entrance, config) in entrances() {
            let message = refusal(&config(pattern));
            let is_closed = pattern != "(a" || message.contains("unclosed") || message.contains("unopened");
            assert!(message.contains(why) || (pattern == "(a" && is_closed), "{entrance}: {message}");
            for dump in ["regex parse error", "lookarounds", "start:", "RegexAst", "Unicode", "(in "] {
                assert!(!message.contains(dump), "{entrance}: {message}");
            }
        }
    }
}
