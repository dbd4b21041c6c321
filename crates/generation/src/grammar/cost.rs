//! What compiling a grammar costs, told from its text: so that what takes too long is refused before it
//! begins.
//!
//! llguidance compiles each regular expression and each terminal to derivatives. Its own limits count most of
//! that work, and end it. What they do not count are parts in a row that may all be empty, such as `a*b?c?…`:
//! the first derivative has a term for each of them, which holds all that follow. This is what is counted
//! here, a step for each node; a million steps take about a tenth of a second. Repetitions are nodes of their
//! own, however often they repeat: `a{1,1000000000}` is cheap, and what it repeats counts once.

use std::collections::HashMap;

use regex_syntax::ast::{Ast, ClassSet, ClassSetItem, RepetitionKind, RepetitionRange, parse::ParserBuilder};
use serde_json::Value;

use super::lark::{self, Piece};

/// The most steps that a grammar may take.
pub(super) const MAX_COST: u64 = 2_000_000;
/// The deepest groups of a regular expression: those that its parser takes.
pub(super) const MAX_GROUPS: u32 = 250;
/// The nodes of a class such as `\w`: its characters are ranges of bytes in a trie.
const CLASS: u64 = 400;

/// The size of a part of a grammar, and the steps that compiling it takes.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    size: u64,
    cost: u64,
    can_be_empty: bool,
}

impl Part {
    fn of_size(size: u64) -> Self {
        Self { size, cost: size, can_be_empty: false }
    }

    fn optional(self) -> Self {
        Self { can_be_empty: true, ..self }
    }

    /// Either of two.
    fn or(self, other: Self) -> Self {
        let can_be_empty = self.can_be_empty || other.can_be_empty;
        Self {
            size: self.size.saturating_add(other.size),
            cost: self.cost.saturating_add(other.cost),
            can_be_empty,
        }
    }

    /// One after the other. The derivative at the first of a run of parts that can be empty has a term for
    /// each part of the run and the one after it; a term holds the parts that follow, and is merged with the
    /// terms before it.
    fn in_a_row(parts: &[Self]) -> Self {
        let mut whole = Self { can_be_empty: true, ..Self::default() };
        let mut run = 0_u64;
        for (index, part) in parts.iter().enumerate() {
            whole.size = whole.size.saturating_add(part.size);
            whole.cost = whole.cost.saturating_add(part.cost);
            whole.can_be_empty &= part.can_be_empty;
            if part.can_be_empty {
                run = run.saturating_add(part.size);
                whole.cost = whole.cost.saturating_add(run).saturating_add((parts.len() - index) as u64);
            } else {
                run = 0;
            }
        }
        whole
    }
}

/// The steps of a regular expression; few for one that cannot be read, which llguidance refuses at once.
pub(super) fn of_regex(text: &str) -> u64 {
    regex(text).cost
}

fn regex(text: &str) -> Part {
    let parsed = ParserBuilder::new().nest_limit(MAX_GROUPS).build().parse(text);
    parsed.map_or(Part::of_size(1), |expression| part(&expression))
}

fn part(expression: &Ast) -> Part {
    match expression {
        Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => Part::default().optional(),
        Ast::Literal(_) => Part::of_size(1),
        Ast::Dot(_) => Part::of_size(4),
        Ast::ClassUnicode(_) | Ast::ClassPerl(_) => Part::of_size(CLASS),
        Ast::ClassBracketed(class) => Part::of_size(1 + class_size(&class.kind)),
        Ast::Repetition(repetition) => {
            let part = part(&repetition.ast);
            let part = Part { size: part.size + 1, ..part };
            match &repetition.op.kind {
                RepetitionKind::ZeroOrOne
                | RepetitionKind::ZeroOrMore
                | RepetitionKind::Range(
                    RepetitionRange::Exactly(0)
                    | RepetitionRange::AtLeast(0)
                    | RepetitionRange::Bounded(0, _),
                ) => part.optional(),
                _ => part,
            }
        }
        Ast::Group(group) => part(&group.ast),
        Ast::Alternation(all) => all.asts.iter().map(part).reduce(Part::or).unwrap_or_default(),
        Ast::Concat(all) => Part::in_a_row(&all.asts.iter().map(part).collect::<Vec<_>>()),
    }
}

fn class_size(set: &ClassSet) -> u64 {
    let items = |items: &[ClassSetItem]| items.iter().map(item_size).sum();
    match set {
        ClassSet::Item(ClassSetItem::Union(union)) => items(&union.items),
        ClassSet::Item(item) => item_size(item),
        ClassSet::BinaryOp(operation) => class_size(&operation.lhs) + class_size(&operation.rhs),
    }
}

fn item_size(item: &ClassSetItem) -> u64 {
    match item {
        ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => CLASS,
        ClassSetItem::Bracketed(class) => class_size(&class.kind),
        ClassSetItem::Union(union) => union.items.iter().map(item_size).sum(),
        _ => 1,
    }
}

/// The steps of a JSON schema: those of the regular expressions in it, and of objects with many properties,
/// each of which may be left out.
pub(super) fn of_schema(schema: &Value) -> u64 {
    match schema {
        Value::Array(list) => list.iter().map(of_schema).fold(0, u64::saturating_add),
        Value::Object(keywords) => {
            let each = keywords.iter().map(|(keyword, value)| {
                let own = match (keyword.as_str(), value) {
                    ("pattern" | "whitespace_pattern", Value::String(pattern)) => of_regex(pattern),
                    ("patternProperties", Value::Object(map)) => {
                        map.keys().map(|pattern| of_regex(pattern)).fold(0, u64::saturating_add)
                    }
                    ("properties", Value::Object(map)) => (map.len() as u64).pow(2) / 4,
                    _ => 0,
                };
                own.saturating_add(of_schema(value))
            });
            each.fold(1, u64::saturating_add)
        }
        Value::String(text) => text.len() as u64,
        _ => 1,
    }
}

/// The steps of a grammar in the notation of Lark. Terminals are put in place of their names, as llguidance
/// does it.
pub(super) fn of_lark(text: &str) -> u64 {
    let mut lark = Lark { definitions: HashMap::new(), cost: 0 };
    lark.read(text);
    let mut names: Vec<&str> = lark.definitions.keys().copied().collect();
    // In one order, so that a chain is as deep each time.
    names.sort_unstable();
    let mut known = HashMap::new();
    let each = names.into_iter().map(|name| lark.whole(name, &mut known, 0).cost);
    each.fold(lark.cost, u64::saturating_add)
}

/// What stands in the definition of a rule or a terminal.
enum Token<'a> {
    Part(Part),
    /// The name of a terminal.
    Terminal(&'a str),
    /// The part before it may be left out.
    Optional,
    Open,
    Close,
    Or,
}

struct Lark<'a> {
    definitions: HashMap<&'a str, Vec<Token<'a>>>,
    /// The steps of what is no definition.
    cost: u64,
}

/// The deepest chain of terminals that is followed; each takes a level of recursion.
const MAX_CHAIN: usize = 1_000;

impl<'a> Lark<'a> {
    /// Splits the text into definitions.
    fn read(&mut self, text: &'a str) {
        let mut name = "";
        for (at, piece_text, piece) in lark::pieces(text) {
            let after = &text[at + piece_text.len()..];
            let token = match piece {
                Piece::Text => Token::Part(Part::of_size(piece_text.len() as u64)),
                Piece::Regex { pattern, .. } => Token::Part(regex(pattern)),
                Piece::Json { value, .. } => {
                    self.cost = self.cost.saturating_add(of_schema(&value));
                    Token::Part(Part::of_size(1))
                }
                Piece::Sign('?' | '*') => Token::Optional,
                Piece::Count if piece_text[1..].trim_start().starts_with(['0', ',']) => Token::Optional,
                Piece::Sign('(' | '[') => Token::Open,
                Piece::Sign(')') => Token::Close,
                Piece::Sign(']') => {
                    self.definitions.entry(name).or_default().push(Token::Close);
                    Token::Optional
                }
                Piece::Sign('|') => Token::Or,
                Piece::Name => {
                    let is_defined = after.trim_start_matches([' ', '\t']).starts_with([':', '.']);
                    if is_defined && !after.trim_start().starts_with("..") {
                        name = piece_text;
                        continue;
                    }
                    let is_terminal =
                        piece_text.starts_with(|first: char| first.is_ascii_uppercase() || first == '_');
                    if is_terminal { Token::Terminal(piece_text) } else { Token::Part(Part::of_size(1)) }
                }
                Piece::Special => Token::Part(Part::of_size(1)),
                Piece::Comment | Piece::Count | Piece::Sign(_) => continue,
            };
            self.definitions.entry(name).or_default().push(token);
        }
    }

    /// A definition with the terminals that it names.
    fn whole(&self, name: &'a str, known: &mut HashMap<&'a str, Part>, depth: usize) -> Part {
        if let Some(part) = known.get(name) {
            return *part;
        }
        let Some(tokens) = self.definitions.get(name).filter(|_| depth < MAX_CHAIN) else {
            // A chain without an end is refused, and so is a terminal without a definition.
            let cost = if depth < MAX_CHAIN { 1 } else { u64::MAX };
            return Part { size: 1, cost, can_be_empty: false };
        };
        // While it is being looked at: one that names itself is refused.
        known.insert(name, Part::of_size(1));
        // The alternatives of each open group, and the parts of the last one.
        let mut open: Vec<(Option<Part>, Vec<Part>)> = vec![(None, Vec::new())];
        let close = |(others, parts): (Option<Part>, Vec<Part>)| {
            let last = Part::in_a_row(&parts);
            others.map_or(last, |others| others.or(last))
        };
        for token in tokens {
            let part = match token {
                Token::Part(part) => *part,
                Token::Terminal(name) => self.whole(name, known, depth + 1),
                Token::Optional => {
                    if let Some(part) = open.last_mut().and_then(|(_, parts)| parts.last_mut()) {
                        *part = part.optional();
                    }
                    continue;
                }
                Token::Open => {
                    open.push((None, Vec::new()));
                    continue;
                }
                Token::Close if open.len() > 1 => open.pop().map(close).unwrap_or_default(),
                Token::Close => continue,
                Token::Or => {
                    if let Some(group) = open.pop() {
                        open.push((Some(close(group)), Vec::new()));
                    }
                    continue;
                }
            };
            if let Some((_, parts)) = open.last_mut() {
                parts.push(part);
            }
        }
        let whole = open.into_iter().rev().map(close).reduce(Part::or).unwrap_or_default();
        known.insert(name, whole);
        whole
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::format_collect, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// The whole kind: parts in a row that may be empty, in each notation.
    fn hostile() -> Vec<(&'static str, u64)> {
        let issue = format!("({}){{0,500}}", "a*b?".repeat(20_000));
        let chain: String = (0..2_000).map(|i| format!("T{i}: \"a\"? T{} \"b\"?\n", i + 1)).collect();
        let double: String = (0..40).map(|i| format!("T{i}: T{0} T{0}\n", i + 1)).collect();
        let endless: String = (0..3_000).map(|i| format!("T{i}: T{}\n", i + 1)).collect();
        let lark = |text: String| of_lark(&text);
        vec![
            ("a row that repeats", of_regex(&issue)),
            ("a row", of_regex(&"a?".repeat(20_000))),
            ("a row after a letter", of_regex(&format!("x{}", "a?".repeat(20_000)))),
            ("a row of groups", of_regex(&"(ab|c){0,3}".repeat(5_000))),
            ("a row within alternatives", of_regex(&format!("x|y({}|z)", "a*".repeat(8_000)))),
            ("a row of empty alternatives", of_regex(&"(a|)".repeat(20_000))),
            ("a row of classes", of_regex(&"\\w?".repeat(1_000))),
            ("many classes", of_regex(&"\\pL".repeat(20_000))),
            ("a pattern", of_schema(&json!({"items": {"pattern": "a*b?".repeat(5_000)}}))),
            ("a pattern of names", of_schema(&json!({"patternProperties": {"a?".repeat(9_000): {}}}))),
            ("whitespace", of_schema(&json!({"x-guidance": {"whitespace_pattern": "a?".repeat(9_000)}}))),
            (
                "many patterns",
                of_schema(&json!((0..300).map(|_| json!({"pattern": "a?".repeat(400)})).collect::<Vec<_>>())),
            ),
            ("a terminal", lark(format!("start: T\nT: {}", "\"a\"? ".repeat(8_000)))),
            ("brackets", lark(format!("start: T\nT: {}", "[\"a\"] ".repeat(8_000)))),
            ("counted", lark(format!("start: T\nT: {}", "\"a\"{0,2} ".repeat(8_000)))),
            ("a rule", lark(format!("start: {}", "\"a\"? ".repeat(8_000)))),
            ("in slashes", lark(format!("start: /{}/", "a*b?".repeat(8_000)))),
            ("a chain of terminals", lark(format!("start: T0\n{chain}T2000: \"x\"\n"))),
            ("doubled terminals", lark(format!("start: T0\n{double}T40: \"x\"?\n"))),
            ("a long chain", lark(format!("start: T0\n{endless}T3000: \"x\"\n"))),
            ("a schema in Lark", lark(format!("start: %json {}", json!({"pattern": "a?".repeat(9_000)})))),
        ]
    }

    #[test]
    fn rows_of_what_may_be_empty_are_too_much_in_each_notation() {
        for (name, cost) in hostile() {
            assert!(cost > MAX_COST, "{name} takes {cost} steps");
        }
    }

    #[test]
    fn the_grammars_of_real_services_are_far_from_the_limit() {
        let properties: serde_json::Map<String, Value> = (0..500)
            .map(|i| (format!("name{i}"), json!({"type": "string", "minLength": 1, "maxLength": 65_536})))
            .collect();
        let rules: String = (0..2_000).map(|i| format!("r{i}: \"a\" r{} \"b\"?\n", i + 1)).collect();
        for (name, cost) in [
            ("counts", of_regex("a{1,1000000000}(b{0,100000}c){1,100000}")),
            (
                "date",
                of_regex(r"^[1-9][0-9]{3}-(0[1-9]|1[0-2])-[0-3][0-9](T\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?$"),
            ),
            ("address", of_regex(r"^[\w.+-]+@[\w-]+(\.[\w-]+)*$")),
            ("alternatives", of_regex(&vec!["[a-z]{1,40}x"; 2_000].join("|"))),
            ("words", of_regex(&(0..5_000).map(|i| format!("word{i}")).collect::<Vec<_>>().join("|"))),
            ("text", of_regex(&"the end. ".repeat(10_000))),
            ("object", of_schema(&json!({"type": "object", "properties": properties}))),
            (
                "list",
                of_schema(&json!({"type": "array", "minItems": 1_000_000, "items": {"maxItems": 100_000}})),
            ),
            (
                "choice",
                of_schema(&json!({"enum": (0..8_000).map(|i| format!("value {i}")).collect::<Vec<_>>()})),
            ),
            ("rules", of_lark(&format!("start: r0\n{rules}r2000: \"x\"\n"))),
            (
                "comments",
                of_lark("start: A? B? // a? b?\n# c?\nA: /a+\\/?/i\nB.2: \"b\\\"?\"\n%ignore /\\s+/\n"),
            ),
        ] {
            assert!(cost < MAX_COST / 4, "{name} takes {cost} steps");
        }
    }
}
