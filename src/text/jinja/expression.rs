//! What expressions are worth: operators, attributes, items, filters and tests.

use std::cmp::Ordering;

use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

use super::arguments::Arguments;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::value::{SeqKind, Value};
use super::{checks, filters, methods, operators, slices};

impl<'t> Interpreter<'t> {
    /// The value of an expression.
    pub(super) fn eval(&mut self, expression: &'t Expr<'t>) -> Result<Value> {
        self.step(expression.span().start_line, |this| this.eval_step(expression))
    }

    fn eval_step(&mut self, expression: &'t Expr<'t>) -> Result<Value> {
        match expression {
            Expr::Var(name) => match self.lookup(name.id) {
                Some(value) => Ok(value.clone()),
                None => self.undefined(format!("`{}` is undefined", name.id)),
            },
            Expr::Const(constant) => self.constant(&constant.value),
            Expr::List(list) => {
                let items = self.eval_all(&list.items)?;
                self.budget.list(items)
            }
            Expr::Tuple(tuple) => {
                let items = self.eval_all(&tuple.items)?;
                self.budget.seq(SeqKind::Tuple, items)
            }
            Expr::Map(map) => {
                let keys = self.eval_all(&map.keys)?;
                let values = self.eval_all(&map.values)?;
                self.budget.dict(keys.into_iter().zip(values))
            }
            Expr::UnaryOp(operation) => {
                let value = self.eval(&operation.expr)?;
                match operation.op {
                    UnaryOpKind::Not => Ok(Value::Bool(!value.is_true())),
                    UnaryOpKind::Neg => operators::negate(&value),
                }
            }
            Expr::BinOp(operation) => match operation.op {
                BinOpKind::ScAnd => {
                    let left = self.eval(&operation.left)?;
                    if left.is_true() { self.eval(&operation.right) } else { Ok(left) }
                }
                BinOpKind::ScOr => {
                    let left = self.eval(&operation.left)?;
                    if left.is_true() { Ok(left) } else { self.eval(&operation.right) }
                }
                operator => {
                    let left = self.eval(&operation.left)?;
                    let right = self.eval(&operation.right)?;
                    self.binary(operator, &left, &right)
                }
            },
            Expr::Compare(chain) => {
                let mut left = self.eval(&chain.expr)?;
                for operation in &chain.ops {
                    let right = self.eval(&operation.expr)?;
                    let (operator, expected) = match operation.op {
                        CompareOpKind::Eq => (BinOpKind::Eq, true),
                        CompareOpKind::Ne => (BinOpKind::Ne, true),
                        CompareOpKind::Lt => (BinOpKind::Lt, true),
                        CompareOpKind::Lte => (BinOpKind::Lte, true),
                        CompareOpKind::Gt => (BinOpKind::Gt, true),
                        CompareOpKind::Gte => (BinOpKind::Gte, true),
                        CompareOpKind::In => (BinOpKind::In, true),
                        CompareOpKind::NotIn => (BinOpKind::In, false),
                    };
                    if self.binary(operator, &left, &right)?.is_true() != expected {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::IfExpr(choice) => {
                if self.eval(&choice.test_expr)?.is_true() {
                    self.eval(&choice.true_expr)
                } else if let Some(other) = &choice.false_expr {
                    self.eval(other)
                } else {
                    self.undefined("an `if` without `else` has no value here".to_owned())
                }
            }
            Expr::GetAttr(attribute) => {
                let value = self.eval(&attribute.expr)?;
                self.attribute(&value, attribute.name)
            }
            Expr::GetItem(item) => {
                let value = self.eval(&item.expr)?;
                let key = self.eval(&item.subscript_expr)?;
                self.item(&value, &key)
            }
            Expr::Slice(slice) => {
                let value = self.eval(&slice.expr)?;
                let mut bound = |bound: &'t Option<Expr<'t>>| {
                    bound.as_ref().map_or(Ok(Value::None), |bound| self.eval(bound))
                };
                let bounds = [bound(&slice.start)?, bound(&slice.stop)?, bound(&slice.step)?];
                slices::slice(&self.budget, &value, &bounds)
            }
            Expr::Filter(_) => self.eval_filter(expression, None),
            Expr::Test(test) => {
                let value = self.eval(&test.expr)?;
                let arguments = self.arguments(&test.args)?;
                checks::check(self, test.name, &value, &arguments).map(Value::Bool)
            }
            Expr::Call(call) => {
                let callee = self.eval(&call.expr)?;
                let arguments = self.arguments(&call.args)?;
                self.call(&callee, arguments)
            }
        }
    }

    /// A filter, or a chain of them whose first has its value from elsewhere.
    pub(super) fn eval_filter_chain(&mut self, filter: &'t Expr<'t>, value: Value) -> Result<Value> {
        self.eval_filter(filter, Some(value))
    }

    fn eval_filter(&mut self, expression: &'t Expr<'t>, start: Option<Value>) -> Result<Value> {
        let Expr::Filter(filter) = expression else {
            return Err(Failure::new("a filter was expected"));
        };
        let value = match (&filter.expr, start) {
            (Some(inner @ Expr::Filter(_)), Some(start)) => {
                self.step(inner.span().start_line, |this| this.eval_filter(inner, Some(start)))?
            }
            (Some(inner), _) => self.eval(inner)?,
            (None, start) => start.unwrap_or(Value::None),
        };
        let arguments = self.arguments(&filter.args)?;
        filters::apply(self, filter.name, &value, &arguments)
    }

    fn eval_all(&mut self, expressions: &'t [Expr<'t>]) -> Result<Vec<Value>> {
        expressions.iter().map(|expression| self.eval(expression)).collect()
    }

    /// The arguments of a call.
    pub(super) fn arguments(&mut self, arguments: &'t [CallArg<'t>]) -> Result<Arguments> {
        let mut out = Arguments::default();
        for argument in arguments {
            match argument {
                CallArg::Pos(value) => out.positional.push(self.eval(value)?),
                CallArg::Kwarg(name, value) => out.keywords.push(((*name).into(), self.eval(value)?)),
                CallArg::PosSplat(values) => {
                    let values = self.eval(values)?;
                    let items = self.items(&values)?;
                    self.budget.charge_elements(items.items.len())?;
                    out.positional.extend_from_slice(&items.items);
                }
                CallArg::KwargSplat(values) => {
                    let Value::Dict(dict) = self.eval(values)? else {
                        return Err(Failure::new("`**` takes a dict"));
                    };
                    self.budget.charge_elements(dict.entries.len())?;
                    for (key, value) in &dict.entries {
                        let Value::Str(name) = key else {
                            return Err(Failure::new("the keys of a dict after `**` must be texts"));
                        };
                        out.keywords.push((name.clone(), value.clone()));
                    }
                }
            }
        }
        Ok(out)
    }

    /// `value.name`: an attribute or a method, else an item.
    pub(super) fn attribute(&mut self, value: &Value, name: &str) -> Result<Value> {
        value.must_be_defined()?;
        if let Some(found) = self.own_attribute(value, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value
            && let Some(found) = dict.named(&self.budget, name)?
        {
            return Ok(found.clone());
        }
        self.missing(value, name)
    }

    /// `value[key]`: an item, else an attribute or a method.
    pub(super) fn item(&mut self, value: &Value, key: &Value) -> Result<Value> {
        value.must_be_defined()?;
        let found = match value {
            Value::Dict(dict) => dict.get(&self.budget, key)?.cloned(),
            Value::Seq(seq) if !seq.kind.is_view() => {
                slices::place(key, seq.items.len()).map(|place| seq.items[place].clone())
            }
            Value::Str(text) => slices::char_at(&self.budget, text, key)?,
            _ => None,
        };
        match (found, key) {
            (Some(found), _) => Ok(found),
            (None, Value::Str(name)) => match self.own_attribute(value, name)? {
                Some(found) => Ok(found),
                None => self.missing(value, name),
            },
            (None, _) => {
                let mut shown = String::new();
                self.show_repr(key, &mut shown)?;
                self.missing(value, &shown)
            }
        }
    }

    /// An attribute that is no item: a method, or a part of a namespace, a loop or a macro.
    pub(super) fn own_attribute(&mut self, value: &Value, name: &str) -> Result<Option<Value>> {
        Ok(match value {
            Value::Namespace(place) => self.namespaces[*place].named(&self.budget, name)?.cloned(),
            Value::Loop(place) => self.loop_attribute(*place, name),
            Value::Macro(place) => match name {
                "name" => Some(self.budget.text(self.macros[*place].name())?),
                "arguments" => {
                    let names = self.macros[*place].node.args.iter().filter_map(|argument| match argument {
                        Expr::Var(name) => Some(Value::str(name.id)),
                        _ => None,
                    });
                    Some(self.budget.seq(SeqKind::Tuple, names.collect())?)
                }
                _ => None,
            },
            Value::Seq(seq) if seq.kind == SeqKind::Group && matches!(name, "grouper" | "list") => {
                seq.items.get(usize::from(name == "list")).cloned()
            }
            _ if methods::exists(value, name) => Some(Value::Method(
                (value.clone(), self.budget.text(name)?.as_str().unwrap_or("").into()).into(),
            )),
            _ => None,
        })
    }

    fn loop_attribute(&self, place: usize, name: &str) -> Option<Value> {
        let this = &self.loops[place];
        let (index, len) = (this.index, this.items.items.len());
        let number = |number: usize| Some(Value::Int(number as i128));
        let neighbour = |place: Option<usize>| {
            let found = place.and_then(|place| this.items.items.get(place)).cloned();
            Some(found.unwrap_or_else(|| Value::Undefined("the loop has no such neighbour".into())))
        };
        match name {
            "index" => number(index + 1),
            "index0" => number(index),
            "revindex" => number(len - index),
            "revindex0" => number(len - index - 1),
            "first" => Some(Value::Bool(index == 0)),
            "last" => Some(Value::Bool(index + 1 == len)),
            "length" => number(len),
            "depth" => number(this.depth0 + 1),
            "depth0" => number(this.depth0),
            "previtem" => neighbour(index.checked_sub(1)),
            "nextitem" => neighbour(Some(index + 1)),
            "cycle" | "changed" => Some(Value::Method((Value::Loop(place), name.into()).into())),
            _ => None,
        }
    }

    /// A value that is not there, with the reason.
    pub(super) fn undefined(&self, reason: String) -> Result<Value> {
        self.budget.charge_bytes(reason.len())?;
        Ok(Value::Undefined(reason.into()))
    }

    fn missing(&self, value: &Value, name: &str) -> Result<Value> {
        let name: String = name.chars().take(40).collect();
        self.undefined(format!("a {} has no `{name}`", value.type_name()))
    }

    fn constant(&self, value: &minijinja::Value) -> Result<Value> {
        match value.kind() {
            ValueKind::Bool => Ok(Value::Bool(value.is_true())),
            ValueKind::Number if value.is_integer() => i128::try_from(value.clone())
                .map(Value::Int)
                .map_err(|_| Failure::new(format!("the number {value} is too large"))),
            ValueKind::Number => f64::try_from(value.clone())
                .map(Value::Float)
                .map_err(|_| Failure::new(format!("the number {value} is too large"))),
            ValueKind::String => self.budget.text(value.as_str().unwrap_or_default()),
            _ => Ok(Value::None),
        }
    }

    fn binary(&mut self, operator: BinOpKind, left: &Value, right: &Value) -> Result<Value> {
        let budget = &self.budget;
        let order = |operator: &str, is: fn(Ordering) -> bool| {
            Ok(Value::Bool(left.compare(right, operator, budget)?.is_some_and(is)))
        };
        match operator {
            BinOpKind::Eq => left.equals(right, budget).map(Value::Bool),
            BinOpKind::Ne => left.equals(right, budget).map(|equal| Value::Bool(!equal)),
            BinOpKind::Lt => order("<", Ordering::is_lt),
            BinOpKind::Lte => order("<=", Ordering::is_le),
            BinOpKind::Gt => order(">", Ordering::is_gt),
            BinOpKind::Gte => order(">=", Ordering::is_ge),
            BinOpKind::In => operators::contains(budget, right, left).map(Value::Bool),
            BinOpKind::Concat => {
                let mut text = String::new();
                self.show(left, &mut text)?;
                self.show(right, &mut text)?;
                Ok(Value::Str(text.into()))
            }
            BinOpKind::Add => operators::add(budget, left, right),
            BinOpKind::Mul => operators::multiply(budget, left, right),
            BinOpKind::Rem => match left {
                Value::Str(format) => super::printf::format(self, format, right),
                _ => operators::arithmetic("%", left, right),
            },
            BinOpKind::Sub => operators::arithmetic("-", left, right),
            BinOpKind::Div => operators::arithmetic("/", left, right),
            BinOpKind::FloorDiv => operators::arithmetic("//", left, right),
            BinOpKind::Pow => operators::arithmetic("**", left, right),
            BinOpKind::ScAnd | BinOpKind::ScOr => Ok(Value::None),
        }
    }
}
