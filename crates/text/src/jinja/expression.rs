//! Rewrites the expressions of a tag: operators, subscripts, methods and keys become filters that charge the budget.
//!
//! minijinja's own cannot all be counted or limited from outside, and some differ from Python's. `a + b - c` becomes
//! `(a|_operate('+', b, '-', c))`. This is no grammar of Jinja: what needs no filter is passed on as it stands, and
//! minijinja judges it.

use super::lexer::{is_name, is_number, is_sign, is_text};

type Result<T> = std::result::Result<T, String>;

/// The operators that become filters, lowest precedence first.
pub(super) const LEVELS: [&[&str]; 5] = [
    &["==", "!=", "<", "<=", ">", ">=", "in", "not in"],
    &["+", "-"],
    &["~"],
    &["*", "/", "//", "%"],
    &["**"],
];
/// Words that stand between operands.
const WORDS: [&str; 6] = ["if", "else", "and", "or", "not", "recursive"];
/// Attributes that are methods of a dict, even if the dict has such a key.
const DICT_METHODS: &str = "clear copy fromkeys get items keys pop popitem setdefault update values";

/// Reads the tokens of a tag from left to right.
pub(super) struct Parser<'t, 's> {
    tokens: &'t [&'s str],
}

impl<'t, 's> Parser<'t, 's> {
    /// All tokens, as expressions with commas between them.
    pub(super) fn all(tokens: &'t [&'s str]) -> Result<String> {
        let mut parser = Self { tokens };
        let items = parser.items(false)?;
        if items.is_empty() || !parser.tokens.is_empty() {
            parser.take("an expression", |_| false)?;
        }
        Ok(items)
    }

    fn skip(&mut self, text: &str) -> bool {
        let found = self.tokens.first() == Some(&text);
        self.tokens = &self.tokens[usize::from(found)..];
        found
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        self.take(sign, |token| token == sign).map(drop)
    }

    fn take(&mut self, wanted: &str, fits: impl Fn(&str) -> bool) -> Result<&'s str> {
        match self.tokens.split_first() {
            Some((token, rest)) if fits(token) => {
                self.tokens = rest;
                Ok(token)
            }
            found => {
                let found = found.map_or("end of input", |(token, _)| token);
                Err(format!("unexpected `{found}`, expected {wanted}"))
            }
        }
    }

    /// Expressions with commas between them, up to the end of their bracket; if `paid`, each is charged.
    fn items(&mut self, paid: bool) -> Result<String> {
        let (mut items, mut names) = (String::new(), Vec::new());
        while self.tokens.first().is_some_and(|token| ![")", "]", "}", ":"].contains(token)) {
            if let [name, "=", rest @ ..] = self.tokens {
                if names.contains(name) {
                    return Err(format!("`{name}` is given twice"));
                }
                names.push(*name);
                items.extend([name, "="]);
                self.tokens = rest;
            }
            let item = self.item()?;
            let (open, close) = if paid && !item.starts_with('*') { ("(", "|_pay)") } else { ("", "") };
            items.extend([open, &item, close]);
            if self.skip(",") {
                items += ", ";
            }
        }
        Ok(items)
    }

    /// Operands up to a comma, a colon or a closing bracket.
    fn item(&mut self) -> Result<String> {
        let mut item = String::new();
        while let Some(&token) = self.tokens.first() {
            if [",", ":", ")", "]", "}"].contains(&token) {
                break;
            }
            // What is spread is read as a whole.
            if self.skip("*") || self.skip("**") {
                item.extend([token, "(", &*self.binary(0)?, "|_spread)"]);
            } else if WORDS.contains(&token) && self.skip(token) {
                item.extend([" ", token, " "]);
            } else {
                item.extend([&*self.binary(0)?, " "]);
            }
        }
        Ok(item)
    }

    /// Operands with operators of a level between them.
    fn binary(&mut self, level: usize) -> Result<String> {
        let Some(operators) = LEVELS.get(level) else { return self.operand(true) };
        let value = self.binary(level + 1)?;
        let mut rest = String::new();
        while let Some(operator) = self.operator(operators) {
            rest.extend([", '", operator, "', ", &self.binary(level + 1)?]);
        }
        let filter = if level == 0 { "_compare" } else { "_operate" };
        Ok(if rest.is_empty() { value } else { format!("({value}|{filter}({}))", &rest[2..]) })
    }

    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let operator = operators.iter().copied().find(|operator| {
            let words = operator.split(' ');
            words.clone().eq(self.tokens.iter().copied().take(words.count()))
        })?;
        self.tokens = &self.tokens[operator.split(' ').count()..];
        Some(operator)
    }

    /// An operand with its attributes, subscripts and calls, and if `filtered`, its filters and tests.
    fn operand(&mut self, filtered: bool) -> Result<String> {
        let mut signs = String::new();
        while let Some(sign) = ["-", "+"].into_iter().find(|sign| self.skip(sign)) {
            signs += sign;
        }
        let mut value = if signs.is_empty() {
            self.primary()?
        } else {
            let is_minus = signs.matches('-').count() % 2 == 1;
            format!("({}({}|_number))", if is_minus { "-" } else { "" }, self.operand(false)?)
        };
        loop {
            value = if self.skip(".") {
                self.attribute(&value)?
            } else if self.skip("[") {
                self.subscript(&value)?
            } else if self.skip("(") {
                format!("{value}({})", self.arguments(true)?)
            } else if filtered && self.skip("|") {
                let name = self.take("a name", is_name)?;
                let arguments = if self.skip("(") { self.arguments(false)? } else { String::new() };
                format!("{value}|{name}({arguments})")
            } else if filtered && self.skip("is") {
                self.test(&value)?
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<String> {
        if self.skip("(") {
            return Ok(format!("({})", self.arguments(false)?));
        }
        if self.skip("[") {
            let items = self.items(false)?;
            return self.expect("]").map(|()| format!("[{items}]"));
        }
        let mut text = String::new();
        if self.skip("{") {
            while !self.skip("}") {
                let key = self.item()?;
                self.expect(":")?;
                text.extend(["(", &key, "|_key): ", &self.item()?, ", "]);
                if !self.skip(",") {
                    self.expect("}")?;
                    break;
                }
            }
            return Ok(format!("{{{text}}}"));
        }
        while let Ok(part) = self.take("", is_text) {
            text.extend([part, " "]);
        }
        if !text.is_empty() {
            return Ok(text);
        }
        self.take("an expression", |token| !is_sign(token)).map(str::to_owned)
    }

    fn attribute(&mut self, value: &str) -> Result<String> {
        let name = self.take("a name", |token| is_name(token) || is_number(token))?;
        if self.skip("(") {
            let arguments = self.arguments(false)?;
            return Ok(format!("({value}|_call('{name}', {arguments}))"));
        }
        Ok(if is_number(name) {
            format!("({value}|_item({name}))")
        } else if DICT_METHODS.split(' ').any(|method| method == name) {
            format!("({value}|_method('{name}'))")
        } else {
            format!("{value}.{name}")
        })
    }

    fn subscript(&mut self, value: &str) -> Result<String> {
        // A name or a small number is cheap, and errors can tell it.
        if let [key, "]", rest @ ..] = self.tokens
            && (is_text(key) || is_number(key) && key.len() < 4)
        {
            self.tokens = rest;
            return Ok(format!("{value}[{key}]"));
        }
        let (mut bounds, mut filter) = (self.item()?, "_item");
        while self.skip(":") {
            filter = "_slice";
            let bound = self.item()?;
            bounds =
                [&*bounds, ", ", &*bound].map(|bound| if bound.is_empty() { "none" } else { bound }).concat();
        }
        self.expect("]")?;
        Ok(format!("({value}|{filter}({bounds}))"))
    }

    /// The arguments of a call, after its opening bracket.
    fn arguments(&mut self, paid: bool) -> Result<String> {
        let arguments = self.items(paid)?;
        self.expect(")").map(|()| arguments)
    }

    fn test(&mut self, value: &str) -> Result<String> {
        let not = if self.skip("not") { "not " } else { "" };
        let name = self.take("a name", is_name)?;
        let has_argument = self.tokens.first().is_some_and(|token| {
            ["[", "{"].contains(token)
                || !(is_sign(token) || WORDS.contains(token) || ["in", "is"].contains(token))
        });
        let arguments = if self.skip("(") {
            self.arguments(false)?
        } else if has_argument {
            self.operand(false)?
        } else {
            String::new()
        };
        Ok(format!("({value} is {not}{name}({arguments}))"))
    }
}
