//! The types of configuration fields: which values they accept, and how they are parsed.
//!
//! Ranges are checked when a plan is made, since they depend on the model and on other fields.

use rsgen_core::types::TokenId;

use super::value::FieldValue;

/// One value or a list of values: an id or several ids, a text or several texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

impl<T> From<T> for OneOrMany<T> {
    fn from(value: T) -> Self {
        Self::One(value)
    }
}

impl<T> From<Vec<T>> for OneOrMany<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Many(values)
    }
}

impl<T, const N: usize> From<[T; N]> for OneOrMany<T> {
    fn from(values: [T; N]) -> Self {
        Self::Many(values.into())
    }
}

impl From<&str> for OneOrMany<String> {
    fn from(value: &str) -> Self {
        Self::One(value.to_owned())
    }
}

impl<const N: usize> From<[&str; N]> for OneOrMany<String> {
    fn from(values: [&str; N]) -> Self {
        Self::Many(values.into_iter().map(str::to_owned).collect())
    }
}

impl From<u32> for OneOrMany<TokenId> {
    fn from(value: u32) -> Self {
        Self::One(TokenId(value))
    }
}

/// A type that fields may have.
pub(crate) trait FieldType: Sized {
    /// Describes valid values, to complete "must be …".
    const KIND: &'static str;

    /// The type as Python's annotations write it.
    fn python() -> String;

    /// The value, or `None` when it is of another type.
    fn parse(value: &FieldValue) -> Option<Self>;

    /// What is wrong with a value that is refused, to follow the name of the field, where [`KIND`](Self::KIND) does not say it.
    fn explain(_value: &FieldValue) -> Option<String> {
        None
    }

    /// The value as a caller would write it.
    fn to_value(&self) -> FieldValue;
}

/// A type that lists may hold.
pub(crate) trait ListElement: FieldType {
    /// [`FieldType::KIND`] of a list of them.
    const LIST: &'static str;
    /// [`FieldType::KIND`] of one of them or a list.
    const ONE_OR_MANY: &'static str;
}

macro_rules! field_types {
    ($($type:ty as $python:literal: $kind:literal $(or $many:literal of $plural:literal)? => $parse:expr, $value:expr;)*) => {$(
        impl FieldType for $type {
            const KIND: &'static str = $kind;
            fn python() -> String {
                $python.to_owned()
            }
            fn parse(value: &FieldValue) -> Option<Self> {
                let parse: fn(&FieldValue) -> Option<Self> = $parse;
                parse(value)
            }
            fn to_value(&self) -> FieldValue {
                let value: fn(&$type) -> FieldValue = $value;
                value(self)
            }
        }
        $(impl ListElement for $type {
            const LIST: &'static str = concat!("a list of ", $plural);
            const ONE_OR_MANY: &'static str = concat!($kind, " or ", $many);
        })?
    )*};
}

field_types! {
    bool as "bool": "true or false" =>
        |value| if let FieldValue::Bool(value) = value { Some(*value) } else { None },
        |value| FieldValue::Bool(*value);
    usize as "int": "an integer of 0 or more" or "a list of them" of "integers of 0 or more" =>
        |value| integer(value)?.try_into().ok(),
        |value| FieldValue::Int(*value as i128);
    f64 as "float": "a number" =>
        |value| match value {
            FieldValue::Float(value) => Some(*value),
            other => integer(other).map(|value| value as f64),
        },
        |value| FieldValue::Float(*value);
    String as "str": "a text" or "a list of texts" of "texts" =>
        |value| if let FieldValue::Text(value) = value { Some(value.clone()) } else { None },
        |value| FieldValue::Text(value.clone());
    TokenId as "int": "a token id (an integer of 0 or more)" or "a list of them" of "token ids" =>
        |value| integer(value)?.try_into().ok().map(TokenId),
        |value| FieldValue::Int(i128::from(value.0));
    Vec<TokenId> as "list[int]": "a list of token ids" or "a list of such lists" of "lists of token ids" =>
        |value| if let FieldValue::List(ids) = value { ids.iter().map(TokenId::parse).collect() } else { None },
        |value| value.iter().map(TokenId::to_value).collect();
    // As in torch.manual_seed, a negative seed stands for its two's complement.
    u64 as "int": "an integer from -2^63 to 2^64 - 1" or "a list of them" of "integers" =>
        |value| {
            let value = integer(value)?;
            (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value as u64)
        },
        |value| FieldValue::Int(i128::from(*value));
    (usize, f64) as "tuple[int, float]": "a pair of an integer of 0 or more and a number" =>
        |value| match value {
            FieldValue::List(pair) if pair.len() == 2 => Some((usize::parse(&pair[0])?, f64::parse(&pair[1])?)),
            _ => None,
        },
        |value| FieldValue::List(vec![value.0.to_value(), value.1.to_value()]);
}

pub(super) fn integer(value: &FieldValue) -> Option<i128> {
    if let FieldValue::Int(value) = value { Some(*value) } else { None }
}

impl<T: ListElement> FieldType for OneOrMany<T> {
    const KIND: &'static str = T::ONE_OR_MANY;

    fn python() -> String {
        format!("{0} | list[{0}]", T::python())
    }

    fn parse(value: &FieldValue) -> Option<Self> {
        match value {
            FieldValue::List(values) => values.iter().map(T::parse).collect::<Option<_>>().map(Self::Many),
            value => T::parse(value).map(Self::One),
        }
    }

    fn to_value(&self) -> FieldValue {
        match self {
            Self::One(value) => value.to_value(),
            Self::Many(values) => values.iter().map(T::to_value).collect(),
        }
    }
}

/// A list of lists.
impl<T> FieldType for Vec<Vec<T>>
where
    Vec<T>: ListElement,
{
    const KIND: &'static str = <Vec<T>>::LIST;

    fn python() -> String {
        format!("list[{}]", <Vec<T>>::python())
    }

    fn parse(value: &FieldValue) -> Option<Self> {
        if let FieldValue::List(lists) = value { lists.iter().map(Vec::parse).collect() } else { None }
    }

    fn to_value(&self) -> FieldValue {
        self.iter().map(Vec::to_value).collect()
    }
}

impl<T: FieldType> FieldType for Option<T> {
    const KIND: &'static str = T::KIND;

    fn python() -> String {
        format!("{} | None", T::python())
    }

    fn parse(value: &FieldValue) -> Option<Self> {
        if *value == FieldValue::Null { Some(None) } else { T::parse(value).map(Some) }
    }

    fn to_value(&self) -> FieldValue {
        self.as_ref().map_or(FieldValue::Null, T::to_value)
    }
}
