//! `"{}".format(value)`, as Python formats it.

use std::iter::Peekable;
use std::str::Chars;

use super::arguments::Arguments;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::numbers::{self, Sign};
use super::show::float_repr;
use super::text::{Side, pad};
use super::value::Value;

/// How deep fields may hold fields: in their format.
const MAX_NESTING: u8 = 2;

/// What a field asks for after its colon.
struct Spec {
    fill: char,
    /// `None` where it is not said: numbers go to the right, all else to the left.
    side: Option<Side>,
    /// Zeros go between the sign and the digits.
    after_sign: bool,
    sign: Sign,
    alternate: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// The text with its fields replaced.
pub(super) fn format(
    interpreter: &mut Interpreter<'_>,
    format: &str,
    arguments: &Arguments,
) -> Result<Value> {
    let mut out = String::new();
    let mut automatic = 0;
    fill_in(interpreter, format, arguments, &mut automatic, MAX_NESTING, &mut out)?;
    Ok(Value::Str(out.into()))
}

fn fill_in(
    interpreter: &mut Interpreter<'_>,
    format: &str,
    arguments: &Arguments,
    automatic: &mut usize,
    nesting: u8,
    out: &mut String,
) -> Result<()> {
    if nesting == 0 {
        return Err(Failure::new("format: fields are nested too deep"));
    }
    let mut chars = format.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '{' if chars.next_if_eq(&'{').is_some() => interpreter.budget.push(out, "{")?,
            '}' if chars.next_if_eq(&'}').is_some() => interpreter.budget.push(out, "}")?,
            '}' => return Err(Failure::new("format: a single `}`")),
            '{' => {
                let field = field(&mut chars)?;
                let (name, conversion, spec) = parts(&field);
                let value = find(interpreter, name, arguments, automatic)?;
                let value = match conversion {
                    None => value,
                    Some('s') => Value::Str(interpreter.to_text(&value)?),
                    Some('r' | 'a') => {
                        let mut text = String::new();
                        interpreter.show_repr(&value, &mut text)?;
                        Value::Str(text.into())
                    }
                    Some(other) => return Err(Failure::new(format!("format: there is no `!{other}`"))),
                };
                let mut filled = String::new();
                if !spec.is_empty() {
                    fill_in(interpreter, spec, arguments, automatic, nesting - 1, &mut filled)?;
                }
                let text = formatted(interpreter, &value, &filled)?;
                interpreter.budget.push(out, &text)?;
            }
            _ => {
                interpreter.budget.charge_bytes(char.len_utf8())?;
                out.push(char);
            }
        }
    }
    Ok(())
}

/// What stands between the braces.
fn field(chars: &mut Peekable<Chars<'_>>) -> Result<String> {
    let mut field = String::new();
    let mut open = 0;
    for char in chars.by_ref() {
        match char {
            '{' => open += 1,
            '}' if open == 0 => return Ok(field),
            '}' => open -= 1,
            _ => {}
        }
        field.push(char);
    }
    Err(Failure::new("format: a single `{`"))
}

/// The name of a field, the letter after `!`, and what stands after `:`.
fn parts(field: &str) -> (&str, Option<char>, &str) {
    // A name may hold a colon in brackets, as a key.
    let mut in_brackets = false;
    let end = field.find(|char| {
        match char {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            _ => {}
        }
        !in_brackets && matches!(char, '!' | ':')
    });
    let (name, rest) = field.split_at(end.unwrap_or(field.len()));
    match rest.strip_prefix('!') {
        Some(rest) => {
            let conversion = rest.chars().next();
            let rest = &rest[conversion.map_or(0, char::len_utf8)..];
            (name, conversion, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => (name, None, rest.strip_prefix(':').unwrap_or(rest)),
    }
}

/// The value that a name such as `0`, `x.y` or `x[key]` stands for.
fn find(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments,
    automatic: &mut usize,
) -> Result<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let missing = || Failure::new(format!("format: there is no value `{first}`"));
    let place = if first.is_empty() {
        *automatic += 1;
        Some(*automatic - 1)
    } else {
        first.parse().ok()
    };
    let found = match place {
        Some(place) => arguments.positional.get(place),
        None => arguments.keywords.iter().find(|(name, _)| **name == *first).map(|(_, value)| value),
    };
    let mut value = found.cloned().ok_or_else(missing)?;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            value = interpreter.attribute(&value, &after[..end])?;
            rest = &after[end..];
        } else {
            let end = rest.find(']').ok_or_else(|| Failure::new("format: a `[` has no end"))?;
            let key = &rest[1..end];
            let key = key.parse().map_or_else(|_| Value::str(key), Value::Int);
            value = interpreter.item(&value, &key)?;
            rest = &rest[end + 1..];
        }
        value.must_be_defined()?;
    }
    Ok(value)
}

/// A value in the form that is asked for.
fn formatted(interpreter: &Interpreter<'_>, value: &Value, spec: &str) -> Result<String> {
    if spec.is_empty() {
        return Ok(interpreter.to_text(value)?.to_string());
    }
    let spec = Spec::parse(spec)?;
    interpreter.budget.charge_bytes(spec.width.saturating_mul(spec.fill.len_utf8()))?;
    let (sign, digits) = match value {
        Value::Str(text) => {
            if spec.kind.is_some_and(|kind| kind != 's') || (spec.after_sign && spec.fill != '0') {
                return Err(Failure::new("format: a text takes the format of a text"));
            }
            let text: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
            return Ok(pad(&text, spec.width, spec.fill, spec.side.unwrap_or(Side::Left)));
        }
        Value::Int(number) if !spec.kind.is_some_and(|kind| "eEfFgG%".contains(kind)) => {
            spec.integer(*number)?
        }
        Value::Bool(flag) if spec.kind.is_some() => spec.integer(i128::from(*flag))?,
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
            spec.float(value.as_float().unwrap_or(f64::NAN))?
        }
        _ => {
            value.must_be_defined()?;
            return Err(Failure::new(format!("format: a {} takes no format", value.type_name())));
        }
    };
    if spec.after_sign {
        let width = spec.width.saturating_sub(sign.len());
        return Ok(format!("{sign}{}", pad(&digits, width, spec.fill, Side::Right)));
    }
    Ok(pad(&format!("{sign}{digits}"), spec.width, spec.fill, spec.side.unwrap_or(Side::Right)))
}

impl Spec {
    /// `[[fill]align][sign][#][0][width][grouping][.precision][kind]`
    fn parse(text: &str) -> Result<Self> {
        let chars: Vec<char> = text.chars().collect();
        let is_align = |char: Option<&char>| char.is_some_and(|char| "<>^=".contains(*char));
        let mut place = 0;
        let mut spec = Self {
            fill: ' ',
            side: None,
            after_sign: false,
            sign: Sign::Minus,
            alternate: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        };
        let mut align = None;
        if is_align(chars.get(1)) {
            (spec.fill, align, place) = (chars[0], chars.get(1), 2);
        } else if is_align(chars.first()) {
            (align, place) = (chars.first(), 1);
        }
        match align {
            Some('<') => spec.side = Some(Side::Left),
            Some('>') => spec.side = Some(Side::Right),
            Some('^') => spec.side = Some(Side::Middle),
            Some(_) => spec.after_sign = true,
            None => {}
        }
        let mut take = |wanted: &str| {
            let found = chars.get(place).copied().filter(|char| wanted.contains(*char));
            place += usize::from(found.is_some());
            found
        };
        match take("+- ") {
            Some('+') => spec.sign = Sign::Plus,
            Some(' ') => spec.sign = Sign::Space,
            _ => {}
        }
        spec.alternate = take("#").is_some();
        if take("0").is_some() && align.is_none() {
            (spec.fill, spec.after_sign) = ('0', true);
        }
        let number = |take: &mut dyn FnMut(&str) -> Option<char>| {
            let mut number: Option<usize> = None;
            while let Some(digit) = take("0123456789").and_then(|char| char.to_digit(10)) {
                number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize));
            }
            number
        };
        spec.width = number(&mut take).unwrap_or(0);
        spec.grouping = take(",_");
        if take(".").is_some() {
            let precision = number(&mut take);
            spec.precision =
                Some(precision.ok_or_else(|| Failure::new("format: a `.` has no digits after it"))?);
        }
        spec.kind = take("bcdeEfFgGnosxX%");
        if place < chars.len() {
            return Err(Failure::new(format!(
                "format: `{}` cannot be understood",
                text.chars().take(40).collect::<String>()
            )));
        }
        Ok(spec)
    }

    fn integer(&self, number: i128) -> Result<(String, String)> {
        if self.precision.is_some() {
            return Err(Failure::new("format: whole numbers have no precision"));
        }
        let kind = self.kind.unwrap_or('d');
        if kind == 'c' {
            let char = u32::try_from(number).ok().and_then(char::from_u32);
            let char = char.ok_or_else(|| Failure::new("format: the number stands for no character"))?;
            return Ok((String::new(), char.to_string()));
        }
        if kind == 's' {
            return Err(Failure::new("format: a number takes the format of a number"));
        }
        let group = if matches!(kind, 'd' | 'n') { 3 } else { 4 };
        let digits = self.grouped(&numbers::radix(number.unsigned_abs(), kind), group);
        let prefix = match kind {
            'x' | 'X' | 'o' | 'b' if self.alternate => format!("0{kind}"),
            _ => String::new(),
        };
        Ok((format!("{}{prefix}", numbers::sign(number < 0, self.sign)), digits))
    }

    fn float(&self, number: f64) -> Result<(String, String)> {
        let sign = numbers::sign(number.is_sign_negative() && !number.is_nan(), self.sign).to_owned();
        let size = number.abs();
        let digits = match (self.kind, self.precision) {
            (None, None) => float_repr(size),
            (None, Some(precision)) => {
                let text = numbers::float(size, 'g', precision, false)?;
                // Unlike `g` it keeps a digit after the point.
                if text.contains(['.', 'e', 'n', 'i']) { text } else { text + ".0" }
            }
            (Some('%'), precision) => {
                numbers::float(size * 100.0, 'f', precision.unwrap_or(6), self.alternate)? + "%"
            }
            (Some('n'), precision) => numbers::float(size, 'g', precision.unwrap_or(6), self.alternate)?,
            (Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G')), precision) => {
                numbers::float(size, kind, precision.unwrap_or(6), self.alternate)?
            }
            (Some(kind), _) => return Err(Failure::new(format!("format: a float has no form `{kind}`"))),
        };
        let whole = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
        let (whole, rest) = digits.split_at(whole);
        Ok((sign, self.grouped(whole, 3) + rest))
    }

    /// Digits in groups, from the right.
    fn grouped(&self, digits: &str, size: usize) -> String {
        let Some(separator) = self.grouping else { return digits.to_owned() };
        let mut out = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(size) {
                out.push(separator);
            }
            out.push(digit);
        }
        out
    }
}
