//! [`JsonSchema`]: a JSON schema as a field holds it.

use std::sync::Arc;

use serde_json::Value;

use super::field::FieldType;
use super::kind::FieldKind;
use super::value::FieldValue;

/// The longest text that is read as a schema, in bytes; a call allows less.
const MAX_TEXT: usize = 1 << 20;

/// A JSON schema: an object, true or false.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSchema(Arc<Value>);

impl JsonSchema {
    /// The schema.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Its JSON text.
    pub fn to_text(&self) -> String {
        self.0.to_string()
    }
}

impl From<Value> for JsonSchema {
    fn from(schema: Value) -> Self {
        Self(Arc::new(schema))
    }
}

impl FieldType for JsonSchema {
    const KIND: FieldKind = FieldKind::SCHEMA;

    fn parse(value: &FieldValue) -> Option<Self> {
        let schema = match value {
            FieldValue::Text(text) if text.len() <= MAX_TEXT => serde_json::from_str(text).ok()?,
            FieldValue::Map(_) | FieldValue::Bool(_) => value.clone().into(),
            _ => return None,
        };
        matches!(schema, Value::Object(_) | Value::Bool(_)).then(|| schema.into())
    }

    fn to_value(&self) -> FieldValue {
        (*self.0).clone().into()
    }
}
