//! Rewrites the expressions of a tag: operators, subscripts, methods and dicts become filters that charge the budget.
//!
//! minijinja's own cannot be counted or limited from outside, and some differ from Python's. `a + b - c` becomes
//! `(a|_operate('+', b, '-', c))`. This is no grammar of Jinja: what needs no filter is passed on as it stands, and
//! minijinja judges it.

use super::lexer::{Kind, Token};

type Result<T> = std::result::Result<T, String>;

/// The deepest nesting of brackets: below minijinja's limit.
const MAX_DEPTH: usize = 40;
/// The operators that become filters, lowest precedence first.
pub(super) const LEVELS: [&[&str]; 5] = [
    &["==", "!=", "<", "<=", ">", ">=", "in", "not in"],
    &["+", "-"],
    &["~"],
    &["*", "/", "//", "%"],
    &["**"],
];
/// What stands between operands and is passed on.
const PASSED: [&str; 8] = ["if", "else", "and", "or", "not", "recursive", "*", "**"];
/// Attributes that are methods of a dict, even if the dict has such a key.
const DICT_METHODS: &str = "clear copy fromkeys get items keys pop popitem setdefault update values";

/// Reads the tokens of a tag from left to right.
pub(super) struct Parser<'t, 's> {
    pub(super) tokens: &'t [Token<'s>],
    depth: usize,
}

impl<'t, 's> Parser<'t, 's> {
    pub(super) fn new(tokens: &'t [Token<'s>]) -> Self {
        Self { tokens, depth: 0 }
    }

    /// All tokens, as expressions with commas between them.
    pub(super) fn all(mut self) -> Result<String> {
        let items = self.items(false)?;
        if items.is_empty() || !self.tokens.is_empty() { self.unexpected("an expression") } else { Ok(items) }
    }

    fn skip(&mut self, text: &str) -> bool {
        let found = self.tokens.first().is_some_and(|token| token.is(text));
        self.tokens = &self.tokens[usize::from(found)..];
        found
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.skip(sign) { Ok(()) } else { self.unexpected(sign) }
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let found = self.tokens.first().map_or("end of input", |token| token.text);
        Err(format!("unexpected `{found}`, expected {wanted}"))
    }

    fn take(&mut self, wanted: &str, kinds: &[Kind]) -> Result<&'s str> {
        let Some(token) = self.tokens.first().filter(|token| kinds.contains(&token.kind)) else {
            return self.unexpected(wanted);
        };
        self.tokens = &self.tokens[1..];
        Ok(token.text)
    }

    /// Fails when brackets or signs are nested too deep.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(format!("expressions may be nested {MAX_DEPTH} deep"))
        } else {
            Ok(())
        }
    }

    /// Expressions with commas between them, up to the end of their bracket; if `paid`, each is charged.
    fn items(&mut self, paid: bool) -> Result<String> {
        self.enter()?;
        let mut items = String::new();
        let mut names = Vec::new();
        while self.tokens.first().is_some_and(|token| ![")", "]", "}", ":"].contains(&token.text)) {
            if let [name, equals, ..] = self.tokens
                && equals.is("=")
            {
                if names.contains(&name.text) {
                    return Err(format!("`{}` is given twice", name.text));
                }
                names.push(name.text);
                items.extend([name.text, "="]);
                self.tokens = &self.tokens[2..];
            }
            let item = self.item()?;
            let (open, close) = if paid && !item.starts_with('*') { ("(", "|_pay)") } else { ("", "") };
            items.extend([open, &item, close]);
            if self.skip(",") {
                items += ", ";
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    /// Operands up to a comma, a colon or a closing bracket.
    fn item(&mut self) -> Result<String> {
        let mut item = String::new();
        while let Some(token) = self.tokens.first() {
            match token.text {
                "," | ":" | ")" | "]" | "}" => break,
                // What is spread is read as a whole.
                "*" | "**" => {
                    let sign = self.take("", &[Kind::Sign])?;
                    item.extend([sign, "(", &self.binary(0)?, "|_spread)"]);
                }
                word if PASSED.contains(&word) => item.extend([" ", self.take("", &[Kind::Name])?, " "]),
                _ => item.extend([&*self.binary(0)?, " "]),
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
        if let [not, operator, ..] = self.tokens
            && not.is("not")
            && operator.is("in")
            && operators.contains(&"not in")
        {
            self.tokens = &self.tokens[2..];
            return Some("not in");
        }
        operators.iter().copied().find(|operator| self.skip(operator))
    }

    /// An operand with its attributes, subscripts and calls, and if `filtered`, its filters and tests.
    fn operand(&mut self, filtered: bool) -> Result<String> {
        let mut value = if let Some(sign) = ["-", "+"].into_iter().find(|sign| self.skip(sign)) {
            self.enter()?;
            let value = self.operand(false)?;
            self.depth -= 1;
            if sign == "-" { format!("(-({value}|_number))") } else { format!("({value}|_number)") }
        } else {
            self.primary()?
        };
        loop {
            value = if self.skip(".") {
                self.attribute(&value)?
            } else if self.skip("[") {
                self.subscript(&value)?
            } else if self.skip("(") {
                format!("{value}({})", self.arguments(true)?)
            } else if filtered && self.skip("|") {
                let name = self.take("a name", &[Kind::Name])?;
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
        let Some(token) = self.tokens.first() else { return self.unexpected("an expression") };
        match token.text {
            "(" | "[" => {
                let open = self.take("", &[Kind::Sign])?;
                let items = self.items(false)?;
                let close = if open == "(" { ")" } else { "]" };
                self.expect(close)?;
                Ok(format!("{open}{items}{close}"))
            }
            "{" => {
                self.expect("{")?;
                let mut parts = String::new();
                while !self.skip("}") {
                    let key = self.item()?;
                    self.expect(":")?;
                    parts.extend(["(", &key, "|_key): ", &self.item()?, ", "]);
                    if !self.skip(",") {
                        self.expect("}")?;
                        break;
                    }
                }
                Ok(format!("{{{parts}}}"))
            }
            _ if token.kind == Kind::Text => {
                let mut text = String::new();
                while self.tokens.first().is_some_and(|token| token.kind == Kind::Text) {
                    text.extend([self.take("", &[Kind::Text])?, " "]);
                }
                Ok(text)
            }
            _ => self.take("an expression", &[Kind::Name, Kind::Number]).map(str::to_owned),
        }
    }

    fn attribute(&mut self, value: &str) -> Result<String> {
        let name = self.take("a name", &[Kind::Name, Kind::Number])?;
        if self.skip("(") {
            let arguments = self.arguments(false)?;
            return Ok(format!("({value}|_call('{name}', {arguments}))"));
        }
        Ok(if name.starts_with(|char: char| char.is_ascii_digit()) {
            format!("({value}|_item({name}))")
        } else if DICT_METHODS.split(' ').any(|method| method == name) {
            format!("({value}|_method('{name}'))")
        } else {
            format!("{value}.{name}")
        })
    }

    fn subscript(&mut self, value: &str) -> Result<String> {
        // A name or a small number is cheap, and errors can tell it.
        if let [key, end, ..] = self.tokens
            && end.is("]")
            && (key.kind == Kind::Text || key.kind == Kind::Number && key.text.len() < 4)
        {
            self.tokens = &self.tokens[2..];
            return Ok(format!("{value}[{}]", key.text));
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
        self.expect(")")?;
        Ok(arguments)
    }

    fn test(&mut self, value: &str) -> Result<String> {
        let not = if self.skip("not") { "not " } else { "" };
        let name = self.take("a name", &[Kind::Name])?;
        let has_argument = self.tokens.first().is_some_and(|token| match token.kind {
            Kind::Name => !["else", "or", "and", "if", "in", "not", "recursive", "is"].contains(&token.text),
            Kind::Sign => ["[", "{"].contains(&token.text),
            _ => true,
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
