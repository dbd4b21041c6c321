//! What happens when a template calls something: a function of the environment, a macro, a method, a recursive loop.

use std::rc::Rc;

use minijinja::machinery::ast::Expr;

use super::arguments::{Arguments, integer};
use super::failure::{Failure, Result};
use super::interpreter::{Interpreter, must_be_public};
use super::methods;
use super::value::{Dict, Function, SeqKind, Value};

/// The longest range, as in Jinja's sandbox.
const MAX_RANGE: i128 = 100_000;

impl Interpreter<'_> {
    /// Calls a value.
    pub(super) fn call(&mut self, callee: &Value, arguments: Arguments) -> Result<Value> {
        match callee {
            Value::Function(function) => self.call_function(*function, &arguments),
            Value::Macro(place) => self.call_macro(*place, arguments),
            Value::Loop(place) => self.recurse(*place, &arguments),
            Value::Method(method) => {
                let (value, name) = &**method;
                match value {
                    Value::Loop(place) => self.call_loop_method(*place, name, &arguments),
                    _ => methods::call(self, value, name, &arguments),
                }
            }
            _ => {
                callee.must_be_defined()?;
                Err(Failure::new(format!("a {} cannot be called", callee.type_name())))
            }
        }
    }

    fn call_function(&mut self, function: Function, arguments: &Arguments) -> Result<Value> {
        match function {
            Function::Range => self.range(arguments),
            Function::Dict => self.new_dict(arguments).map(|dict| Value::Dict(Rc::new(dict))),
            Function::Namespace => {
                let dict = self.new_dict(arguments)?;
                for (key, _) in &dict.entries {
                    key.as_str().map_or(Ok(()), must_be_public)?;
                }
                self.budget.charge_elements(2)?;
                self.namespaces.push(dict);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
            Function::RaiseException => {
                let [message] = arguments.bind_all("raise_exception", ["message"])?;
                Err(Failure::new(&*self.to_text(&message)?))
            }
            Function::StrftimeNow => {
                let [format] = arguments.bind_all("strftime_now", ["format"])?;
                let Value::Str(format) = format else {
                    return Err(Failure::new("strftime_now takes a text"));
                };
                self.budget.charge_bytes(format.len().saturating_mul(32))?;
                let now = jiff::Zoned::now();
                let text = jiff::fmt::strtime::format(&*format, &now)
                    .map_err(|error| Failure::new(format!("strftime_now: {error}")))?;
                self.budget.text(text)
            }
        }
    }

    fn range(&self, arguments: &Arguments) -> Result<Value> {
        let [first, second, step] = arguments.bind("range", ["start", "stop", "step"])?;
        let number = |value: Option<&Value>| Ok(integer("range", value)?.map(i128::from));
        let first = number(first.as_ref())?.ok_or_else(|| Failure::new("range needs a number"))?;
        let (start, stop) = number(second.as_ref())?.map_or((0, first), |stop| (first, stop));
        let step = number(step.as_ref())?.unwrap_or(1);
        if step == 0 {
            return Err(Failure::new("the step of a range must not be 0"));
        }
        let distance = if step > 0 { stop - start } else { start - stop };
        let len = if distance > 0 { (distance - 1) / step.abs() + 1 } else { 0 };
        if len > MAX_RANGE {
            return Err(Failure::new(format!("a range may have at most {MAX_RANGE} numbers, got {len}")));
        }
        self.budget.charge_elements(len as usize)?;
        let numbers = (0..len).map(|index| Value::Int(start + index * step)).collect();
        self.budget.seq(SeqKind::Range, numbers)
    }

    /// What Python's `dict` makes of its arguments.
    fn new_dict(&self, arguments: &Arguments) -> Result<Dict> {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        match arguments.positional.as_slice() {
            [] => {}
            [Value::Dict(dict)] => entries.extend_from_slice(&dict.entries),
            [pairs] => {
                for pair in &self.items(pairs)?.items {
                    match self.items(pair)?.items.as_slice() {
                        [key, value] => entries.push((key.clone(), value.clone())),
                        _ => return Err(Failure::new("dict takes pairs of a key and a value")),
                    }
                }
            }
            _ => return Err(Failure::new("dict takes one argument")),
        }
        for (name, value) in &arguments.keywords {
            entries.push((Value::Str(name.clone()), value.clone()));
        }
        match self.budget.dict(entries)? {
            Value::Dict(dict) => Ok(Rc::unwrap_or_clone(dict)),
            _ => Ok(Dict::default()),
        }
    }

    fn call_macro(&mut self, place: usize, arguments: Arguments) -> Result<Value> {
        let (node, source, scope) = {
            let this = &self.macros[place];
            (this.node, this.text, this.scope)
        };
        let name = node.name;
        let Arguments { positional, mut keywords } = arguments;
        let text = self.scoped(scope, |this| {
            let mut rest = positional.into_iter();
            let defaults_from = node.args.len() - node.defaults.len();
            for (index, parameter) in node.args.iter().enumerate() {
                let Expr::Var(parameter) = parameter else { continue };
                let keyword = keywords.iter().position(|(name, _)| **name == *parameter.id);
                let keyword = keyword.map(|place| keywords.remove(place).1);
                let value = match (rest.next(), keyword) {
                    (Some(_), Some(_)) => {
                        return Err(Failure::new(format!("macro `{name}` got `{}` twice", parameter.id)));
                    }
                    (Some(value), None) | (None, Some(value)) => value,
                    (None, None) => match index.checked_sub(defaults_from) {
                        Some(index) => this.eval(&node.defaults[index])?,
                        None => {
                            this.undefined(format!("`{}` was not given to macro `{name}`", parameter.id))?
                        }
                    },
                };
                this.define(parameter.id, value);
            }
            let caller = keywords.iter().position(|(name, _)| **name == *"caller");
            if source.contains("caller") {
                let caller = caller.map(|place| keywords.remove(place).1);
                let none = || Value::Undefined("there is no caller".into());
                this.define("caller", caller.unwrap_or_else(none));
            }
            if source.contains("kwargs") {
                let entries = std::mem::take(&mut keywords).into_iter();
                let kwargs = this.budget.dict(entries.map(|(name, value)| (Value::Str(name), value)))?;
                this.define("kwargs", kwargs);
            } else if let Some((keyword, _)) = keywords.first() {
                return Err(Failure::new(format!("macro `{name}` has no argument `{keyword}`")));
            }
            let rest: Vec<Value> = rest.collect();
            if source.contains("varargs") {
                let varargs = this.budget.seq(SeqKind::Tuple, rest)?;
                this.define("varargs", varargs);
            } else if !rest.is_empty() {
                return Err(Failure::new(format!(
                    "macro `{name}` takes at most {} arguments",
                    node.args.len()
                )));
            }
            this.run_body(node)
        })?;
        Ok(Value::Str(text.into()))
    }

    /// `loop(items)` in a recursive loop: the loop once more, for these items.
    fn recurse(&mut self, place: usize, arguments: &Arguments) -> Result<Value> {
        let (node, depth0, scope) = {
            let this = &self.loops[place];
            (this.node, this.depth0, this.scope)
        };
        if !node.recursive {
            return Err(Failure::new("`loop` can be called in a loop that is marked `recursive`"));
        }
        let [items] = arguments.bind_all("loop", ["iterable"])?;
        let mut text = String::new();
        self.scoped(scope, |this| this.run_loop(node, &items, depth0 + 1, &mut text))?;
        Ok(Value::Str(text.into()))
    }

    fn call_loop_method(&mut self, place: usize, name: &str, arguments: &Arguments) -> Result<Value> {
        let values = &arguments.positional;
        if name == "cycle" {
            let index = self.loops[place].index.checked_rem(values.len());
            return match index {
                Some(index) => Ok(values[index].clone()),
                None => Err(Failure::new("loop.cycle takes the values to choose from")),
            };
        }
        let is_same = match &self.loops[place].last {
            Some(last) if last.len() == values.len() => {
                let mut is_same = true;
                for (old, new) in last.iter().zip(values) {
                    is_same = is_same && old.equals(new, &self.budget)?;
                }
                is_same
            }
            _ => false,
        };
        self.loops[place].last = Some(values.clone());
        Ok(Value::Bool(!is_same))
    }
}
