//! The tools that an answer may call: their names, and the schemas of their arguments.

use std::sync::Arc;

use rsgen_core::error::{Error, Result};
use serde_json::{Value, json};

/// The tools of a conversation, each by name with the schema of its parameters. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tools(Arc<[(String, Value)]>);

impl Tools {
    /// Reads tools as chat templates take them: `{"type": "function", "function": {"name": …, "parameters":
    /// …}}`, or the inner object alone.
    ///
    /// # Errors
    /// `Input` for a tool that has no name, or one that another has, and for parameters that are no object.
    pub fn read(tools: &[Value]) -> Result<Self> {
        let mut read: Vec<(String, Value)> = Vec::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let wrong = |why: &str| Err(Error::input(format!(": tool {index} {why}")).about("tools"));
            let Some(name) = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
            else {
                return wrong(
                    "must have a `name`, as in {\"type\": \"function\", \"function\": {\"name\": …}}",
                );
            };
            if read.iter().any(|(other, _)| other == name) {
                return wrong(&format!("must have a name of its own, but {name:?} is there before"));
            }
            let parameters = match function.get("parameters").or_else(|| function.get("arguments")) {
                None | Some(Value::Null) => json!({ "type": "object", "properties": {} }),
                Some(schema @ Value::Object(_)) => schema.clone(),
                Some(_) => return wrong("must have `parameters` that are a JSON schema"),
            };
            read.push((name.to_owned(), parameters));
        }
        Ok(Self(read.into()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// The schema of the parameters of a tool.
    #[must_use]
    pub fn parameters(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(other, _)| *other == name).map(|(_, parameters)| parameters)
    }

    /// The same tools; those that are not `kept` take any object.
    #[must_use]
    pub fn loosened(&self, kept: &mut dyn FnMut(&str) -> bool) -> Self {
        let any = |name: &str, parameters: &Value| {
            if kept(name) { parameters.clone() } else { json!({ "type": "object" }) }
        };
        let mut any = any;
        Self(self.iter().map(|(name, parameters)| (name.to_owned(), any(name, parameters))).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, parameters)| (name.as_str(), parameters))
    }

    pub(super) fn shared_names(&self) -> Arc<[String]> {
        self.names().map(str::to_owned).collect()
    }
}
