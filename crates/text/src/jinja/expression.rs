//! Rewrites the expressions of a tag where minijinja lacks what templates use, or bounds nothing.
//!
//! These become filters: the operators `* / // % **`, because minijinja formats no text by `%` and repeats
//! lists without counting; comparisons by order, because it orders what Python refuses to; the operands of
//! `~`, which are written as Python writes them; lists, dicts and tuples, whose size is checked when they are
//! made; signs, which Python gives to truth values too; and `+` beside a filter that marks texts as safe, because a
//! marked text escapes what is added to it. All else is passed on as it stands, and minijinja judges it.

use super::lexer::{is_name, is_number, is_sign, is_text};

type Result<T> = std::result::Result<T, String>;

/// The operators that become filters.
const PRODUCTS: [&str; 4] = ["*", "/", "//", "%"];
/// Those of comparisons, and which of them tell an order.
const COMPARISONS: [&str; 8] = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"];
const ORDERS: [&str; 4] = ["<", "<=", ">", ">="];
/// Words that stand between operands, and the sign behind the name of an argument.
const BETWEEN: [&str; 7] = ["not", "if", "else", "and", "or", "recursive", "="];
/// The filters that mark a text as safe.
const MARKING: [&str; 4] = ["e", "escape", "forceescape", "safe"];
const CLOSING: [&str; 5] = [",", ":", ")", "]", "}"];

/// Reads the tokens of a tag from left to right.
pub(super) struct Parser<'t, 's> {
    tokens: &'t [&'s str],
    /// Whether a text is marked as safe in them.
    has_marks: bool,
}

impl<'t, 's> Parser<'t, 's> {
    /// All tokens, as expressions with commas between them.
    pub(super) fn all(tokens: &'t [&'s str]) -> Result<String> {
        let has_marks = tokens.windows(2).any(|pair| pair[0] == "|" && MARKING.contains(&pair[1]));
        let mut parser = Self { tokens, has_marks };
        let items = parser.items()?;
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

    /// Expressions with commas or colons between them, up to the end of their bracket.
    fn items(&mut self) -> Result<String> {
        let (mut items, mut names) = (String::new(), Vec::new());
        while let Some(&token) = self.tokens.first() {
            match token {
                ")" | "]" | "}" => break,
                "," | ":" => {
                    items.extend([token, " "]);
                    self.tokens = &self.tokens[1..];
                    continue;
                }
                name if self.tokens.get(1) == Some(&"=") => {
                    if names.contains(&name) {
                        return Err(format!("`{name}` is given twice"));
                    }
                    names.push(name);
                }
                _ => {}
            }
            items += &self.item()?;
        }
        Ok(items)
    }

    /// Operands with operators between them.
    fn item(&mut self) -> Result<String> {
        let mut item = String::new();
        while let Some(&token) = self.tokens.first() {
            if CLOSING.contains(&token) {
                break;
            }
            // A spread argument has its stars before it.
            if ["*", "**"].contains(&token) || BETWEEN.contains(&token) {
                item.extend([" ", token, " "]);
                self.tokens = &self.tokens[1..];
            } else {
                item.extend([&*self.comparison()?, " "]);
            }
        }
        Ok(item)
    }

    /// A chain of comparisons. If it tells an order it is a filter: minijinja orders values of different
    /// types.
    fn comparison(&mut self) -> Result<String> {
        let first = self.sum()?;
        let (mut native, mut filter, mut has_order) = (first.clone(), String::new(), false);
        while let Some(operator) = COMPARISONS.into_iter().find(|operator| {
            let words = operator.split(' ');
            words.clone().eq(self.tokens.iter().copied().take(words.count()))
        }) {
            self.tokens = &self.tokens[operator.split(' ').count()..];
            let value = self.sum()?;
            native.extend([" ", operator, " ", &value]);
            filter.extend(["'", operator, "', ", &value, ", "]);
            has_order |= ORDERS.contains(&operator);
        }
        Ok(if has_order { format!("(({first})|_compare({filter}))") } else { native })
    }

    /// Operands with `+ -` between them.
    fn sum(&mut self) -> Result<String> {
        let mut sum = self.concatenation()?;
        while let Some(operator) = ["+", "-"].into_iter().find(|operator| self.skip(operator)) {
            let value = self.concatenation()?;
            sum = match operator {
                "+" if self.has_marks => format!("(({sum})|_added({value}))"),
                _ => format!("{sum} {operator} {value}"),
            };
        }
        Ok(sum)
    }

    /// Operands with `~` between them.
    fn concatenation(&mut self) -> Result<String> {
        let mut value = self.product()?;
        if self.tokens.first() == Some(&"~") {
            value += "|_text";
        }
        while self.skip("~") {
            value.extend([" ~ ", &self.product()?, "|_text"]);
        }
        Ok(value)
    }

    /// Operands with `* / // %` between them.
    fn product(&mut self) -> Result<String> {
        let value = self.power()?;
        let mut rest = String::new();
        while let Some(operator) = PRODUCTS.into_iter().find(|operator| self.skip(operator)) {
            rest.extend([", '", operator, "', ", &self.power()?]);
        }
        Ok(if rest.is_empty() { value } else { format!("({value}|_product({}))", &rest[2..]) })
    }

    fn power(&mut self) -> Result<String> {
        let mut value = self.operand(true)?;
        while self.skip("**") {
            value = format!("({value}|_product('**', {}))", self.operand(true)?);
        }
        Ok(value)
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
            let sign = if signs.matches('-').count() % 2 == 1 { "-" } else { "" };
            format!("({sign}({}|_number))", self.operand(false)?)
        };
        loop {
            if self.skip(".") {
                let name = self.take("a name", |token| is_name(token) || is_number(token))?;
                value = if is_number(name) { format!("{value}[{name}]") } else { format!("{value}.{name}") };
            } else if self.skip("[") {
                value = format!("{value}[{}]", self.inside("]")?);
            } else if self.skip("(") {
                value = format!("{value}({})", self.inside(")")?);
            } else if filtered && self.skip("|") {
                let name = self.take("a name", is_name)?;
                let arguments = if self.skip("(") { self.inside(")")? } else { String::new() };
                value = format!("{value}|{name}({arguments})");
            } else if filtered && self.skip("is") {
                value = self.test(&value)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// What a bracket holds, after its opening sign.
    fn inside(&mut self, closing: &str) -> Result<String> {
        let items = self.items()?;
        self.take(closing, |token| token == closing).map(|_| items)
    }

    fn primary(&mut self) -> Result<String> {
        for (open, close) in [("[", "]"), ("{", "}"), ("(", ")")] {
            if self.skip(open) {
                return Ok(format!("({open}{}{close}|_sized)", self.inside(close)?));
            }
        }
        let mut text = String::new();
        while let Ok(part) = self.take("", is_text) {
            text.extend([part, " "]);
        }
        if text.is_empty() {
            return self.take("an expression", |token| !is_sign(token)).map(str::to_owned);
        }
        Ok(text)
    }

    fn test(&mut self, value: &str) -> Result<String> {
        let not = if self.skip("not") { "not " } else { "" };
        let name = self.take("a name", is_name)?;
        let has_argument = self.tokens.first().is_some_and(|token| {
            ["[", "{"].contains(token)
                || !(is_sign(token) || BETWEEN.contains(token) || ["in", "is"].contains(token))
        });
        let arguments = if self.skip("(") {
            self.inside(")")?
        } else if has_argument {
            self.operand(false)?
        } else {
            String::new()
        };
        Ok(format!("({value} is {not}{name}({arguments}))"))
    }
}
