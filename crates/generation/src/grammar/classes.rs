//! `\d`, `\w` and `\s` in patterns are ASCII, as in ECMA-262 and under Python's `re.ASCII`: a model that
//! writes a date writes no Devanagari digits. `\p{Nd}` and its like remain Unicode.
//!
//! A pattern is rewritten before llguidance reads it: a class that names one of them becomes the list of its
//! characters. So is a class in brackets as a whole, since in one that ignores case `\w` would gain `ſ` and
//! the sign of kelvin.

use std::ops::Range;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet, ClassSetBinaryOpKind,
    ClassSetItem, Flag, Flags, GroupKind,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

use rsgen_core::escape;

use super::compile::refused;
use super::cost::MAX_GROUPS;
use super::lark::{self, Piece};
use super::matcher::Stop;
use super::schema;

/// A pattern whose `\d`, `\w` and `\s` are ASCII.
///
/// # Errors
/// Why it cannot be read, as a sentence about it.
pub(super) fn ascii(pattern: &str) -> Result<String, String> {
    let parsed = ParserBuilder::new().nest_limit(MAX_GROUPS).build().parse(pattern);
    let parsed = parsed.map_err(|error| error.kind().to_string())?;
    let mut walk =
        Walk { pattern, ignores_case: false, is_unicode: true, found: Vec::new(), has_boundary: false };
    walk.expression(&parsed);
    if walk.has_boundary {
        return Err("it has `\\b` or `\\B`, which are not supported".to_owned());
    }
    Ok(replaced(pattern, walk.found))
}

/// A grammar in the notation of Lark whose regular expressions and schemas are so. Where it allows bytes that
/// are no UTF-8, its regular expressions are so already.
///
/// # Errors
/// `Config` about `field` for a regular expression or a schema that cannot be followed.
pub(super) fn ascii_in_lark(text: &str, field: &'static str) -> rsgen_core::Result<String> {
    let mut found = Vec::new();
    let mut is_bytes = false;
    let mut patterns = Vec::new();
    for (at, whole, piece) in lark::pieces(text) {
        match piece {
            Piece::Regex { pattern, flags } => {
                let flags = if flags.is_empty() { String::new() } else { format!("(?{flags})") };
                let rewritten = ascii(&format!("{flags}{pattern}")).map_err(|why| {
                    let line = 1 + text[..at].matches('\n').count();
                    refused(field, Stop::Other(format!("line {line}, /{}/: {why}", escape::name(pattern))))
                })?;
                let place = at + 1..at + 1 + pattern.len();
                patterns.push((place, rewritten[flags.len()..].to_owned()));
            }
            Piece::Json { keyword: "%llguidance", value } => is_bytes |= value["allow_invalid_utf8"] == true,
            Piece::Json { keyword: "%json", value } => {
                found.push((
                    at + "%json".len()..at + whole.len(),
                    format!(" {}", schema::checked(&value, field)?),
                ));
            }
            _ => {}
        }
    }
    if !is_bytes {
        found.extend(patterns);
        found.sort_by_key(|(range, _)| range.start);
    }
    Ok(replaced(text, found))
}

/// A text with other texts in place of its parts, which are in order.
fn replaced(text: &str, parts: Vec<(Range<usize>, String)>) -> String {
    let (mut out, mut end) = (String::with_capacity(text.len()), 0);
    for (range, part) in parts {
        out.push_str(&text[end..range.start]);
        out.push_str(&part);
        end = range.end;
    }
    out + &text[end..]
}

/// Walks a pattern from its beginning to its end, as its flags take effect.
struct Walk<'a> {
    pattern: &'a str,
    ignores_case: bool,
    is_unicode: bool,
    /// The classes to write anew, and how.
    found: Vec<(Range<usize>, String)>,
    has_boundary: bool,
}

impl Walk<'_> {
    fn expression(&mut self, expression: &Ast) {
        match expression {
            Ast::Flags(set) => self.set(&set.flags),
            Ast::Assertion(assertion) => {
                use AssertionKind::{EndLine, EndText, StartLine, StartText};
                self.has_boundary |= !matches!(assertion.kind, StartLine | StartText | EndLine | EndText);
            }
            Ast::ClassPerl(class) => self.replace(expression, |_| Some(perl(class))),
            Ast::ClassBracketed(class) if names_perl(&class.kind) => {
                self.replace(expression, |walk| walk.bracketed(class));
            }
            Ast::Repetition(repetition) => self.expression(&repetition.ast),
            Ast::Group(group) => {
                let outside = (self.ignores_case, self.is_unicode);
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    self.set(flags);
                }
                self.expression(&group.ast);
                (self.ignores_case, self.is_unicode) = outside;
            }
            Ast::Alternation(all) => all.asts.iter().for_each(|part| self.expression(part)),
            Ast::Concat(all) => all.asts.iter().for_each(|part| self.expression(part)),
            _ => {}
        }
    }

    fn set(&mut self, flags: &Flags) {
        self.ignores_case = flags.flag_state(Flag::CaseInsensitive).unwrap_or(self.ignores_case);
        self.is_unicode = flags.flag_state(Flag::Unicode).unwrap_or(self.is_unicode);
    }

    /// Without Unicode the classes are ASCII already, and a set of bytes.
    fn replace(&mut self, class: &Ast, set: impl FnOnce(&Self) -> Option<ClassUnicode>) {
        if self.is_unicode
            && let Some(set) = set(self)
        {
            let span = class.span();
            let written = written(&set);
            let written = if self.ignores_case { format!("(?-i:{written})") } else { written };
            self.found.push((span.start.offset..span.end.offset, written));
        }
    }

    fn bracketed(&self, class: &ClassBracketed) -> Option<ClassUnicode> {
        let mut set = self.set_of(&class.kind)?;
        if class.negated {
            set.negate();
        }
        Some(set)
    }

    fn set_of(&self, set: &ClassSet) -> Option<ClassUnicode> {
        match set {
            ClassSet::Item(item) => self.item(item),
            ClassSet::BinaryOp(operation) => {
                let (mut left, right) = (self.set_of(&operation.lhs)?, self.set_of(&operation.rhs)?);
                match operation.kind {
                    ClassSetBinaryOpKind::Intersection => left.intersect(&right),
                    ClassSetBinaryOpKind::Difference => left.difference(&right),
                    ClassSetBinaryOpKind::SymmetricDifference => left.symmetric_difference(&right),
                }
                Some(left)
            }
        }
    }

    fn item(&self, item: &ClassSetItem) -> Option<ClassUnicode> {
        match item {
            ClassSetItem::Empty(_) => Some(ClassUnicode::empty()),
            ClassSetItem::Perl(class) => Some(perl(class)),
            ClassSetItem::Bracketed(class) => self.bracketed(class),
            ClassSetItem::Union(union) => {
                let mut all = ClassUnicode::empty();
                for item in &union.items {
                    all.union(&self.item(item)?);
                }
                Some(all)
            }
            // A letter, a range, or a class with a name.
            item => {
                let alone =
                    ClassBracketed { span: *item.span(), negated: false, kind: ClassSet::Item(item.clone()) };
                let mut translator = TranslatorBuilder::new().case_insensitive(self.ignores_case).build();
                characters(&translator.translate(self.pattern, &Ast::class_bracketed(alone)).ok()?)
            }
        }
    }
}

/// The characters of a class, which may be a literal when it has one.
fn characters(class: &Hir) -> Option<ClassUnicode> {
    match class.kind() {
        HirKind::Class(Class::Unicode(set)) => Some(set.clone()),
        HirKind::Class(Class::Bytes(set)) => set.to_unicode_class(),
        HirKind::Literal(literal) => {
            let mut letters = std::str::from_utf8(&literal.0).ok()?.chars();
            let letter = letters.next()?;
            Some(ClassUnicode::new([ClassUnicodeRange::new(letter, letter)]))
        }
        _ => None,
    }
}

fn perl(class: &ClassPerl) -> ClassUnicode {
    let ranges: &[(char, char)] = match class.kind {
        ClassPerlKind::Digit => &[('0', '9')],
        ClassPerlKind::Space => &[('\t', '\r'), (' ', ' ')],
        ClassPerlKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
    };
    let mut set = ClassUnicode::new(ranges.iter().map(|(start, end)| ClassUnicodeRange::new(*start, *end)));
    if class.negated {
        set.negate();
    }
    set
}

fn names_perl(set: &ClassSet) -> bool {
    match set {
        ClassSet::Item(item) => item_names_perl(item),
        ClassSet::BinaryOp(operation) => names_perl(&operation.lhs) || names_perl(&operation.rhs),
    }
}

fn item_names_perl(item: &ClassSetItem) -> bool {
    match item {
        ClassSetItem::Perl(_) => true,
        ClassSetItem::Bracketed(class) => names_perl(&class.kind),
        ClassSetItem::Union(union) => union.items.iter().any(item_names_perl),
        _ => false,
    }
}

/// A class of these characters, also where whitespace is ignored.
fn written(set: &ClassUnicode) -> String {
    if set.ranges().is_empty() {
        return "[a&&b]".to_owned();
    }
    let letter = |letter: char| match letter {
        '0'..='9' | 'A'..='Z' | 'a'..='z' => letter.to_string(),
        _ => format!("\\x{{{:X}}}", u32::from(letter)),
    };
    let ranges = set.ranges().iter().map(|range| match (range.start(), range.end()) {
        (start, end) if start == end => letter(start),
        (start, end) => format!("{}-{}", letter(start), letter(end)),
    });
    format!("[{}]", ranges.collect::<String>())
}
