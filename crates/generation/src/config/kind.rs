//! [`FieldKind`]: what the values of a field are. Python's annotations, JSON schemas, the checks of requests
//! and the words of messages are all made from it.

use serde_json::{Value, json};

use FieldKind::{
    AnyOf, Bool, Described, Float, Id, Int, List, Map, Object, OneOrMany, Optional, Other, Pair, Text, Word,
};

/// The greatest number of tokens that a request may name.
pub const MAX_COUNT: i128 = i32::MAX as i128;

/// The values of a field. Ranges include both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldKind {
    /// True or false.
    Bool,
    /// An integer in this range. To [`MAX_COUNT`] is a number of tokens: the library itself takes more.
    Int(i128, i128),
    /// A number in this range.
    Float(f64, f64),
    /// A text of so many bytes.
    Text(usize, usize),
    /// One of these texts.
    Word(&'static [&'static str]),
    /// A token id.
    Id,
    /// One value, or a list of up to so many.
    OneOrMany(&'static FieldKind, usize),
    /// A list of up to so many values.
    List(&'static FieldKind, usize),
    /// A list of two values.
    Pair(&'static FieldKind, &'static FieldKind),
    /// Up to so many keys with their values. JSON writes keys as texts.
    Map(&'static FieldKind, &'static FieldKind, usize),
    /// An object with any keys.
    Object,
    /// A value of one of these kinds.
    AnyOf(&'static [FieldKind]),
    /// A value, or none.
    Optional(&'static FieldKind),
    /// A value of a kind that these words say better.
    Described(&'static str, &'static FieldKind),
    /// What these words and this annotation say, of one of these types of JSON. Its reader checks more.
    Other(&'static str, &'static str, &'static [&'static str]),
}

impl FieldKind {
    /// Any number.
    pub const NUMBER: Self = Float(f64::NEG_INFINITY, f64::INFINITY);
    /// A number of tokens.
    pub const COUNT: Self = Int(0, MAX_COUNT);
    /// Any text.
    pub const TEXT: Self = Text(0, usize::MAX);
    /// Token ids, as many as there are.
    pub const IDS: Self = List(&Id, usize::MAX);

    /// A JSON schema.
    pub const SCHEMA: Self = Other(
        "a JSON schema: an object, true or false, or the JSON text of one",
        "dict[str, Any] | bool | str | type[Any]",
        &["object", "boolean", "string"],
    );

    /// The type as Python's annotations write it.
    pub fn python(&self) -> String {
        match self {
            Bool => "bool".to_owned(),
            Int(..) | Id => "int".to_owned(),
            Float(..) => "float".to_owned(),
            Text(..) => "str".to_owned(),
            Word(words) => format!("Literal[{}]", quoted(words).join(", ")),
            OneOrMany(kind, _) => format!("{0} | list[{0}]", kind.python()),
            List(kind, _) => format!("list[{}]", kind.python()),
            Pair(first, second) => format!("tuple[{}, {}]", first.python(), second.python()),
            Map(key, value, _) => format!("dict[{}, {}]", key.python(), value.python()),
            Object => "dict[str, Any]".to_owned(),
            AnyOf(kinds) => kinds.iter().map(Self::python).collect::<Vec<_>>().join(" | "),
            Optional(kind) => format!("{} | None", kind.python()),
            Described(_, kind) => kind.python(),
            Other(_, python, _) => (*python).to_owned(),
        }
    }

    /// Valid values in words, to complete "must be …".
    pub fn describe(&self) -> String {
        match self {
            Bool | Word(_) | AnyOf(_) => {
                let choices = self.choices();
                match choices.split_last() {
                    Some((last, [])) => last.clone(),
                    Some((last, others)) => format!("{} or {last}", others.join(", ")),
                    None => String::new(),
                }
            }
            Int(least, MAX_COUNT) => format!("an integer of {least} or more"),
            Int(least, most) => format!("an integer from {} to {}", power(*least), power(*most)),
            Float(least, most) if least.is_infinite() && most.is_infinite() => "a number".to_owned(),
            Float(least, most) => format!("a number from {least} to {most}"),
            Text(0, usize::MAX) => "a text".to_owned(),
            Text(least, most) => format!("a text of {least} to {most} bytes"),
            Id => "a token id (an integer of 0 or more)".to_owned(),
            OneOrMany(Text(0, usize::MAX), usize::MAX) => "a text or a list of texts".to_owned(),
            OneOrMany(kind @ Text(..), most) => {
                format!("{}, or a list of {}such texts", kind.describe(), up_to(*most))
            }
            OneOrMany(kind, _) => format!("{} or a list of them", kind.describe()),
            List(kind, most) => format!("a list of {}{}", up_to(*most), kind.plural()),
            Pair(first, second) => format!("a pair of {} and {}", first.describe(), second.describe()),
            Map(key, value, most) => {
                format!("a map from {}{} to {}", up_to(*most), key.plural(), value.plural())
            }
            Object => "an object".to_owned(),
            Optional(kind) => kind.describe(),
            Described(words, _) | Other(words, ..) => (*words).to_owned(),
        }
    }

    /// The values that there are, as far as they can be listed.
    fn choices(&self) -> Vec<String> {
        match self {
            Bool => vec!["true".to_owned(), "false".to_owned()],
            Word(words) => quoted(words),
            AnyOf(kinds) => kinds.iter().flat_map(Self::choices).collect(),
            kind => vec![kind.describe()],
        }
    }

    /// Several values in words.
    fn plural(&self) -> String {
        match self {
            Id => "token ids".to_owned(),
            Object => "objects".to_owned(),
            List(kind, most) => format!("lists of {}{}", up_to(*most), kind.plural()),
            kind => {
                let one = kind.describe();
                let (article, rest) = one.split_once(' ').unwrap_or(("", &one));
                match rest.split_once(' ') {
                    Some((noun, rest)) if article.starts_with('a') => format!("{noun}s {rest}"),
                    _ => format!("{rest}s"),
                }
            }
        }
    }

    /// Whether a value of JSON, which is not null, is one of this kind. JSON does not tell 5.0 from 5.
    pub fn accepts(&self, value: &Value) -> bool {
        let entries = |kind: &Self, most: usize| {
            value.as_array().is_some_and(|all| all.len() <= most && all.iter().all(|one| kind.accepts(one)))
        };
        match self {
            Bool => value.is_boolean(),
            Int(least, most) => integer(value).is_some_and(|value| (*least..=*most).contains(&value)),
            Float(least, most) => value.as_f64().is_some_and(|value| (*least..=*most).contains(&value)),
            Text(least, most) => value.as_str().is_some_and(|text| (*least..=*most).contains(&text.len())),
            Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Id => integer(value).is_some_and(|id| u32::try_from(id).is_ok()),
            OneOrMany(kind, most) => kind.accepts(value) || entries(kind, *most),
            List(kind, most) => entries(kind, *most),
            Pair(first, second) => {
                matches!(value.as_array().map(Vec::as_slice), Some([a, b]) if first.accepts(a) && second.accepts(b))
            }
            Map(key, of, most) => value.as_object().is_some_and(|map| {
                let is_key = |text: &str| match key {
                    Id => text.parse::<u32>().is_ok(),
                    key => key.accepts(&text.into()),
                };
                map.len() <= *most && map.iter().all(|(text, value)| is_key(text) && of.accepts(value))
            }),
            Object => value.is_object(),
            AnyOf(kinds) => kinds.iter().any(|kind| kind.accepts(value)),
            Optional(kind) | Described(_, kind) => kind.accepts(value),
            Other(_, _, types) => types.contains(&json_type(value)),
        }
    }

    /// The JSON schema of valid values and null; `last` is the greatest token id.
    pub fn schema(&self, last: usize) -> Value {
        let mut schema = self.schema_of_value(last);
        if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            choices.push(Value::Null);
        } else if let Some(kinds) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
            kinds.push(json!({ "type": "null" }));
        } else {
            let types = schema["type"].take();
            let types = if let Value::Array(types) = types { types } else { vec![types] };
            schema["type"] = types.into_iter().chain([json!("null")]).collect();
        }
        schema
    }

    fn schema_of_value(&self, last: usize) -> Value {
        let list = |kind: &Self, most: usize| {
            let mut list = json!({ "type": "array", "items": kind.schema_of_value(last) });
            if most < usize::MAX {
                list["maxItems"] = most.into();
            }
            list
        };
        match self {
            Bool => json!({ "type": "boolean" }),
            Int(least, most) => {
                json!({ "type": "integer", "minimum": number(*least), "maximum": number(*most) })
            }
            Float(least, most) if least.is_infinite() && most.is_infinite() => json!({ "type": "number" }),
            Float(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
            Text(_, usize::MAX) => json!({ "type": "string" }),
            Text(least, most) => json!({ "type": "string", "minLength": least, "maxLength": most }),
            Word(words) => json!({ "enum": words }),
            Id => json!({ "type": "integer", "minimum": 0, "maximum": last }),
            OneOrMany(kind, most) => json!({ "anyOf": [kind.schema_of_value(last), list(kind, *most)] }),
            List(kind, most) => list(kind, *most),
            Pair(first, second) => {
                let items = [first, second].map(|kind| kind.schema_of_value(last));
                json!({ "type": "array", "prefixItems": items, "minItems": 2, "maxItems": 2 })
            }
            Map(key, value, most) => json!({
                "type": "object",
                "propertyNames": match key {
                    Id => json!({ "pattern": "^[0-9]{1,9}$" }),
                    key => key.schema_of_value(last),
                },
                "additionalProperties": value.schema_of_value(last),
                "maxProperties": most,
            }),
            Object => json!({ "type": "object" }),
            AnyOf(kinds) => {
                json!({ "anyOf": kinds.iter().map(|kind| kind.schema_of_value(last)).collect::<Value>() })
            }
            Optional(kind) | Described(_, kind) => kind.schema_of_value(last),
            Other(_, _, types) => json!({ "type": types }),
        }
    }
}

/// An integer; JSON does not tell 5.0 from 5.
pub fn integer(value: &Value) -> Option<i128> {
    let Value::Number(number) = value else { return None };
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i128);
    number.as_i128().or_else(|| number.as_f64().and_then(whole))
}

fn number(value: i128) -> Value {
    serde_json::Number::from_i128(value).into()
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("{word:?}")).collect()
}

fn up_to(most: usize) -> String {
    if most == usize::MAX { String::new() } else { format!("up to {most} ") }
}

/// A bound of 64 bits as people write it.
fn power(value: i128) -> String {
    match value {
        _ if value == i128::from(i64::MIN) => "-2^63".to_owned(),
        _ if value == i128::from(i64::MAX) => "2^63 - 1".to_owned(),
        _ if value == i128::from(u64::MAX) => "2^64 - 1".to_owned(),
        _ => value.to_string(),
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_what_it_takes() {
        const TEXTS: FieldKind = OneOrMany(&Text(1, 9), 2);
        const LISTS: FieldKind = List(&FieldKind::IDS, 5);
        const BIASES: FieldKind = Map(&Id, &Float(-1.0, 1.0), 3);
        const WORDS: FieldKind = AnyOf(&[Bool, Word(&["never"])]);
        const PAIR: FieldKind = Pair(&FieldKind::COUNT, &FieldKind::NUMBER);
        for (kind, words, python, good, bad) in [
            (Int(1, 5), "an integer from 1 to 5", "int", json!(5.0), json!(6)),
            (FieldKind::COUNT, "an integer of 0 or more", "int", json!(0), json!(-1)),
            (Int(0, u64::MAX.into()), "an integer from 0 to 2^64 - 1", "int", json!(u64::MAX), json!(0.5)),
            (Float(0.0, 0.5), "a number from 0 to 0.5", "float", json!(0.5), json!("0.5")),
            (
                TEXTS,
                "a text of 1 to 9 bytes, or a list of up to 2 such texts",
                "str | list[str]",
                json!(["a", "b"]),
                json!(["a", ""]),
            ),
            (LISTS, "a list of up to 5 lists of token ids", "list[list[int]]", json!([[1], []]), json!([1])),
            (
                BIASES,
                "a map from up to 3 token ids to numbers from -1 to 1",
                "dict[int, float]",
                json!({ "7": 1 }),
                json!({ "a": 1 }),
            ),
            (WORDS, "true, false or \"never\"", "bool | Literal[\"never\"]", json!("never"), json!("always")),
            (
                PAIR,
                "a pair of an integer of 0 or more and a number",
                "tuple[int, float]",
                json!([1, 0.5]),
                json!([1]),
            ),
            (Described("words", &Optional(&Id)), "words", "int | None", json!(u32::MAX), json!(1_u64 << 32)),
            (Other("an array", "ArrayLike", &["array"]), "an array", "ArrayLike", json!([]), json!({})),
        ] {
            assert_eq!((kind.describe().as_str(), kind.python().as_str()), (words, python));
            assert!(kind.accepts(&good) && !kind.accepts(&bad), "{words}");
        }
    }

    #[test]
    fn schemas_allow_null() {
        for (kind, schema) in [
            (Int(1, 5), json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 5 })),
            (Word(&["a"]), json!({ "enum": ["a", null] })),
            (Id, json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 9 })),
            (AnyOf(&[Bool]), json!({ "anyOf": [{ "type": "boolean" }, { "type": "null" }] })),
            (Other("", "", &["array", "object"]), json!({ "type": ["array", "object", "null"] })),
        ] {
            assert_eq!(kind.schema(9), schema);
        }
    }
}
