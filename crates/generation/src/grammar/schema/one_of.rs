//! `oneOf` whose schemas exclude each other.

use serde_json::{Map, Value};

use super::Walk;

impl Walk<'_> {
    /// Whether no object is of two of these schemas, since a property that all require has another value in
    /// each: a discriminator. Then exactly one of them holds where any of them does.
    pub(super) fn is_distinct(&self, schemas: &Value) -> bool {
        let Some(schemas) = schemas.as_array() else { return false };
        let options: Option<Vec<&Map<String, Value>>> =
            schemas.iter().map(|schema| self.object(schema)).collect();
        let Some(options) = options.filter(|options| !options.is_empty()) else { return false };
        let constant = |option: &Map<String, Value>, name: &str| {
            let requires = option.get("required")?.as_array()?.iter().any(|required| required == name);
            let property = option.get("properties")?.get(name)?.as_object()?;
            let one_of_enum = property.get("enum").and_then(Value::as_array).filter(|list| list.len() == 1);
            let value = property.get("const").or_else(|| one_of_enum.map(|list| &list[0]))?;
            // Numbers have several forms.
            value.as_str().filter(|_| requires).map(str::to_owned)
        };
        let names = options[0].get("properties").and_then(Value::as_object);
        names.into_iter().flat_map(Map::keys).any(|name| {
            let values: Option<Vec<String>> = options.iter().map(|option| constant(option, name)).collect();
            values.is_some_and(|mut values| {
                values.sort_unstable();
                values.windows(2).all(|pair| pair[0] != pair[1])
            })
        })
    }

    /// The schema of objects that this one is or refers to.
    fn object<'s>(&'s self, schema: &'s Value) -> Option<&'s Map<String, Value>> {
        let keywords = schema.as_object()?;
        let found = match keywords.get("$ref") {
            Some(reference) => self.at(&self.resolve(reference.as_str()?)?)?.as_object()?,
            None => keywords,
        };
        (found.get("type")? == "object").then_some(found)
    }
}
