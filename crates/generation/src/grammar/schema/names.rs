//! `propertyNames`, by naming the properties or their pattern.

use serde_json::{Map, Value};

use rsgen_core::error::Result;

use super::super::keywords::{Keyword, keyword};
use super::{FORMATS, Walk};

impl Walk<'_> {
    /// Follows `propertyNames`, by naming the properties or their pattern.
    pub(super) fn name(&mut self, names: &Value, out: &mut Map<String, Value>, place: &str) -> Result<()> {
        let unsupported = || self.unsupported("the keyword `propertyNames` in this form", place);
        let mut names = names;
        for _ in 0..8 {
            let Some(reference) = names.get("$ref").and_then(Value::as_str) else { break };
            names = self.resolve(reference).and_then(|place| self.at(&place)).ok_or_else(unsupported)?;
        }
        let empty = Map::new();
        let rules = match names {
            Value::Bool(true) => &empty,
            Value::Object(rules) => rules,
            _ => return Err(unsupported()),
        };
        let rules: Map<String, Value> = rules
            .iter()
            .filter(|(name, value)| match keyword(name) {
                Keyword::Annotation => false,
                Keyword::Type => *value != "string",
                Keyword::Format => value.as_str().is_some_and(|format| {
                    format.starts_with("date") || format == "time" || FORMATS.contains(&format)
                }),
                _ => true,
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let is_of = |allowed: &[&str]| rules.keys().all(|rule| allowed.contains(&rule.as_str()));
        if rules.is_empty() {
            return Ok(());
        }
        if out.contains_key("patternProperties") {
            return Err(unsupported());
        }
        let others = out.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        let mut properties = out.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        if is_of(&["const", "enum"]) {
            let one = rules.get("const").map(std::slice::from_ref);
            let listed = rules.get("enum").and_then(Value::as_array).map(Vec::as_slice);
            let allowed: Option<Vec<&str>> = one
                .or(listed)
                .filter(|_| rules.len() == 1)
                .and_then(|values| values.iter().map(Value::as_str).collect());
            let allowed = allowed.ok_or_else(unsupported)?;
            for (name, schema) in &mut properties {
                if !allowed.contains(&name.as_str()) {
                    *schema = Value::Bool(false);
                }
            }
            for name in allowed {
                properties.entry(name).or_insert_with(|| others.clone());
            }
            out.insert("properties".to_owned(), properties.into());
        } else if properties.is_empty() && (is_of(&["pattern"]) || is_of(&["minLength", "maxLength"])) {
            let pattern = if let Some(pattern) = rules.get("pattern") {
                pattern.as_str().ok_or_else(unsupported)?.to_owned()
            } else {
                let count = |name: &str| {
                    rules.get(name).map(|count| count.as_u64().ok_or_else(unsupported)).transpose()
                };
                let most = count("maxLength")?.map_or_else(String::new, |most| most.to_string());
                format!("^(?s:.{{{},{most}}})$", count("minLength")?.unwrap_or(0))
            };
            let pattern = self.pattern(&pattern, place)?;
            out.insert("patternProperties".to_owned(), Map::from_iter([(pattern, others)]).into());
        } else {
            return Err(unsupported());
        }
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
        Ok(())
    }
}
