//! Jinja's expressions, with the operators that may make or look through much written as filters.
//!
//! minijinja's own operators cannot be counted or limited from outside, and some differ from Python's. So `a ~ b` becomes
//! `(a|_cat(b))`, and the filter does what Python does and pays for it. The grammar and its precedences are Jinja's. What
//! is returned is a name, a constant or in brackets, so that it can stand anywhere.

use super::lexer::{Kind, Token};

type Result<T> = std::result::Result<T, String>;

/// Expressions within each other, at most: below minijinja's limit.
const MAX_DEPTH: usize = 40;
const CONSTANTS: [&str; 6] = ["true", "True", "false", "False", "none", "None"];
/// Attributes that are methods of a dict, also where the dict has such a key.
const DICT_METHODS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// Reads the tokens of a tag from left to right.
pub(super) struct Parser<'t, 's> {
    pub(super) tokens: &'t [Token<'s>],
    depth: usize,
    /// Lines that began before tokens that were left out.
    lines: usize,
}

impl<'t, 's> Parser<'t, 's> {
    pub(super) fn new(tokens: &'t [Token<'s>]) -> Self {
        Self { tokens, depth: 0, lines: 0 }
    }

    /// The lines that are still to be written, when nothing may be left.
    pub(super) fn finish(&mut self) -> Result<String> {
        match self.tokens.first() {
            None => Ok("\n".repeat(std::mem::take(&mut self.lines))),
            Some(token) => Err(format!("unexpected `{}`", token.text)),
        }
    }

    pub(super) fn at(&self, kind: Kind, text: &str) -> bool {
        self.tokens.first().is_some_and(|token| token.is(kind, text))
    }

    /// Leaves the next token out, if it is this one.
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

    /// The next token, with the lines before it.
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
        let mut value = self.or()?;
        while conditional && self.skip(Kind::Name, "if") {
            let condition = self.or()?;
            value = if self.skip(Kind::Name, "else") {
                format!("({value} if {condition} else {})", self.expression(true)?)
            } else {
                format!("({value} if {condition})")
            };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn or(&mut self) -> Result<String> {
        self.logical("or", |this| this.logical("and", Self::not))
    }

    fn logical(
        &mut self,
        operator: &str,
        mut operand: impl FnMut(&mut Self) -> Result<String>,
    ) -> Result<String> {
        let mut operands = vec![operand(self)?];
        while self.skip(Kind::Name, operator) {
            operands.push(operand(self)?);
        }
        if operands.len() == 1 {
            return Ok(operands.remove(0));
        }
        Ok(format!("({})", operands.join(&format!(" {operator} "))))
    }

    fn not(&mut self) -> Result<String> {
        let mut negations = 0;
        while self.skip(Kind::Name, "not") {
            negations += 1;
        }
        let value = self.comparison()?;
        Ok(match negations {
            0 => value,
            // Twice is a truth value.
            _ if negations % 2 == 0 => format!("(not (not {value}))"),
            _ => format!("(not {value})"),
        })
    }

    fn comparison(&mut self) -> Result<String> {
        let left = self.sum()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.comparison_operator() {
            rest.push((operator, self.sum()?));
        }
        // To compare with a constant costs nothing.
        if let [(operator @ ("==" | "!="), right)] = rest.as_slice()
            && is_constant(right)
        {
            return Ok(format!("({left} {operator} {right})"));
        }
        Ok(chain("_compare", left, &rest))
    }

    fn comparison_operator(&mut self) -> Option<&'s str> {
        let token = self.tokens.first()?;
        if token.is(Kind::Name, "not") && self.tokens.get(1)?.is(Kind::Name, "in") {
            self.skip(Kind::Name, "not");
            self.skip(Kind::Name, "in");
            return Some("not in");
        }
        let is_operator = match token.kind {
            Kind::Sign => ["==", "!=", "<", "<=", ">", ">="].contains(&token.text),
            kind => kind == Kind::Name && token.text == "in",
        };
        is_operator.then(|| {
            self.skip(token.kind, token.text);
            token.text
        })
    }

    /// Operands with operators between them, from left to right.
    fn operators(
        &mut self,
        filter: &str,
        operators: &[&'static str],
        operand: fn(&mut Self) -> Result<String>,
    ) -> Result<String> {
        let left = operand(self)?;
        let mut rest = Vec::new();
        while let Some(operator) = operators.iter().copied().find(|operator| self.skip(Kind::Sign, operator))
        {
            rest.push((operator, operand(self)?));
        }
        Ok(chain(filter, left, &rest))
    }

    fn sum(&mut self) -> Result<String> {
        self.operators("_arithmetic", &["+", "-"], Self::concatenation)
    }

    fn concatenation(&mut self) -> Result<String> {
        self.operators("_arithmetic", &["~"], Self::product)
    }

    fn product(&mut self) -> Result<String> {
        self.operators("_arithmetic", &["*", "//", "/", "%"], Self::power)
    }

    fn power(&mut self) -> Result<String> {
        self.operators("_arithmetic", &["**"], |this| this.unary(true))
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
                        let pair = match is_constant(&key) {
                            true => format!("{key}: {value}"),
                            false => format!("({key}|_key): {value}"),
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

    /// Parts with commas between them, up to a sign.
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
        Ok(match DICT_METHODS.contains(&bare) {
            true => format!("({value}|_method('{bare}'))"),
            false => format!("{value}.{name}"),
        })
    }

    fn subscript(&mut self, value: &str) -> Result<String> {
        let mut bounds = [const { None }; 3];
        let mut place = 0;
        loop {
            if self.skip(Kind::Sign, "]") {
                break;
            }
            if self.skip(Kind::Sign, ":") {
                place += 1;
            } else if place < 3 && bounds[place].is_none() {
                bounds[place] = Some(self.expression(true)?);
            } else {
                return Err(self.unexpected("`]`"));
            }
        }
        match (place, bounds) {
            // Cheap, and an error names it.
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

    /// Arguments up to the closing bracket. To hand them to a value whose name is known may cost what they hold.
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
        Ok(match self.skip(Kind::Sign, "(") {
            true => format!("{name}({})", self.arguments(false)?),
            false => name,
        })
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

/// A filter whose arguments are operators and operands; the operand itself without any.
fn chain(filter: &str, left: String, rest: &[(&str, String)]) -> String {
    if rest.is_empty() {
        return left;
    }
    let rest: Vec<String> =
        rest.iter().map(|(operator, operand)| format!("'{operator}', {operand}")).collect();
    format!("({left}|{filter}({}))", rest.join(", "))
}

/// A new list, tuple or dict; one of constants is made once, when the template is read.
fn built(items: &[String], text: &str) -> String {
    if items.iter().all(|item| is_constant(item)) { text.to_owned() } else { format!("({text}|_new)") }
}

pub(super) fn is_constant(value: &str) -> bool {
    let value = value.trim_start();
    value.starts_with(|char: char| "'\"".contains(char) || char.is_ascii_digit())
        || value.starts_with("(-")
        || CONSTANTS.contains(&value)
}
