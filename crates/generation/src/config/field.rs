//! The types of configuration fields: which values they accept, and how they are parsed.
//!
//! Ranges are checked when a plan is made, since they depend on the model and on other fields.

use std::ops::RangeInclusive;

use rsgen_core::TokenId;

use super::kind::FieldKind;
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
    /// Its values.
    const KIND: FieldKind;

    /// The value, or `None` when it is of another type.
    fn parse(value: &FieldValue) -> Option<Self>;

    /// What is wrong with a value that is refused, to follow the name of the field, where
    /// [`KIND`](Self::KIND) does not say it.
    fn explain(_value: &FieldValue) -> Option<String> {
        None
    }

    /// The value as a caller would write it.
    fn to_value(&self) -> FieldValue;
}

macro_rules! field_types {
    ($($type:ty as $kind:expr => $parse:expr, $value:expr;)*) => {$(
        impl FieldType for $type {
            const KIND: FieldKind = $kind;
            fn parse(value: &FieldValue) -> Option<Self> {
                let parse: fn(&FieldValue) -> Option<Self> = $parse;
                parse(value)
            }
            fn to_value(&self) -> FieldValue {
                let value: fn(&$type) -> FieldValue = $value;
                value(self)
            }
        }
    )*};
}

/// The integers of 64 bits, signed or not.
const BITS_64: RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

field_types! {
    bool as FieldKind::Bool =>
        |value| if let FieldValue::Bool(value) = value { Some(*value) } else { None },
        |value| FieldValue::Bool(*value);
    usize as FieldKind::COUNT =>
        |value| integer(value)?.try_into().ok(),
        |value| FieldValue::Int(*value as i128);
    f64 as FieldKind::NUMBER =>
        |value| match value {
            FieldValue::Float(value) => Some(*value),
            other => integer(other).map(|value| value as f64),
        },
        |value| FieldValue::Float(*value);
    String as FieldKind::TEXT =>
        |value| if let FieldValue::Text(value) = value { Some(value.clone()) } else { None },
        |value| FieldValue::Text(value.clone());
    i64 as FieldKind::Int(i64::MIN as i128, i64::MAX as i128) =>
        |value| integer(value)?.try_into().ok(),
        |value| FieldValue::Int(i128::from(*value));
    // A key of 64 bits, signed or not.
    i128 as u64::KIND =>
        |value| integer(value).filter(|key| BITS_64.contains(key)),
        |value| FieldValue::Int(*value);
    TokenId as FieldKind::Id =>
        |value| integer(value)?.try_into().ok().map(TokenId),
        |value| FieldValue::Int(i128::from(value.0));
    // As in torch.manual_seed, a negative seed stands for its two's complement.
    u64 as FieldKind::Int(*BITS_64.start(), *BITS_64.end()) =>
        |value| integer(value).filter(|seed| BITS_64.contains(seed)).map(|seed| seed as u64),
        |value| FieldValue::Int(i128::from(*value));
    (usize, f64) as FieldKind::Pair(&usize::KIND, &f64::KIND) =>
        |value| match value {
            FieldValue::List(pair) if pair.len() == 2 => Some((usize::parse(&pair[0])?, f64::parse(&pair[1])?)),
            _ => None,
        },
        |value| FieldValue::List(vec![value.0.to_value(), value.1.to_value()]);
}

/// Makes an enum a type of fields: each variant has its word. `says` describes the words better than they do.
macro_rules! words {
    ($type:ident { $( $variant:ident = $word:literal ),+ } $(says $description:literal)?) => {
        impl $type {
            /// Its word.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl FieldType for $type {
            const KIND: FieldKind = {
                let kind = &FieldKind::Word(&[$( $word ),+]);
                $( let kind = &FieldKind::Described($description, kind); )?
                *kind
            };

            fn parse(value: &FieldValue) -> Option<Self> {
                let FieldValue::Text(text) = value else { return None };
                match text.as_str() {
                    $( $word => Some(Self::$variant), )+
                    _ => None,
                }
            }

            fn to_value(&self) -> FieldValue {
                FieldValue::from(self.as_str())
            }
        }
    };
}
pub(super) use words;

/// A type whose lists are a type of fields, too.
trait ListElement: FieldType {}

impl ListElement for TokenId {}
impl ListElement for i64 {}
impl ListElement for usize {}
impl<T: ListElement> ListElement for Vec<T> {}

impl<T: ListElement> FieldType for Vec<T> {
    const KIND: FieldKind = FieldKind::List(&T::KIND, usize::MAX);

    fn parse(value: &FieldValue) -> Option<Self> {
        if let FieldValue::List(values) = value { values.iter().map(T::parse).collect() } else { None }
    }

    fn to_value(&self) -> FieldValue {
        self.iter().map(T::to_value).collect()
    }
}

pub(super) fn integer(value: &FieldValue) -> Option<i128> {
    if let FieldValue::Int(value) = value { Some(*value) } else { None }
}

impl<T: FieldType> FieldType for OneOrMany<T> {
    const KIND: FieldKind = FieldKind::OneOrMany(&T::KIND, usize::MAX);

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

impl<T: FieldType> FieldType for Option<T> {
    const KIND: FieldKind = FieldKind::Optional(&T::KIND);

    fn parse(value: &FieldValue) -> Option<Self> {
        if *value == FieldValue::Null { Some(None) } else { T::parse(value).map(Some) }
    }

    fn to_value(&self) -> FieldValue {
        self.as_ref().map_or(FieldValue::Null, T::to_value)
    }
}
