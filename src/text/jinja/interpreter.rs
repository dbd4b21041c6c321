//! The interpreter: runs the statements of a template, in scopes, against the budget.
//!
//! Scopes are Jinja's: loops, macros, captured blocks and `with` have their own, `if` has none; a macro sees the scope it
//! was written in as it is when the macro is called. Expressions are in `expression`, calls in `call`.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use minijinja::machinery::Span;
use minijinja::machinery::ast::{self, Expr, Stmt};

use super::budget::Budget;
use super::failure::{Failure, Result};
use super::value::{Dict, Function, Seq, SeqKind, Value};

/// Expressions and statements within each other, at most: far from the end of the interpreter's stack.
const MAX_RECURSION: usize = 2500;

/// Runs one template once.
pub(super) struct Interpreter<'t> {
    pub(super) source: &'t str,
    pub(super) budget: Budget,
    pub(super) namespaces: Vec<Dict>,
    pub(super) loops: Vec<Loop<'t>>,
    pub(super) macros: Vec<Macro<'t>>,
    scopes: Vec<Scope<'t>>,
    /// The scope that names are set in.
    scope: usize,
    depth: usize,
}

/// Variables, and the scope around them.
#[derive(Default)]
struct Scope<'t> {
    variables: HashMap<&'t str, Value>,
    parent: Option<usize>,
    /// A macro was written in it, or in a scope within: it may be asked for later.
    is_kept: bool,
}

/// A macro, with the scope that it was written in.
pub(super) struct Macro<'t> {
    pub(super) node: &'t ast::Macro<'t>,
    /// What it is written like, to know which of its special variables it uses.
    pub(super) text: &'t str,
    pub(super) scope: usize,
}

/// A loop that runs, or has run.
pub(super) struct Loop<'t> {
    pub(super) node: &'t ast::ForLoop<'t>,
    pub(super) items: Rc<Seq>,
    pub(super) index: usize,
    pub(super) depth0: usize,
    pub(super) scope: usize,
    /// What `loop.changed` was last called with.
    pub(super) last: Option<Vec<Value>>,
}

/// How a list of statements ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Macro<'t> {
    pub(super) fn name(&self) -> &'t str {
        self.node.name
    }
}

impl fmt::Display for Loop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<LoopContext {}/{}>", self.index + 1, self.items.items.len())
    }
}

impl<'t> Interpreter<'t> {
    /// With the variables that the template is given.
    pub(super) fn new(source: &'t str, budget: Budget, variables: Vec<(&'t str, Value)>) -> Self {
        let mut globals = Scope::default();
        globals.variables.extend(Function::ALL.map(|(name, function)| (name, Value::Function(function))));
        globals.variables.extend(variables);
        Self {
            source,
            budget,
            namespaces: Vec::new(),
            loops: Vec::new(),
            macros: Vec::new(),
            scopes: vec![globals],
            scope: 0,
            depth: 0,
        }
    }

    /// What the template prints.
    pub(super) fn run(&mut self, template: &'t Stmt<'t>) -> Result<String> {
        let mut out = String::new();
        if let Stmt::Template(template) = template {
            self.statements(&template.children, &mut out)?;
        }
        Ok(out)
    }

    /// The value of a name, from the innermost scope that has it.
    pub(super) fn lookup(&self, name: &str) -> Option<&Value> {
        let mut scope = Some(self.scope);
        while let Some(place) = scope {
            let found = &self.scopes[place];
            if let Some(value) = found.variables.get(name) {
                return Some(value);
            }
            scope = found.parent;
        }
        None
    }

    /// Sets a name in the current scope.
    pub(super) fn define(&mut self, name: &'t str, value: Value) {
        self.scopes[self.scope].variables.insert(name, value);
    }

    /// Runs something in a scope of its own within another one.
    pub(super) fn scoped<T>(&mut self, parent: usize, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.budget.charge_elements(4)?;
        let caller = std::mem::replace(&mut self.scope, self.scopes.len());
        self.scopes.push(Scope { parent: Some(parent), ..Scope::default() });
        let result = run(self);
        // What has no macros goes, with all that came after it.
        if !self.scopes[self.scope].is_kept {
            self.scopes.truncate(self.scope);
        }
        self.scope = caller;
        result
    }

    /// Counts a step, and how deep it is.
    pub(super) fn step<T>(&mut self, line: u16, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let line = u32::from(line);
        self.depth += 1;
        if self.depth > MAX_RECURSION {
            self.depth -= 1;
            return Err(Failure::new("macros, loops and expressions are nested too deep").at(line));
        }
        let result = self.budget.charge(1).and_then(|()| run(self));
        self.depth -= 1;
        result.map_err(|failure| failure.at(line))
    }

    /// Prints statements into a text of its own, in a scope of its own.
    pub(super) fn capture(&mut self, statements: &'t [Stmt<'t>]) -> Result<String> {
        self.scoped(self.scope, |this| {
            let mut text = String::new();
            this.statements(statements, &mut text)?;
            Ok(text)
        })
    }

    fn statements(&mut self, statements: &'t [Stmt<'t>], out: &mut String) -> Result<Flow> {
        for statement in statements {
            let flow = self.statement(statement, out)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'t Stmt<'t>, out: &mut String) -> Result<Flow> {
        match statement {
            Stmt::EmitRaw(raw) => {
                self.budget.charge(1)?;
                self.budget.push(out, raw.raw)?;
            }
            Stmt::EmitExpr(emit) => {
                let value = self.eval(&emit.expr)?;
                self.show(&value, out).map_err(|failure| failure.at(emit.span().start_line.into()))?;
            }
            Stmt::IfCond(branch) => {
                return self.step(branch.span().start_line, |this| {
                    let is_true = this.eval(&branch.expr)?.is_true();
                    this.statements(if is_true { &branch.true_body } else { &branch.false_body }, out)
                });
            }
            Stmt::ForLoop(node) => self.step(node.span().start_line, |this| {
                let items = this.eval(&node.iter)?;
                this.run_loop(node, &items, 0, out)
            })?,
            Stmt::Set(set) => self.step(set.span().start_line, |this| {
                let value = this.eval(&set.expr)?;
                this.assign(&set.target, value)
            })?,
            Stmt::SetBlock(set) => self.step(set.span().start_line, |this| {
                let text = this.capture(&set.body)?;
                let mut value = Value::Str(text.into());
                if let Some(filter) = &set.filter {
                    value = this.eval_filter_chain(filter, value)?;
                }
                this.assign(&set.target, value)
            })?,
            Stmt::FilterBlock(block) => self.step(block.span().start_line, |this| {
                let text = this.capture(&block.body)?;
                let value = this.eval_filter_chain(&block.filter, Value::Str(text.into()))?;
                this.show(&value, out)
            })?,
            Stmt::WithBlock(block) => {
                return self.step(block.span().start_line, |this| {
                    let values = block.assignments.iter().map(|(_, value)| this.eval(value));
                    let values = values.collect::<Result<Vec<_>>>()?;
                    this.scoped(this.scope, |this| {
                        for ((target, _), value) in block.assignments.iter().zip(values) {
                            this.assign(target, value)?;
                        }
                        this.statements(&block.body, out)
                    })
                });
            }
            Stmt::Macro(node) => self.step(node.span().start_line, |this| {
                let value = this.new_macro(node, node.span())?;
                this.define(node.name, value);
                Ok(())
            })?,
            Stmt::CallBlock(block) => self.step(block.span().start_line, |this| {
                let caller = this.new_macro(&block.macro_decl, block.span())?;
                let callee = this.eval(&block.call.expr)?;
                let mut arguments = this.arguments(&block.call.args)?;
                arguments.keywords.push(("caller".into(), caller));
                let value = this.call(&callee, arguments)?;
                this.show(&value, out)
            })?,
            Stmt::Break(_) => return Ok(Flow::Break),
            Stmt::Continue(_) => return Ok(Flow::Continue),
            Stmt::Do(node) => return Err(unknown("do", node.span().start_line)),
            Stmt::AutoEscape(node) => return Err(unknown("autoescape", node.span().start_line)),
            Stmt::Template(template) => return self.statements(&template.children, out),
        }
        Ok(Flow::Next)
    }

    /// Runs the body of a loop for each item.
    pub(super) fn run_loop(
        &mut self,
        node: &'t ast::ForLoop<'t>,
        items: &Value,
        depth0: usize,
        out: &mut String,
    ) -> Result<()> {
        let outside = self.scope;
        let mut items = self.items(items)?;
        if let Some(condition) = &node.filter_expr {
            let mut chosen = Vec::new();
            for item in &items.items {
                let is_chosen = self.scoped(outside, |this| {
                    this.assign(&node.target, item.clone())?;
                    Ok(this.eval(condition)?.is_true())
                })?;
                if is_chosen {
                    chosen.push(item.clone());
                }
            }
            items = Rc::new(Seq { kind: SeqKind::List, items: chosen, depth: items.depth });
        }
        if items.items.is_empty() {
            return self.scoped(outside, |this| this.statements(&node.else_body, out).map(|_| ()));
        }
        // What a loop is remembered by.
        self.budget.charge_elements(4)?;
        let place = self.loops.len();
        self.loops.push(Loop {
            node,
            items: Rc::clone(&items),
            index: 0,
            depth0,
            scope: outside,
            last: None,
        });
        self.scoped(outside, |this| {
            for (index, item) in items.items.iter().enumerate() {
                this.budget.charge(1)?;
                this.loops[place].index = index;
                this.scopes[this.scope].variables.clear();
                this.define("loop", Value::Loop(place));
                this.assign(&node.target, item.clone())?;
                if this.statements(&node.body, out)? == Flow::Break {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Sets a name, several, or an attribute of a namespace.
    pub(super) fn assign(&mut self, target: &'t Expr<'t>, value: Value) -> Result<()> {
        match target {
            Expr::Var(name) => self.define(name.id, value),
            Expr::List(names) => {
                let items = self.items(&value)?;
                if items.items.len() != names.items.len() {
                    return Err(Failure::new(format!(
                        "{} values cannot be given to {} names",
                        items.items.len(),
                        names.items.len()
                    )));
                }
                for (name, item) in names.items.iter().zip(&items.items) {
                    self.assign(name, item.clone())?;
                }
            }
            Expr::GetAttr(attribute) => {
                let Value::Namespace(place) = self.eval(&attribute.expr)? else {
                    return Err(Failure::new("attributes can be set on a namespace only"));
                };
                must_be_public(attribute.name)?;
                let key = self.budget.text(attribute.name)?;
                self.namespaces[place].insert(&self.budget, key, value)?;
            }
            _ => return Err(Failure::new("it cannot be assigned to")),
        }
        Ok(())
    }

    /// The items of what can be iterated.
    pub(super) fn items(&self, value: &Value) -> Result<Rc<Seq>> {
        let items = match value {
            Value::Seq(seq) => return Ok(Rc::clone(seq)),
            Value::Undefined(_) => Vec::new(),
            Value::Dict(dict) => dict.entries.iter().map(|(key, _)| key.clone()).collect(),
            Value::Str(text) => {
                self.budget.charge_elements(text.len())?;
                text.chars().map(|char| Value::str(char.encode_utf8(&mut [0; 4]))).collect()
            }
            _ => return Err(Failure::new(format!("a {} cannot be iterated", value.type_name()))),
        };
        self.budget.charge_elements(items.len())?;
        Ok(Rc::new(Seq { kind: SeqKind::List, items, depth: value.depth() }))
    }

    fn new_macro(&mut self, node: &'t ast::Macro<'t>, span: Span) -> Result<Value> {
        self.budget.charge_elements(4)?;
        let text = self.source.get(span.start_offset as usize..span.end_offset as usize).unwrap_or("");
        let mut scope = Some(self.scope);
        while let Some(place) = scope {
            self.scopes[place].is_kept = true;
            scope = self.scopes[place].parent;
        }
        self.macros.push(Macro { node, text, scope: self.scope });
        Ok(Value::Macro(self.macros.len() - 1))
    }

    /// Runs the body of a macro in the current scope.
    pub(super) fn run_body(&mut self, node: &'t ast::Macro<'t>) -> Result<String> {
        let mut text = String::new();
        self.statements(&node.body, &mut text)?;
        Ok(text)
    }
}

/// Namespaces have no attributes that begin with an underscore.
pub(super) fn must_be_public(name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(Failure::new(format!("a namespace cannot have the attribute `{name}`: rename it")));
    }
    Ok(())
}

fn unknown(statement: &str, line: u16) -> Failure {
    Failure::new(format!("chat templates have no statement `{statement}`")).at(line.into())
}
