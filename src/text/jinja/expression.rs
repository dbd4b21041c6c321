//! Rewrites Jinja's expressions, with filters for the operators that may need much time or memory.
//!
//! minijinja's own operators cannot be counted or limited from outside, and some differ from Python's. So `a ~ b`
//! becomes `(a|_cat(b))`, and the filter does what Python does and charges the budget. The grammar and its
//! precedences are Jinja's. A rewritten expression is a name, a constant or in brackets, so it fits anywhere.

use super::lexer::{Kind, Token};

type Result<T> = std::result::Result<T, String>;

/// The deepest nesting of expressions: below minijinja's limit.
const MAX_DEPTH: usize = 40;
/// The operators, lowest precedence first.
const LEVELS: [&[&str]; 8] = [
    &["or"],
    &["and"],
    &["not"],
    &["==", "!=", "<", "<=", ">", ">=", "in", "not in"],
    &["+", "-"],
    &["~"],
    &["*", "/", "//", "%"],
    &["**"],
];
const CONSTANTS: [&str; 6] = ["true", "True", "false", "False", "none", "None"];
/// Attributes that are methods of a dict, even if the dict has such a key.
const DICT_METHODS: &str = "clear copy fromkeys get items keys pop popitem setdefault update values";

/// Reads the tokens of a tag from left to right.
pub(super) struct Parser<'t, 's> {
    pub(super) tokens: &'t [Token<'s>],
    depth: usize,
    /// The line breaks before skipped tokens.
    lines: usize,
}

impl<'t, 's> Parser<'t, 's> {
    pub(super) fn new(tokens: &'t [Token<'s>]) -> Self {
        Self { tokens, depth: 0, lines: 0 }
    }

    /// Expects the end of the tag, and returns the line breaks that are still to be written.
    pub(super) fn finish(&mut self) -> Result<String> {
        match self.tokens.first() {
            None => Ok("\n".repeat(std::mem::take(&mut self.lines))),
            Some(token) => Err(format!("unexpected `{}`", token.text)),
        }
    }

    pub(super) fn at(&self, kind: Kind, text: &str) -> bool {
        self.tokens.first().is_some_and(|token| token.is(kind, text))
    }

    /// Skips the next token, if it is this one.
    pub(super) fn skip(&mut self, kind: Kind, text: &str) -> bool {
        let found = self.at(kind, text);
        if found {
            self.lines += self.tokens[0].lines;
            self.tokens = &self.tokens[1..];
        }
        found
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<()> {
        if self.skip(Kind::Sign, sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.tokens.first() {
            Some(token) => format!("unexpected `{}`, expected {wanted}", token.text),
            None => format!("unexpected end of input, expected {wanted}"),
        }
    }

    /// The next token, with the line breaks before it.
    pub(super) fn take(&mut self, wanted: &str, is: impl Fn(&Token<'s>) -> bool) -> Result<String> {
        let Some(token) = self.tokens.first().filter(|token| is(token)) else {
            return Err(self.unexpected(wanted));
        };
        self.tokens = &self.tokens[1..];
        Ok("\n".repeat(std::mem::take(&mut self.lines) + token.lines) + token.text)
    }

    pub(super) fn name(&mut self) -> Result<String> {
        self.take("a name", |token| token.kind == Kind::Name)
    }

    /// An expression, or several with commas between them.
    pub(super) fn tuple(&mut self, conditional: bool) -> Result<String> {
        let first = self.expression(conditional)?;
        if !self.at(Kind::Sign, ",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip(Kind::Sign, ",") {
            if self.tokens.is_empty() || self.at(Kind::Sign, ")") || self.at(Kind::Name, "recursive") {
                break;
            }
            items.push(self.expression(conditional)?);
        }
        Ok(built(&items, &format!("({},)", items.join(", "))))
    }

    pub(super) fn expression(&mut self, conditional: bool) -> Result<String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("expressions may be nested {MAX_DEPTH} deep"));
        }
        let mut value = self.binary(0)?;
        while conditional && self.skip(Kind::Name, "if") {
            let condition = self.binary(0)?;
            value = if self.skip(Kind::Name, "else") {
                format!("({value} if {condition} else {})", self.expression(true)?)
            } else {
                format!("({value} if {condition})")
            };
        }
        self.depth -= 1;
        Ok(value)
    }

    /// Operands with operators of a level between them, from left to right.
    fn binary(&mut self, level: usize) -> Result<String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary(true) };
        if *operators == ["not"] {
            let mut negations = 0;
            while self.skip(Kind::Name, "not") {
                negations += 1;
            }
            let value = self.binary(level + 1)?;
            // Two negations make a truth value.
            return Ok(match negations {
                0 => value,
                _ if negations % 2 == 0 => format!("(not (not {value}))"),
                _ => format!("(not {value})"),
            });
        }
        let first = self.binary(level + 1)?;
        let mut rest = Vec::new();
        while let Some(operator) = self.operator(operators) {
            rest.push((operator, self.binary(level + 1)?));
        }
        let joined = |each: &dyn Fn(&(&str, String)) -> String| rest.iter().map(each).collect::<Vec<_>>();
        Ok(match rest.as_slice() {
            [] => first,
            [("and" | "or", _), ..] => {
                let rest = joined(&|(operator, operand)| format!(" {operator} {operand}"));
                format!("({first}{})", rest.concat())
            }
            // Comparing with a constant is free.
            [(operator @ ("==" | "!="), right)] if is_constant(right) => {
                format!("({first} {operator} {right})")
            }
            _ => {
                let filter = if operators.contains(&"==") { "_compare" } else { "_arithmetic" };
                let rest = joined(&|(operator, operand)| format!("'{operator}', {operand}"));
                format!("({first}|{filter}({}))", rest.join(", "))
            }
        })
    }

    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let is_next = |operator: &&&str| match **operator {
            "not in" => {
                self.at(Kind::Name, "not")
                    && self.tokens.get(1).is_some_and(|token| token.is(Kind::Name, "in"))
            }
            word => self.at(Kind::Sign, word) || self.at(Kind::Name, word),
        };
        let operator = *operators.iter().find(is_next)?;
        for word in operator.split(' ') {
            let _ = self.skip(Kind::Name, word) || self.skip(Kind::Sign, word);
        }
        Some(operator)
    }

    fn unary(&mut self, with_filters: bool) -> Result<String> {
        for (sign, filter) in [("-", "_negative"), ("+", "_positive")] {
            if self.skip(Kind::Sign, sign) {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(format!("expressions may be nested {MAX_DEPTH} deep"));
                }
                let value = self.unary(false)?;
                self.depth -= 1;
                let is_number = value.starts_with(|char: char| char.is_ascii_digit());
                let value =
                    if is_number { format!("({sign}{value})") } else { format!("({value}|{filter})") };
                let value = self.postfix(value)?;
                return if with_filters { self.filters(value) } else { Ok(value) };
            }
        }
        let value = self.primary()?;
        let value = self.postfix(value)?;
        if with_filters { self.filters(value) } else { Ok(value) }
    }

    fn primary(&mut self) -> Result<String> {
        let Some(token) = self.tokens.first() else { return Err(self.unexpected("expression")) };
        match token.kind {
            Kind::Name | Kind::Number => self.take("", |_| true),
            Kind::Text => {
                let mut text = self.take("", |_| true)?;
                while self.tokens.first().is_some_and(|token| token.kind == Kind::Text) {
                    text = format!("{text} {}", self.take("", |_| true)?);
                }
                Ok(text)
            }
            Kind::Sign => match token.text {
                "(" => {
                    self.expect("(")?;
                    let value = if self.at(Kind::Sign, ")") { "()".to_owned() } else { self.tuple(true)? };
                    self.expect(")")?;
                    Ok(value)
                }
                "[" => {
                    self.expect("[")?;
                    let items = self.list("]", |this| this.expression(true))?;
                    Ok(built(&items, &format!("[{}]", items.join(", "))))
                }
                "{" => {
                    self.expect("{")?;
                    let mut values = Vec::new();
                    let pairs = self.list("}", |this| {
                        let key = this.expression(true)?;
                        this.expect(":")?;
                        let value = this.expression(true)?;
                        let pair = if is_constant(&key) {
                            format!("{key}: {value}")
                        } else {
                            format!("({key}|_key): {value}")
                        };
                        values.extend([key, value]);
                        Ok(pair)
                    })?;
                    Ok(built(&values, &format!("{{{}}}", pairs.join(", "))))
                }
                _ => Err(self.unexpected("expression")),
            },
        }
    }

    /// Comma-separated parts, up to a sign.
    pub(super) fn list(
        &mut self,
        end: &str,
        mut part: impl FnMut(&mut Self) -> Result<String>,
    ) -> Result<Vec<String>> {
        let mut parts = Vec::new();
        while !self.skip(Kind::Sign, end) {
            if !parts.is_empty() {
                self.expect(",")?;
                if self.skip(Kind::Sign, end) {
                    break;
                }
            }
            parts.push(part(self)?);
        }
        Ok(parts)
    }

    fn postfix(&mut self, mut value: String) -> Result<String> {
        loop {
            if self.skip(Kind::Sign, ".") {
                value = self.attribute(&value)?;
            } else if self.skip(Kind::Sign, "[") {
                value = self.subscript(&value)?;
            } else if self.skip(Kind::Sign, "(") {
                let arguments = self.arguments(true)?;
                value = format!("{value}({arguments})");
            } else {
                return Ok(value);
            }
        }
    }

    fn attribute(&mut self, value: &str) -> Result<String> {
        let name = self.take("a name", |token| matches!(token.kind, Kind::Name | Kind::Number))?;
        let bare = name.trim_start();
        if bare.starts_with(|char: char| char.is_ascii_digit()) {
            return Ok(format!("({value}|_item({name}))"));
        }
        if self.skip(Kind::Sign, "(") {
            let arguments = self.arguments(false)?;
            let comma = if arguments.is_empty() { "" } else { ", " };
            return Ok(format!("({value}|_call('{bare}'{comma}{arguments}))"));
        }
        if DICT_METHODS.split(' ').any(|method| method == bare) {
            return Ok(format!("({value}|_method('{bare}'))"));
        }
        Ok(format!("{value}.{name}"))
    }

    fn subscript(&mut self, value: &str) -> Result<String> {
        let mut bounds = [const { None }; 3];
        let mut part = 0;
        loop {
            if self.skip(Kind::Sign, "]") {
                break;
            }
            if self.skip(Kind::Sign, ":") {
                part += 1;
            } else if part < 3 && bounds[part].is_none() {
                bounds[part] = Some(self.expression(true)?);
            } else {
                return Err(self.unexpected("`]`"));
            }
        }
        match (part, bounds) {
            // Left as it is: it is cheap, and errors name it.
            (0, [Some(key), _, _])
                if key.len() < 4 && key.parse::<u32>().is_ok() || key.starts_with(['"', '\'']) =>
            {
                Ok(format!("{value}[{key}]"))
            }
            (0, [Some(key), _, _]) => Ok(format!("({value}|_item({key}))")),
            (1 | 2, bounds) => {
                let bounds = bounds.map(|bound| bound.unwrap_or_else(|| "none".to_owned()));
                Ok(format!("({value}|_slice({}))", bounds.join(", ")))
            }
            _ => Err("a subscript takes a key or a slice".to_owned()),
        }
    }

    /// The arguments up to the closing bracket; with `paid`, the budget is charged for their contents.
    pub(super) fn arguments(&mut self, paid: bool) -> Result<String> {
        let pay =
            |value: String| if !paid || is_constant(&value) { value } else { format!("({value}|_pay)") };
        let parts = self.list(")", |this| {
            if this.skip(Kind::Sign, "**") {
                return Ok(format!("**({}|_pay)", this.expression(true)?));
            }
            if this.skip(Kind::Sign, "*") {
                return Ok(format!("*({}|_iter)", this.expression(true)?));
            }
            if this.tokens.get(1).is_some_and(|token| token.is(Kind::Sign, "=")) {
                let name = this.name()?;
                this.expect("=")?;
                return Ok(format!("{name}={}", pay(this.expression(true)?)));
            }
            Ok(pay(this.expression(true)?))
        })?;
        let mut names: Vec<&str> = parts.iter().filter_map(|part| keyword(part)).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("an argument is given twice".to_owned());
        }
        Ok(parts.join(", "))
    }

    fn filters(&mut self, mut value: String) -> Result<String> {
        loop {
            if self.skip(Kind::Sign, "|") {
                value = format!("({value}|{})", self.filter()?);
            } else if self.skip(Kind::Name, "is") {
                value = self.test(&value)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// The name of a filter and its arguments.
    pub(super) fn filter(&mut self) -> Result<String> {
        let name = self.name()?;
        if self.skip(Kind::Sign, "(") { Ok(format!("{name}({})", self.arguments(false)?)) } else { Ok(name) }
    }

    fn test(&mut self, value: &str) -> Result<String> {
        let not = if self.skip(Kind::Name, "not") { "not " } else { "" };
        let name = self.name()?;
        if self.skip(Kind::Sign, "(") {
            return Ok(format!("({value} is {not}{name}({}))", self.arguments(false)?));
        }
        let has_argument = self.tokens.first().is_some_and(|token| match token.kind {
            Kind::Name => !["else", "or", "and"].contains(&token.text),
            Kind::Sign => ["(", "[", "{"].contains(&token.text),
            _ => true,
        });
        if !has_argument {
            return Ok(format!("({value} is {not}{name})"));
        }
        if self.at(Kind::Name, "is") {
            return Err("tests cannot follow one another: join them with `and`".to_owned());
        }
        let argument = self.primary()?;
        let argument = self.postfix(argument)?;
        Ok(format!("({value} is {not}{name}({argument}))"))
    }
}

/// The name of a keyword argument.
fn keyword(part: &str) -> Option<&str> {
    let (name, _) = part.split_once('=')?;
    let name = name.trim();
    name.chars().all(|char| char.is_alphanumeric() || char == '_').then_some(name)
}

/// A list, tuple or dict literal; one of constants is built once, when the template is parsed.
fn built(items: &[String], text: &str) -> String {
    if items.iter().all(|item| is_constant(item)) { text.to_owned() } else { format!("({text}|_new)") }
}

pub(super) fn is_constant(value: &str) -> bool {
    let value = value.trim_start();
    value.starts_with(|char: char| "'\"".contains(char) || char.is_ascii_digit())
        || value.starts_with("(-")
        || CONSTANTS.contains(&value)
}
