//! Tool calls of conversations: the arguments about them, and the calls in replies. `rsgen._tool_calls` makes their
//! values, and runs tools.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBool, PyDict, PyList, PyString};
use serde_json::Value;

use super::calls::{Converted, Start};
use super::errors::{guarded, to_python};
use super::generator::Generator;
use super::output::GenerationOutput;
use super::output_type::OutputType;
use super::prompts::shown;
use super::reasoning::{SharedThinks, Thinks};
use super::signals::polled;
use super::walk::Walk;
use rsgen::ToolUse;
use rsgen::engine;
use rsgen::generator;
use rsgen_core::sync::Mutex;
use rsgen_generation::{FieldValue, GenerationConfig};
use rsgen_text::{ChatOptions, ToolChoice, new_call_id};

/// The module of its Python part.
const MODULE: &str = "rsgen._tool_calls";

/// The names of the arguments, and those of the loop that runs tools.
pub(super) const KEYWORDS: [&str; 4] =
    ["tool_choice", "parallel_tool_calls", "tool_parser", "reasoning_parser"];
const LOOP: [&str; 2] = ["run_tools", "max_tool_rounds"];
/// How often tools are run by default.
const DEFAULT_ROUNDS: usize = 8;

/// What the texts of a call are read as.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) output_type: Option<OutputType>,
    /// How the model calls tools.
    pub(super) tools: Option<ToolUse>,
    /// How it thinks.
    pub(super) thinks: SharedThinks,
}

/// The arguments about tool calls.
#[derive(Default)]
pub(super) struct ToolRequest {
    pub(super) choice: ToolChoice,
    is_single: bool,
    parser: Option<String>,
    reasoning_parser: Option<String>,
    /// How the model thinks, once that is known.
    pub(super) thinks: SharedThinks,
}

impl ToolRequest {
    pub(super) fn extract(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let [choice, parallel, parser, reasoning] = KEYWORDS;
        let text = |name: &str| -> PyResult<Option<String>> {
            let Some(mut given) = given(keywords, name)? else { return Ok(None) };
            // OpenAI names a tool by {"type": "function", "function": {"name": …}}.
            if let Some(function) = given.cast::<PyDict>().ok().filter(|_| name == choice) {
                let named =
                    function.get_item("function")?.and_then(|function| function.get_item("name").ok());
                given = named.unwrap_or(given);
            }
            let rule = |_| type_error!("`{name}` must be a text, got {}", shown(&given));
            Ok(Some(Walk::default().text(given.cast::<PyString>().map_err(rule)?)?))
        };
        let choice = match text(choice)?.as_deref() {
            None | Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            Some(name) => ToolChoice::Named(name.to_owned()),
        };
        Ok(Self {
            choice,
            is_single: !flag(keywords, parallel, true)?,
            parser: text(parser)?,
            reasoning_parser: text(reasoning)?,
            thinks: None,
        })
    }
}

fn given<'py>(keywords: Option<&Bound<'py, PyDict>>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
    Ok(value.filter(|value| !value.is_none()))
}

fn flag(keywords: Option<&Bound<'_, PyDict>>, name: &str, default: bool) -> PyResult<bool> {
    let Some(given) = given(keywords, name)? else { return Ok(default) };
    match given.cast::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => Err(type_error!("`{name}` must be True or False, got {}", shown(&given))),
    }
}

impl Generator {
    /// Finds how the model calls the tools of a call, and sets the grammar of calls that have to be made.
    ///
    /// # Errors
    /// `InputError` for tools that the template does not show, and for a choice that cannot be; `ConfigError` for a
    /// second grammar.
    pub(super) fn read_tools(
        py: Python<'_>,
        generator: &generator::Generator,
        call: &mut Converted,
        reading: &mut Reading,
    ) -> PyResult<()> {
        let Start::Chat(_, options, request) = &mut call.start else { return Ok(()) };
        let mut thinks = Thinks::new(generator, options, request.reasoning_parser.as_deref())
            .map_err(|error| to_python(py, error))?;
        let had_grammar = call.config.grammar.is_some();
        let found = Self::read_calls(py, generator, options, request, &mut call.config, reading);
        if let Some(thinks) = &mut thinks {
            thinks.holds_calls = call.config.grammar.is_some() && !had_grammar;
        }
        reading.thinks = thinks.map(Arc::new);
        request.thinks.clone_from(&reading.thinks);
        found
    }

    fn read_calls(
        py: Python<'_>,
        generator: &generator::Generator,
        options: &ChatOptions,
        request: &ToolRequest,
        config: &mut GenerationConfig,
        reading: &mut Reading,
    ) -> PyResult<()> {
        let parser = request.parser.as_deref();
        let tools = polled(py, |interrupted| generator.tool_use(options, parser, interrupted))?;
        let Some(tools) = tools else {
            return match request.choice {
                ToolChoice::Auto | ToolChoice::None => Ok(()),
                _ => Err(input_error!(
                    py,
                    "`tool_choice` asks for a call, and there are no `tools`; give some"
                )),
            };
        };
        let set = [
            ("json_schema", config.json_schema.is_some()),
            ("regex", config.regex.is_some()),
            ("grammar", config.grammar.is_some()),
        ];
        let other = set.into_iter().find(|(_, is_set)| *is_set);
        // A text of another form has no calls, and a search that nothing ends takes no grammar.
        let is_free = request.choice == ToolChoice::Auto
            && (other.is_some() || generator.generation_config().eos_token_id.is_none());
        let grammar = if is_free {
            None
        } else {
            polled(py, |interrupted| {
                generator.tool_grammar(&tools, &request.choice, !request.is_single, interrupted)
            })?
        };
        if let Some(grammar) = grammar {
            if let Some((other, _)) = other {
                let other = if reading.output_type.is_some() { "output_type" } else { other };
                return Err(config_error!(
                    py,
                    "`tool_choice` asks for a call, and `{other}` for a text of its form; leave one out"
                ));
            }
            let set = config.set("grammar", &FieldValue::from(Value::from(grammar)));
            set.map_err(|error| to_python(py, error))?;
        }
        reading.tools = Some(tools);
        Ok(())
    }

    /// Replies to a conversation, and runs the tools that the replies call.
    pub(super) fn run_tools<'py>(
        slf: &Bound<'py, Self>,
        messages: &Bound<'py, PyAny>,
        generation_config: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, GenerationOutput>>> {
        let [run, rounds] = LOOP;
        let max_rounds = match given(keywords, rounds)? {
            Some(given) => super::field_values::count(&given, rounds)?,
            None => DEFAULT_ROUNDS,
        };
        let runs = flag(keywords, run, false)?;
        let Some(keywords) = keywords else { return Ok(None) };
        LOOP.iter()
            .filter(|name| keywords.contains(**name).unwrap_or(false))
            .try_for_each(|name| keywords.del_item(name))?;
        if !runs {
            return Ok(None);
        }
        let module = slf.py().import(MODULE)?;
        let ran = module.call_method1("run", (slf, messages, generation_config, keywords, max_rounds))?;
        let (output, history): (Bound<'py, GenerationOutput>, Py<PyList>) = ran.extract()?;
        *output.get().replies.history.lock() = Some(history);
        Ok(Some(output))
    }
}

/// A reply: its text; its calls with id, name and arguments; its thinking; where they are read as values, the texts
/// of all rows without thinking.
pub(super) type Reply = (String, Vec<(String, String, String)>, String, Option<Vec<String>>);

/// The first reply of an output, where it may call tools.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) first: Option<Reply>,
    /// The messages of it, and of the rounds before it.
    pub(super) history: Mutex<Option<Py<PyList>>>,
}

impl Replies {
    pub(super) fn new(reading: &Reading, output: &engine::GenerationOutput) -> Self {
        let (tools, thinks) = (reading.tools.as_ref(), reading.thinks.as_deref());
        let is_read = !output.rows.is_empty() && (tools.is_some() || thinks.is_some());
        let read = |row: usize, tools| {
            let prompt = output.rows[row].generated.prompt_index;
            rsgen::Reply::read(output, row, thinks.map(|thinks| thinks.of_prompt(prompt)), tools)
        };
        let first = is_read.then(|| {
            let rsgen::Reply { reasoning, text, tool_calls, .. } = read(0, tools);
            let calls = tool_calls.into_iter().map(|call| (new_call_id(), call.name, call.arguments));
            let is_typed = thinks.is_some() && reading.output_type.is_some();
            let answers = is_typed.then(|| (0..output.rows.len()).map(|row| read(row, None).text).collect());
            (text, calls.collect(), reasoning, answers)
        });
        Self { first, history: Mutex::default() }
    }

    /// The texts that are read as values, where they are not those of the output.
    pub(super) fn answers(&self) -> Option<&[String]> {
        self.first.as_ref()?.3.as_deref()
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.history.try_lock().map_or(Ok(()), |history| visit.call(&*history))
    }
}

#[guarded]
#[pymethods]
impl GenerationOutput {
    /// list[ToolCall]: The calls of tools that the first row makes, in their order.
    ///
    /// Empty for a reply that makes none, and for a call without `tools`. A call that was cut off, or whose arguments
    /// are no JSON, has its text.
    #[getter]
    fn tool_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let calls = self.replies.first.as_ref().map(|reply| reply.1.clone()).unwrap_or_default();
        py.import(MODULE)?.call_method1("tool_calls", (calls,))
    }

    /// list[dict[str, Any]]: The messages that a conversation goes on with after this output: the first row, with its
    /// calls of tools.
    ///
    /// With `run_tools` those of all rounds: replies, results of tools, and the last reply.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if let Some(history) = &*self.replies.history.lock() {
            return Ok(history.bind(py).clone());
        }
        let (text, calls, reasoning) = match &self.replies.first {
            Some((text, calls, reasoning, _)) => (text.as_str(), calls.clone(), reasoning.as_str()),
            None => (self.output.text(), Vec::new(), ""),
        };
        PyList::new(py, [py.import(MODULE)?.call_method1("message", (text, calls, reasoning))?])
    }
}
