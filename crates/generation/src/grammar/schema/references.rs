//! References to places in the same schema.

use serde_json::Value;

use rsgen_core::error::Result;

use super::{Walk, join};

/// The most references: each takes a level of recursion in the worst case.
const MAX_REFERENCES: usize = 2_000;

impl<'a> Walk<'a> {
    /// Counts a reference and names its target.
    pub(super) fn refer(&mut self, target: String) -> Result<Value> {
        self.references += 1;
        if self.references > MAX_REFERENCES {
            return Err(
                self.error(&format!("may have at most {MAX_REFERENCES} keywords `$ref`; simplify it"))
            );
        }
        let index = self.targets.iter().position(|known| *known == target).unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        Ok(format!("#/$defs/{index}").into())
    }

    /// The place that a reference names, if it is one in this schema.
    pub(super) fn resolve(&self, reference: &str) -> Option<String> {
        let id = self.root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let fragment = match reference.split_once('#') {
            Some((address, fragment)) if address.is_empty() || Some(address) == id => fragment,
            None if Some(reference) == id => "",
            _ => return None,
        };
        let fragment = percent_decoded(fragment)?;
        if fragment.is_empty() {
            return Some("#".to_owned());
        }
        let place = if fragment.starts_with('/') {
            format!("#{fragment}")
        } else {
            anchor(self.root, &fragment, "#")?
        };
        self.at(&place).filter(|schema| schema.is_object() || schema.is_boolean()).map(|_| place)
    }

    pub(super) fn at(&self, place: &str) -> Option<&'a Value> {
        self.root.pointer(place.strip_prefix('#')?)
    }
}

/// Whether a schema holds a reference.
pub(super) fn refers(schema: &Value) -> bool {
    match schema {
        Value::Array(list) => list.iter().any(refers),
        Value::Object(map) => map.iter().any(|(name, value)| name == "$ref" || refers(value)),
        _ => false,
    }
}

/// The place of the schema with an anchor.
fn anchor(schema: &Value, name: &str, place: &str) -> Option<String> {
    match schema {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, schema)| anchor(schema, name, &format!("{place}/{index}"))),
        Value::Object(map) => {
            let is_it = map.get("$anchor").is_some_and(|anchor| anchor == name)
                || map.get("$id").and_then(Value::as_str).and_then(|id| id.strip_prefix('#')) == Some(name);
            if is_it {
                return Some(place.to_owned());
            }
            map.iter().find_map(|(key, schema)| anchor(schema, name, &join(place, key)))
        }
        _ => None,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}
