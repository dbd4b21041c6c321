//! The field that maps terms of prompts to words of the output.

use super::field::{FieldType, OneOrMany};
use super::info::{MAX_ENTRIES, MAX_STOPS, MAX_TEXT};
use super::kind::FieldKind;
use super::value::FieldValue;

/// Terms with their translations, in order.
///
/// Written as a map from texts to texts or to lists of texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Glossary {
    entries: Vec<(String, Vec<String>)>,
}

impl Glossary {
    /// What a service allows.
    pub(super) const SERVED: FieldKind = FieldKind::Map(
        &FieldKind::Text(1, MAX_TEXT),
        &FieldKind::OneOrMany(&FieldKind::Text(1, MAX_TEXT), MAX_STOPS),
        MAX_ENTRIES,
    );

    /// These terms, each with the forms of which one has to occur.
    pub fn new(entries: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// Reads a file of lines `term<TAB>translation`, with any number of translations; blank lines count for nothing.
    ///
    /// # Errors
    /// What is wrong with the first line that is not so.
    pub fn from_tsv(text: &str) -> Result<Self, String> {
        let entry = |(index, line): (usize, &str)| {
            let mut columns = line.split('\t').map(str::trim).map(str::to_owned);
            let term = columns.next().unwrap_or_default();
            let forms: Vec<String> = columns.filter(|form| !form.is_empty()).collect();
            if term.is_empty() || forms.is_empty() {
                return Err(format!("line {} must be a term, a tab and its translation", index + 1));
            }
            Ok((term, forms))
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        Ok(Self { entries: lines.map(entry).collect::<Result<_, _>>()? })
    }

    /// The terms with the forms of their translations.
    pub fn entries(&self) -> &[(String, Vec<String>)] {
        &self.entries
    }
}

impl FieldType for Glossary {
    const KIND: FieldKind = FieldKind::Described(
        "a map from terms to their translations, texts or lists of texts",
        &FieldKind::Map(&FieldKind::TEXT, &FieldKind::OneOrMany(&FieldKind::TEXT, usize::MAX), usize::MAX),
    );

    fn parse(value: &FieldValue) -> Option<Self> {
        let FieldValue::Map(entries) = value else { return None };
        let entry = |(term, forms): &(FieldValue, FieldValue)| {
            Some((String::parse(term)?, OneOrMany::<String>::parse(forms)?.as_slice().to_vec()))
        };
        Some(Self { entries: entries.iter().map(entry).collect::<Option<_>>()? })
    }

    fn to_value(&self) -> FieldValue {
        let forms = |forms: &[String]| match forms {
            [form] => form.to_value(),
            forms => forms.iter().map(String::to_value).collect(),
        };
        FieldValue::Map(self.entries.iter().map(|(term, of)| (term.to_value(), forms(of))).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_glossary_is_read_in_each_of_its_forms() {
        let expected = Glossary::new([
            ("house".to_owned(), vec!["Haus".to_owned()]),
            ("tea".to_owned(), vec!["Tee".to_owned(), "Tees".to_owned()]),
        ]);
        let value = json!({ "house": "Haus", "tea": ["Tee", "Tees"] });
        assert_eq!(Glossary::parse(&value.into()), Some(expected.clone()));
        assert_eq!(Glossary::parse(&expected.to_value()), Some(expected.clone()));
        assert_eq!(Glossary::from_tsv("house\tHaus\n\n tea\tTee \tTees\t\r\n"), Ok(expected));
        for (text, line) in [("house Haus", 1), ("a\tb\n\n\tc", 3), ("a\t ", 1)] {
            let error = Glossary::from_tsv(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line} ")), "{error}");
        }
        for wrong in [json!({ "house": 5 }), json!([["house", "Haus"]]), json!({ "house": ["Haus", null] })] {
            assert_eq!(Glossary::parse(&wrong.into()), None);
        }
    }
}
