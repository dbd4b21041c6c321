//! The class `GenerationConfig`, and the keyword arguments that make one.
//!
//! A configuration is a value that never changes. Its attributes are made from the table of fields, so a
//! field that is added there needs nothing here.

use std::ffi::CString;
use std::path::PathBuf;

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};

use super::callbacks::no_class;
use super::errors::{config_error, guarded, message, prefixed, replaced, to_python, words};
use super::field_values::{field_value, python_value};
use super::generator::Generator;
use super::json;
use super::prompts::shown;
use super::walk::Text;
use super::watermarking;
use rsgen_core::error::Message;
use rsgen_core::escape;
use rsgen_generation::{FieldValue, GenerationConfig as Fields};

/// The module that reads transformers' objects.
pub(super) const FOREIGN: &str = "rsgen._transformers";

/// How to generate: transformers' `GenerationConfig`, with every field unset until it is given.
///
/// A configuration never changes: `update()` makes a changed copy. A field that is unset comes
/// from the model's `generation_config.json`, then from transformers' default. The call that
/// uses a configuration checks it, because what is possible depends on the model and the prompt.
///
/// Args:
///     **fields: Each field is an attribute of the class and documented there.
///
/// Raises:
///     TypeError: A keyword is no field; the message suggests the one that was meant.
///     ConfigError: A value has a wrong type.
///
/// Example:
///     >>> config = rsgen.GenerationConfig(do_sample=True, top_p=0.9)
///     >>> config.top_p
///     0.9
///     >>> config.update(top_p=None, seed=7)
///     GenerationConfig(do_sample=True, seed=7)
#[pyclass(module = "rsgen", name = "GenerationConfig", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct GenerationConfig(pub(super) Fields);

impl GenerationConfig {
    /// Validates the fields and issues the warnings.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let warnings = self.0.validate().map_err(|error| to_python(py, error))?;
        warn(py, warnings.iter().map(told))
    }
}

/// The text of a warning, with Python's spelling of fields and values.
pub(super) fn told(warning: &Message) -> String {
    warning.in_words(&words)
}

/// Issues each text as a `UserWarning`.
pub(super) fn warn(py: Python<'_>, warnings: impl IntoIterator<Item = String>) -> PyResult<()> {
    let category = py.get_type::<PyUserWarning>();
    for warning in warnings {
        let warning = CString::new(escape::message(&warning).into_owned())?;
        PyErr::warn(py, &category, &warning, 1)?;
    }
    Ok(())
}

#[guarded]
#[pymethods]
impl GenerationConfig {
    #[new]
    #[pyo3(signature = (**fields))]
    fn new(fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut config = Fields::new();
        set_keywords(&mut config, "GenerationConfig", fields, &[])?;
        Ok(Self(config))
    }

    /// Makes a configuration of a dict, as `to_dict()` returns it.
    ///
    /// Args:
    ///     fields (dict[str, Any]): Values by name. Keys that are no fields are kept, without effect.
    ///
    /// Returns:
    ///     Self: The configuration.
    #[classmethod]
    #[pyo3(signature = (fields))]
    fn from_dict(_class: &Bound<'_, PyType>, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut config = Fields::new();
        for (name, value) in fields {
            let name = name.extract::<Text<'_>>()?.0.to_owned();
            if Fields::is_field(&name) {
                set(&mut config, &name, &value)?;
            } else {
                config.extra.insert(name, json::from_python(&value)?);
            }
        }
        Ok(Self(config))
    }

    /// Reads a `generation_config.json`.
    ///
    /// Keys that are no fields are kept, without effect.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The file, or its folder.
    ///     **fields: Fields that take precedence over the file.
    ///
    /// Returns:
    ///     Self: The configuration.
    ///
    /// Raises:
    ///     LoadError: The file is missing or damaged.
    #[classmethod]
    #[pyo3(signature = (path, **fields))]
    fn from_pretrained(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let config = Fields::from_pretrained(path);
        let mut config = config.map_err(|error| to_python(py, error))?;
        warn(py, config.unsupported_warning())?;
        set_keywords(&mut config, "from_pretrained", fields, &[])?;
        Ok(Self(config))
    }

    /// Makes a configuration of the generation fields of a model's configuration.
    ///
    /// Args:
    ///     model_config (Any): A dict such as `Generator.config`, or transformers' object.
    ///
    /// Returns:
    ///     Self: The configuration.
    #[classmethod]
    #[pyo3(signature = (model_config))]
    fn from_model_config(_class: &Bound<'_, PyType>, model_config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = model_config.py();
        let given = match model_config.getattr_opt("to_dict")? {
            Some(to_dict) => to_dict.call0()?,
            None => model_config.clone(),
        };
        let Ok(given) = given.cast::<PyDict>() else {
            return Err(type_error!(
                "`model_config` must be a dict or have a method to_dict(), got {}",
                shown(model_config)
            ));
        };
        let mut fields = serde_json::Map::new();
        for (name, value) in given {
            match name.extract::<String>() {
                Ok(name) if Fields::is_field(&name) => {
                    fields.insert(name, json::from_python(&value)?);
                }
                // What JSON cannot hold does not matter in the rest.
                _ => {}
            }
        }
        let config = Fields::from_model_config(fields);
        config.map(Self).map_err(|error| to_python(py, error))
    }

    /// Names the search that the fields select, as its method is called: `"greedy_search"`, `"beam_sample"`,
    /// ….
    ///
    /// Args:
    ///     assistant_model (Generator | None): The model that drafts, if there is one.
    ///
    /// Returns:
    ///     str: The name of the method.
    #[pyo3(signature = (assistant_model=None))]
    fn get_generation_mode(&self, assistant_model: Option<&Bound<'_, Generator>>) -> &'static str {
        rsgen_generation::GenerationMode::of(&self.0, assistant_model.is_some()).as_str()
    }

    /// Writes `generation_config.json` into a folder.
    ///
    /// Args:
    ///     path (str | os.PathLike[str]): The folder, which is made if need be.
    ///
    /// Raises:
    ///     ConfigError: A value is not possible. What `validate()` only warns of is saved.
    ///     LoadError: The file cannot be written.
    #[pyo3(signature = (path))]
    fn save_pretrained(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.warn(py)?;
        self.0.save_pretrained(path).map(drop).map_err(|error| to_python(py, error))
    }

    /// Checks what can be told without a model and a prompt. A call checks all of it again.
    ///
    /// Values that are possible but have no effect give a warning.
    ///
    /// Args:
    ///     strict (bool): Raises `ConfigError` instead of warning.
    ///
    /// Raises:
    ///     ConfigError: A value is not possible.
    #[pyo3(signature = (strict=false))]
    fn validate(&self, py: Python<'_>, strict: bool) -> PyResult<()> {
        if !strict {
            return self.warn(py);
        }
        let warnings = self.0.validate().map_err(|error| to_python(py, error))?;
        if warnings.is_empty() {
            Ok(())
        } else {
            Err(config_error(py, warnings.iter().map(told).collect::<Vec<_>>().join("; ")))
        }
    }

    /// Returns the fields that are set, and the keys that were kept.
    ///
    /// Returns:
    ///     dict[str, Any]: Values by name.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.0.to_json() {
            // The fields as attributes have them: JSON has no infinity.
            match self.0.get(&name) {
                Some(value) => dict.set_item(name, python_value(py, &value)?)?,
                None => dict.set_item(name, json::to_python(py, value)?)?,
            }
        }
        Ok(dict)
    }

    /// Returns a copy with these fields changed. This object stays as it is.
    ///
    /// transformers' method of that name changes the object and returns what it did not use.
    ///
    /// Args:
    ///     **fields: The fields to change. None unsets a field.
    ///
    /// Returns:
    ///     Self: The copy.
    #[pyo3(signature = (**fields))]
    fn update(&self, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut config = self.0.clone();
        set_keywords(&mut config, "update", fields, &[])?;
        Ok(Self(config))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let fields = Fields::FIELDS.iter().filter_map(|info| {
            let shown = |_| Ok(format!("{}={}", info.name, attribute(py, &self.0, info.name)?.repr()?));
            self.0.get(info.name).map(shown)
        });
        let extra = self.0.extra.iter();
        let extra =
            extra.map(|(name, value)| Ok(format!("{name}={}", json::to_python(py, value.clone())?.repr()?)));
        Ok(format!("GenerationConfig({})", fields.chain(extra).collect::<PyResult<Vec<_>>>()?.join(", ")))
    }

    /// Returns the values, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[dict[str, Any]]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (Bound<'py, PyDict>,)) {
        (slf.get_type().getattr("from_dict")?, (slf.get().to_dict(slf.py())?,))
    }

    fn __getattr__(&self, name: &str) -> PyResult<()> {
        Err(PyAttributeError::new_err(Fields::unknown_field(name)))
    }

    fn __setattr__(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyAttributeError::new_err(format!(
            "a GenerationConfig does not change, so `{name}` cannot be set to {}; make a changed copy: config = \
                 config.update({name}=…)",
            shown(value)
        )))
    }
}

/// The value of a field's attribute.
fn attribute<'py>(py: Python<'py>, config: &Fields, name: &str) -> PyResult<Bound<'py, PyAny>> {
    match &config.watermarking_config {
        Some(watermarking) if name == "watermarking_config" => watermarking::object(py, watermarking),
        _ => python_value(py, &config.get(name).unwrap_or(FieldValue::Null)),
    }
}

/// Gives the class a read-only attribute for each field.
pub(super) fn add_fields_to(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let property = py.import("builtins")?.getattr("property")?;
    for info in Fields::FIELDS {
        let getter = PyCFunction::new_closure(
            py,
            None,
            None,
            |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
                guarded(|| {
                    let config = arguments.get_item(0)?;
                    let config = config.cast::<GenerationConfig>()?.get();
                    attribute(arguments.py(), &config.0, info.name).map(Bound::unbind)
                })
            },
        )?;
        let (python, rule) = (info.kind.python(), info.kind.describe());
        let doc = info.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let doc = format!("{python} | None: {doc}\n\nMust be {rule}. Default: {}.", info.default);
        class.setattr(info.name, property.call1((getter, py.None(), py.None(), doc))?)?;
    }
    Ok(())
}

/// The configuration that a call was given as a whole: this class's, or transformers', read without importing
/// it.
///
/// # Errors
/// `TypeError` for anything else; `ConfigError` for a field that is not possible.
pub(super) fn passed(given: &Bound<'_, PyAny>) -> PyResult<Fields> {
    if let Ok(config) = given.cast::<GenerationConfig>() {
        return Ok(config.get().0.clone());
    }
    no_class("generation_config", given)?;
    let fields = given.py().import(FOREIGN)?.call_method1("config_fields", (given,))?;
    let mut config = Fields::new();
    for (name, value) in fields.cast::<PyDict>()? {
        let name = name.extract::<Text<'_>>()?.0.to_owned();
        if Fields::is_known(&name) {
            set(&mut config, &name, &value)?;
        }
    }
    Ok(config)
}

/// The configuration that the keyword arguments of a call of `function` make, those that are `others` left
/// out. `None` switches a field off, as in transformers; in a `GenerationConfig` it leaves the field unset.
///
/// # Errors
/// `TypeError` for a name that is no field, with the one that was probably meant; `ConfigError` for a value
/// of another type.
pub(super) fn from_keywords(
    function: &str,
    fields: Option<&Bound<'_, PyDict>>,
    others: &[&str],
) -> PyResult<Fields> {
    let mut config = Fields::new();
    set_keywords(&mut config, function, fields, others)?;
    for (name, value) in fields.into_iter().flatten() {
        let name = name.extract::<Text<'_>>()?.0.to_owned();
        if value.is_none() && !others.contains(&name.as_str()) {
            config.set_in_call(&name, &FieldValue::Null).map_err(|error| to_python(value.py(), error))?;
        }
    }
    Ok(config)
}

/// Arguments of `chat` that are looked for at other methods.
const OF_CHAT: [&str; 6] =
    ["messages", "tools", "tool_choice", "parallel_tool_calls", "run_tools", "max_tool_rounds"];

fn set_keywords(
    config: &mut Fields,
    function: &str,
    fields: Option<&Bound<'_, PyDict>>,
    others: &[&str],
) -> PyResult<()> {
    for (name, value) in fields.into_iter().flatten() {
        let name = name.extract::<Text<'_>>()?.0.to_owned();
        if others.contains(&name.as_str()) {
            continue;
        }
        if !Fields::is_known(&name) {
            let unknown = if OF_CHAT.contains(&name.as_str()) {
                format!("`{name}` is an argument of `chat`, which takes messages and their tools")
            } else {
                Fields::unknown_field(&name)
            };
            return Err(PyTypeError::new_err(format!(
                "{function}() got an unexpected keyword argument: {unknown}"
            )));
        }
        set(config, &name, &value)?;
    }
    Ok(())
}

fn set(config: &mut Fields, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let value_of = match name {
        "json_schema" => json::schema,
        "watermarking_config" => watermarking::value_of,
        _ => field_value,
    };
    let (py, subject) = (value.py(), format!("`{name}`"));
    let named = |error: &PyErr| {
        let is_named = message(py, error).starts_with(&subject);
        if is_named { error.clone_ref(py) } else { prefixed(py, &subject, error) }
    };
    let given = value_of(value).map_err(|error| replaced(py, error, named))?;
    config.set(name, &given).map_err(|error| to_python(value.py(), error))
}
