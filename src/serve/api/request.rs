//! A validated request: each field has the type and range of the field table.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::{self, Field, Kind, Routes};
use super::foreign;
use super::messages::Forms;
use crate::serve::app::App;
use crate::serve::failure::{Failure, told};
use crate::serve::json::{Fields, Held};
use crate::serve::keys::Tenant;
use crate::serve::models::{NO_MODEL, not_served};
use crate::serve::places::Place;
use rsgen_core::types::TokenId;
use rsgen_generation::config::{FieldKind, FieldValue, integer};
use rsgen_generation::{GenerationConfig, TokenTrie};

/// The fields of a request that have a value.
pub(super) struct Request {
    route: Routes,
    fields: Map<String, Value>,
    /// Fields that the route does not know.
    ignored: Vec<String>,
    tenant: Tenant,
    /// What the model's chat templates take.
    pub(super) forms: Arc<Forms>,
    /// The catalogue that its answers are of.
    pub(super) catalogue: Option<Arc<TokenTrie>>,
    /// The name of the adapter that its `model` names.
    pub(super) adapter: Option<String>,
    /// The form of tool calls, where the server was told.
    pub(super) tool_parser: Option<String>,
    /// The form of thinking, where the server was told.
    pub(super) reasoning_parser: Option<String>,
    /// The memory of the fields.
    held: Held,
    /// Where the tokens count that are computed without an output.
    place: Option<Place>,
}

impl Request {
    /// Checks a body.
    ///
    /// # Errors
    /// For the first field that breaks a rule, with its name; for an unknown model; with `strict_api` for an
    /// unknown field.
    pub(super) fn new(app: &App, route: Routes, body: Fields) -> Result<Self, Failure> {
        let mut request = Self {
            route,
            fields: Map::new(),
            ignored: Vec::new(),
            tenant: Tenant::default(),
            place: None,
            forms: Arc::clone(&app.forms),
            catalogue: None,
            adapter: None,
            tool_parser: app.state.options.tool_parser.clone(),
            reasoning_parser: app.state.options.reasoning_parser.clone(),
            held: body.held,
        };
        let mut own = None;
        for (name, value) in body.map {
            match name.as_str() {
                "rsgen" if route & fields::WITH_RSGEN != 0 => own = Some(value),
                _ => request.add(name, value)?,
            }
        }
        match own {
            None | Some(Value::Null) => {}
            Some(Value::Object(own)) => {
                own.into_iter().try_for_each(|(name, value)| request.add_own(name, value))?;
            }
            Some(_) => return Err(Failure::invalid("rsgen", "`rsgen` must be an object of fields")),
        }
        let penalty =
            foreign::penalty(|name| request.fields.get(name).cloned(), app.generator.generation_config());
        foreign::check_ranges(&request.ignored, penalty)?;
        if let Some(unknown) = request.ignored.first().filter(|_| app.state.options.strict_api) {
            let message = if GenerationConfig::is_known(unknown) {
                format!("`{unknown}` has no place in this answer; leave it out")
            } else {
                format!("`{unknown}` is not a field of this request; leave it out, or mend its name")
            };
            return Err(Failure::unsupported(unknown.clone(), message));
        }
        if let Some(name) = request.text("allowed_sequences") {
            request.catalogue = Some(catalogue(app, name)?);
        }
        if let Some(model) = request.text("model").filter(|&model| model != app.model && model != NO_MODEL) {
            request.adapter = Some(adapter(app, model)?);
        }
        Ok(request)
    }

    /// Its fields, which are to be translated.
    pub(super) fn take(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.fields)
    }

    /// The request to another route that this one means, with these fields.
    ///
    /// # Errors
    /// For the first field that breaks a rule of that route.
    pub(super) fn translated(self, route: Routes, fields: Map<String, Value>) -> Result<Self, Failure> {
        let mut request = Self { route, ..self };
        fields.into_iter().try_for_each(|(name, value)| request.add_known(name, value))?;
        Ok(request)
    }

    /// Adds a field of the route; null switches one off.
    fn add_known(&mut self, name: String, value: Value) -> Result<(), Failure> {
        if let Some(field) = self.field(&name).filter(|_| !value.is_null()) {
            check(field, &value)?;
        }
        self.fields.insert(name, value);
        Ok(())
    }

    /// The id of its model, with the adapter if it names one.
    pub(super) fn model(&self, app: &App) -> String {
        self.adapter.as_ref().map_or_else(|| app.model.clone(), |name| format!("{}:{name}", app.model))
    }

    /// Keeps the memory of more fields, until it is dropped.
    pub(super) fn hold(&mut self, held: Held) {
        self.held.add(held);
    }

    /// Sets the key owner.
    pub(super) fn of(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// Sets the place whose key its tokens count for.
    pub(super) fn at(self, place: &Place) -> Self {
        Self { place: Some(place.clone()), ..self }
    }

    /// Counts the tokens of texts whose vectors are computed.
    pub(super) fn embedded(&self, tokens: usize) {
        if let Some(place) = &self.place {
            place.embedded(tokens);
        }
    }

    /// The cache salt: of the key owner, and of the field `cache_salt`.
    pub(super) fn cache_salt(&self) -> Option<Arc<str>> {
        self.tenant.salt(self.text("cache_salt"))
    }

    /// Adds a field of the body. Null counts as absent, but switches off a field of transformers on its own
    /// route.
    fn add(&mut self, name: String, value: Value) -> Result<(), Failure> {
        let Some(field) = self.field(&name) else {
            if self.generates() {
                Self::refuse_known(&name, &value)?;
                if foreign::check(&name, &value)? {
                    return Ok(());
                }
            }
            self.ignored.push(name);
            return Ok(());
        };
        if !value.is_null() {
            check(field, &value)?;
        } else if self.route & fields::OF_RSGEN == 0 || !GenerationConfig::is_field(&name) {
            return Ok(());
        }
        self.fields.insert(name, value);
        Ok(())
    }

    /// Adds a field of the object `rsgen`: one of transformers', or `strategy`.
    fn add_own(&mut self, name: String, value: Value) -> Result<(), Failure> {
        if name != "strategy" && !GenerationConfig::is_field(&name) {
            Self::refuse_known(&name, &value)?;
            return Err(Failure::unsupported(
                format!("rsgen.{name}"),
                GenerationConfig::unknown_field(&name),
            ));
        }
        let Some(field) = self.field(&name) else {
            self.ignored.push(format!("rsgen.{name}"));
            return Ok(());
        };
        match self.fields.get(&name) {
            Some(other) if *other != value => Err(Failure::invalid(
                format!("rsgen.{name}"),
                format!(
                    "`{name}` is given twice, as {other} and in `rsgen` as {value}; leave out one of them"
                ),
            )),
            _ => {
                if !value.is_null() {
                    check(field, &value)?;
                }
                self.fields.insert(name, value);
                Ok(())
            }
        }
    }

    /// Refuses fields of transformers that rsgen does not support: ignoring them would change the tokens.
    fn refuse_known(name: &str, value: &Value) -> Result<(), Failure> {
        if GenerationConfig::is_field(name) || !GenerationConfig::is_known(name) {
            return Ok(());
        }
        let value = FieldValue::from(value.clone());
        GenerationConfig::new().set(name, &value).map_err(|error| Failure::unsupported(name, told(&error)))
    }

    /// The field of the request that sets this one of [`GenerationConfig`] under another name.
    pub(super) fn alias(&self, set: &str) -> Option<&'static str> {
        let sets = |field: &&Field| field.sets.split(", ").any(|name| name == set);
        fields::of_route(self.route)
            .filter(sets)
            .map(|field| field.name)
            .find(|name| self.get(name).is_some())
    }

    pub(super) fn route(&self) -> Routes {
        self.route
    }

    fn field(&self, name: &str) -> Option<&'static Field> {
        fields::of_route(self.route).find(|field| field.name == name)
    }

    /// Whether its answer is generated.
    pub(super) fn generates(&self) -> bool {
        self.route & fields::GENERATED != 0
    }

    /// The value of a field; `None` for null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        integer(self.get(name)?)?.try_into().ok()
    }

    /// A non-negative integer.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.integer(name)?.try_into().ok()
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// A text or a list of texts.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// A list of token ids.
    pub(super) fn ids(&self, name: &str) -> Option<Vec<TokenId>> {
        Some(self.get(name)?.as_array()?.iter().filter_map(id).collect())
    }

    /// The fields of transformers as they were given, but for those in `except`; null switches one off.
    ///
    /// # Errors
    /// For the first value of a wrong type.
    pub(super) fn config(&self, except: &[&str]) -> Result<GenerationConfig, Failure> {
        let mut config = GenerationConfig::new();
        for (name, value) in &self.fields {
            if !GenerationConfig::is_field(name) || except.contains(&name.as_str()) {
                continue;
            }
            let is_integer =
                |field: &Field| matches!(field.kind, Kind::Of(FieldKind::Int(..) | FieldKind::Id));
            let is_integer = self.field(name).is_some_and(is_integer);
            let value = match integer(value).filter(|_| is_integer) {
                Some(value) => FieldValue::Int(value),
                None => value.clone().into(),
            };
            config.set_in_call(name, &value).map_err(|error| Failure::of(name.as_str(), &error))?;
        }
        Ok(config)
    }

    /// The failure for a missing field; it names an unknown one, which may be a misspelling.
    pub(super) fn missing(&self, name: &str, remedy: &str) -> Failure {
        let short = |unknown: &String| unknown.chars().take(64).collect::<String>();
        let unknown = self.ignored.first().map(short);
        let unknown = unknown.map_or(String::new(), |unknown| format!(", and `{unknown}` is no field of it"));
        Failure::invalid(name, format!("`{name}` is missing from the request{unknown}; give {remedy}"))
    }

    /// Checks a part of the request of this name, which no route knows, as its other fields are.
    ///
    /// # Errors
    /// When its value changes the answer, or with `strict`.
    pub(super) fn check_foreign(
        at: &str,
        (name, value): (&str, &Value),
        strict: bool,
        ignored: &mut Vec<String>,
    ) -> Result<(), Failure> {
        Self::refuse_known(name, value)?;
        if foreign::check(name, value)? {
            return Ok(());
        }
        if strict {
            let message = format!("`{at}` is not a field of this request; leave it out, or mend its name");
            return Err(Failure::unsupported(at, message));
        }
        ignored.push(at.to_owned());
        Ok(())
    }

    /// The names of the fields that have no effect.
    pub(super) fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

/// The value of a field that has two names.
///
/// # Errors
/// When both have a value, and different ones.
pub(super) fn either<T: PartialEq + std::fmt::Display>(
    (name, value): (&str, Option<T>),
    (other_name, other): (&str, Option<T>),
) -> Result<Option<T>, Failure> {
    match (value, other) {
        (Some(value), Some(other)) if value != other => Err(Failure::invalid(
            name,
            format!("`{name}` is {value} and `{other_name}` is {other}; leave out one of them"),
        )),
        (value, other) => Ok(value.or(other)),
    }
}

fn check(field: &Field, value: &Value) -> Result<(), Failure> {
    match field.kind.refuses(value) {
        None => Ok(()),
        Some(rule) => Err(Failure::invalid(
            field.name,
            format!("`{}` must be {rule}, but is {}", field.name, FieldValue::from(value.clone())),
        )),
    }
}

/// A token id; whether the vocabulary has it is checked later.
pub(super) fn id(value: &Value) -> Option<TokenId> {
    integer(value)?.try_into().ok().map(TokenId)
}

/// Refuses more prompts than a request may have.
pub(super) fn check_prompts(field: &str, count: usize, most: usize) -> Result<(), Failure> {
    match count {
        0 => Err(Failure::invalid(field, format!("`{field}` must hold at least one prompt, but is empty"))),
        count if count <= most => Ok(()),
        _ => Err(Failure::invalid(
            field,
            format!("`{field}` must hold at most {most} prompts, but holds {count}; make several requests"),
        )),
    }
}
/// The catalogue of this name.
fn catalogue(app: &App, name: &str) -> Result<Arc<TokenTrie>, Failure> {
    let catalogues = &app.state.options.catalogues;
    catalogues.get(name).cloned().ok_or_else(|| {
        let names: Vec<String> = catalogues.keys().map(|name| format!("{name:?}")).collect();
        let message = if names.is_empty() {
            "`allowed_sequences` names a catalogue of the server, which has none; leave it out".to_owned()
        } else {
            format!(
                "`allowed_sequences` must be one of {}, the catalogues of the server, but is {name:?}",
                names.join(", ")
            )
        };
        Failure::invalid("allowed_sequences", message)
    })
}

/// The adapter that the id of a model names: `base:adapter`, or the adapter alone.
pub(super) fn adapter(app: &App, model: &str) -> Result<String, Failure> {
    let own = model.strip_prefix(&*app.model).and_then(|rest| rest.strip_prefix(':')).unwrap_or(model);
    if app.generator.has_adapter(own) {
        return Ok(own.to_owned());
    }
    Err(not_served(model, app.ids()))
}
