//! Fields that map tokens or sequences of tokens to numbers.

use std::collections::HashMap;
use std::hash::Hash;

use rsgen_core::TokenId;

use super::field::FieldType;
use super::kind::FieldKind;
use super::value::FieldValue;

/// Biases of tokens or of sequences of tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Biases<K> {
    entries: Vec<(K, f64)>,
}

impl<K: Hash + Eq + Clone> Biases<K> {
    /// These keys with their biases; for equal keys the last bias counts, at the index of the first.
    pub fn new(entries: impl IntoIterator<Item = (K, f64)>) -> Self {
        let mut kept: Vec<(K, f64)> = Vec::new();
        let mut positions = HashMap::new();
        for (key, bias) in entries {
            let index = *positions.entry(key.clone()).or_insert(kept.len());
            match kept.get_mut(index) {
                Some(entry) => entry.1 = bias,
                None => kept.push((key, bias)),
            }
        }
        Self { entries: kept }
    }

    /// The keys, no two equal, with their biases.
    pub fn entries(&self) -> &[(K, f64)] {
        &self.entries
    }
}

/// Biases that are added to the score of the last token of a sequence when its other tokens have just
/// occurred.
///
/// Written as a map from tuples of ids, or, as files hold it, as a list of pairs: `[[[5, 7], -1.5], [[3],
/// 2.0]]`.
pub type SequenceBias = Biases<Vec<TokenId>>;

impl FieldType for SequenceBias {
    const KIND: FieldKind = FieldKind::Other(
        "a map from tuples of token ids to numbers, or a list of pairs [token ids, number]",
        "dict[tuple[int, ...], float] | list[list[list[int] | float]]",
        &["object", "array"],
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        let entries: Option<Vec<_>> = match value {
            FieldValue::Map(entries) => {
                entries.iter().map(|(key, bias)| Some((sequence(key)?, f64::parse(bias)?))).collect()
            }
            FieldValue::List(pairs) => pairs
                .iter()
                .map(|pair| match pair {
                    FieldValue::List(pair) if pair.len() == 2 => {
                        Some((Vec::parse(&pair[0])?, f64::parse(&pair[1])?))
                    }
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        entries.map(Self::new)
    }

    fn to_value(&self) -> FieldValue {
        self.entries
            .iter()
            .map(|(ids, bias)| [ids.to_value(), bias.to_value()].into_iter().collect())
            .collect()
    }
}

/// A key: a list of ids, or the text `(5, 7)` that transformers makes of a tuple in a file.
fn sequence(key: &FieldValue) -> Option<Vec<TokenId>> {
    let FieldValue::Text(text) = key else { return Vec::parse(key) };
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let ids = inner.strip_suffix(',').unwrap_or(inner);
    ids.split(',').map(|id| id.trim().parse().ok().map(TokenId)).collect()
}

/// Biases that are added to the scores of tokens in every step.
pub type LogitBias = Biases<TokenId>;

impl FieldType for LogitBias {
    const KIND: FieldKind = FieldKind::Map(&FieldKind::Id, &FieldKind::NUMBER, usize::MAX);

    fn parse(value: &FieldValue) -> Option<Self> {
        let FieldValue::Map(entries) = value else { return None };
        // The keys of JSON are texts.
        let token = |key: &FieldValue| match key {
            FieldValue::Text(text) => text.parse().ok().map(TokenId),
            key => TokenId::parse(key),
        };
        let entries: Option<Vec<_>> =
            entries.iter().map(|(key, bias)| Some((token(key)?, f64::parse(bias)?))).collect();
        entries.map(Self::new)
    }

    fn to_value(&self) -> FieldValue {
        FieldValue::Map(
            self.entries.iter().map(|(token, bias)| (token.to_value(), bias.to_value())).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: serde_json::Value) -> FieldValue {
        FieldValue::from(json)
    }

    #[test]
    fn a_sequence_bias_is_read_in_each_of_its_forms() {
        let expected =
            SequenceBias::new([(vec![TokenId(5), TokenId(7)], -1.5), (vec![TokenId(3)], f64::NEG_INFINITY)]);
        let tuples = FieldValue::Map(vec![
            (value(serde_json::json!([5, 7])), FieldValue::Float(-1.5)),
            (value(serde_json::json!([3])), FieldValue::Float(f64::NEG_INFINITY)),
        ]);
        let infinity = serde_json::json!({"__float__": "-Infinity"});
        for form in [
            tuples,
            value(serde_json::json!([[[5, 7], -1.5], [[3], infinity]])),
            value(serde_json::json!({"(5, 7)": -1.5, "(3,)": infinity})),
            expected.to_value(),
            value(expected.to_value().into()),
        ] {
            assert_eq!(SequenceBias::parse(&form).as_ref(), Some(&expected), "{form}");
        }
        for bad in [
            serde_json::json!({"5, 7": 1.0}),
            serde_json::json!({"(5, x)": 1.0}),
            serde_json::json!([[[5], 1.0, 2]]),
            serde_json::json!([[[-5], 1.0]]),
            serde_json::json!([[5, 1.0]]),
            serde_json::json!(5),
        ] {
            assert_eq!(SequenceBias::parse(&value(bad.clone())), None, "{bad}");
        }
    }

    #[test]
    fn of_equal_sequences_the_last_bias_holds() {
        let bias =
            SequenceBias::new([(vec![TokenId(1)], 1.0), (vec![TokenId(2)], 2.0), (vec![TokenId(1)], 3.0)]);
        assert_eq!(bias.entries(), [(vec![TokenId(1)], 3.0), (vec![TokenId(2)], 2.0)]);
    }

    #[test]
    fn a_logit_bias_has_integers_or_their_texts_as_keys() {
        let expected = LogitBias::new([(TokenId(5), 2.0), (TokenId(0), -100.0)]);
        assert_eq!(
            LogitBias::parse(&value(serde_json::json!({"5": 2, "0": -100.0}))),
            Some(expected.clone())
        );
        assert_eq!(LogitBias::parse(&expected.to_value()), Some(expected.clone()));
        assert_eq!(LogitBias::parse(&value(expected.to_value().into())), Some(expected));
        assert_eq!(LogitBias::parse(&value(serde_json::json!({"a": 2}))), None);
        assert_eq!(LogitBias::parse(&value(serde_json::json!([[5, 2.0]]))), None);
    }
}
