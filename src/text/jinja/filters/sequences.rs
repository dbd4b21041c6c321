//! Filters on lists and dicts.

use std::cmp::Ordering;

use super::{by_attribute, folded};
use crate::text::jinja::arguments::{Arguments, flag, integer, text};
use crate::text::jinja::failure::{Failure, Result};
use crate::text::jinja::interpreter::Interpreter;
use crate::text::jinja::sorting::sorted;
use crate::text::jinja::value::{SeqKind, Value, must_be_hashable};

pub(super) fn length(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("length", [])?;
    let length = match value {
        Value::Str(text) => {
            interpreter.budget.scan(text.len())?;
            text.chars().count()
        }
        Value::Seq(seq) => seq.items.len(),
        Value::Dict(dict) => dict.entries.len(),
        Value::Undefined(_) => 0,
        Value::Loop(place) => interpreter.loops[*place].items.items.len(),
        _ => return Err(Failure::new(format!("a {} has no length", value.type_name()))),
    };
    Ok(Value::Int(length as i128))
}

pub(super) fn list(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [] = arguments.bind("list", [])?;
    let items = interpreter.items(value)?;
    interpreter.budget.list(items.items.clone())
}

pub(super) fn first(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("first", [])?;
    let found = match value {
        Value::Str(text) => text.chars().next().map(|char| Value::str(char.encode_utf8(&mut [0; 4]))),
        _ => interpreter.items(value)?.items.first().cloned(),
    };
    Ok(or_empty(found, "first"))
}

pub(super) fn last(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [] = arguments.bind("last", [])?;
    let found = match value {
        Value::Str(text) => text.chars().next_back().map(|char| Value::str(char.encode_utf8(&mut [0; 4]))),
        _ => interpreter.items(value)?.items.last().cloned(),
    };
    Ok(or_empty(found, "last"))
}

fn or_empty(found: Option<Value>, which: &str) -> Value {
    found.unwrap_or_else(|| Value::Undefined(format!("an empty list has no {which} item").into()))
}

pub(super) fn items(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("items", [])?;
    let pairs = match value {
        Value::Undefined(_) => Vec::new(),
        Value::Dict(dict) => {
            dict.entries.iter().map(|(key, value)| vec![key.clone(), value.clone()]).collect()
        }
        _ => return Err(Failure::new(format!("items takes a dict, got {}", value.type_name()))),
    };
    let budget = &interpreter.budget;
    let pairs = pairs.into_iter().map(|pair| budget.seq(SeqKind::Tuple, pair));
    budget.list(pairs.collect::<Result<_>>()?)
}

pub(super) fn reverse(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("reverse", [])?;
    if let Value::Str(text) = value {
        return interpreter.budget.text(text.chars().rev().collect::<String>());
    }
    let items = interpreter.items(value)?;
    interpreter.budget.list(items.items.iter().rev().cloned().collect())
}

pub(super) fn batch(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [size, fill] = arguments.bind("batch", ["linecount", "fill_with"])?;
    let size = integer("batch", size.as_ref())?.and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size > 0).ok_or_else(|| Failure::new("batch takes a size above 0"))?;
    let items = interpreter.items(value)?;
    let budget = &interpreter.budget;
    let mut lists = Vec::new();
    for chunk in items.items.chunks(size) {
        let mut list = chunk.to_vec();
        if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Value::None)) {
            budget.charge_elements(size - chunk.len())?;
            list.resize(size, fill.clone());
        }
        lists.push(budget.list(list)?);
    }
    budget.list(lists)
}

pub(super) fn slice(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [count, fill] = arguments.bind("slice", ["slices", "fill_with"])?;
    let count = integer("slice", count.as_ref())?.and_then(|count| usize::try_from(count).ok());
    let count =
        count.filter(|count| *count > 0).ok_or_else(|| Failure::new("slice takes a number above 0"))?;
    let items = interpreter.items(value)?;
    let budget = &interpreter.budget;
    budget.charge_elements(count)?;
    let (size, longer) = (items.items.len() / count, items.items.len() % count);
    let mut rest = items.items.as_slice();
    let mut lists = Vec::new();
    for index in 0..count {
        let (list, others) = rest.split_at(size + usize::from(index < longer));
        rest = others;
        let mut list = list.to_vec();
        if index >= longer {
            list.extend(fill.iter().filter(|fill| !matches!(fill, Value::None)).cloned());
        }
        lists.push(budget.list(list)?);
    }
    budget.list(lists)
}

pub(super) fn sort(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [reverse, case_sensitive, attribute] =
        arguments.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive.as_ref());
    let paths: Vec<Option<Value>> = match &attribute {
        Some(Value::Str(paths)) => paths.split(',').map(|path| Some(Value::str(path))).collect(),
        other => vec![other.clone()],
    };
    let mut keyed = Vec::new();
    for item in &interpreter.items(value)?.items {
        let mut keys = Vec::new();
        for path in &paths {
            let key = by_attribute(interpreter, item, path.as_ref())?;
            keys.push(folded(interpreter, key, case_sensitive)?);
        }
        keyed.push((interpreter.budget.list(keys)?, item.clone()));
    }
    by_key(interpreter, keyed, flag(reverse.as_ref()))
}

pub(super) fn dictsort(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [case_sensitive, by, reverse] = arguments.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = value else {
        return Err(Failure::new(format!("dictsort takes a dict, got {}", value.type_name())));
    };
    let by_value = match text("dictsort", by.as_ref())?.as_deref() {
        None | Some("key") => false,
        Some("value") => true,
        Some(_) => return Err(Failure::new("dictsort sorts by \"key\" or \"value\"")),
    };
    let mut keyed = Vec::new();
    for (key, value) in &dict.entries {
        let sorted_by = if by_value { value } else { key };
        let sorted_by = folded(interpreter, sorted_by.clone(), flag(case_sensitive.as_ref()))?;
        keyed.push((sorted_by, interpreter.budget.seq(SeqKind::Tuple, vec![key.clone(), value.clone()])?));
    }
    by_key(interpreter, keyed, flag(reverse.as_ref()))
}

/// The values in the order of their keys; equal ones stay as they are, also in the other direction.
fn by_key(interpreter: &Interpreter<'_>, mut keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Value> {
    let budget = &interpreter.budget;
    if reverse {
        keyed.reverse();
    }
    let mut keyed = sorted(keyed, |(a, _), (b, _)| {
        budget.charge_elements(1)?;
        Ok(a.compare(b, "<", budget)? == Some(Ordering::Less))
    })?;
    if reverse {
        keyed.reverse();
    }
    budget.list(keyed.into_iter().map(|(_, value)| value).collect())
}

pub(super) fn unique(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("unique", ["case_sensitive", "attribute"])?;
    let (mut seen, mut out): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for item in &interpreter.items(value)?.items {
        let key = by_attribute(interpreter, item, attribute.as_ref())?;
        let key = folded(interpreter, key, flag(case_sensitive.as_ref()))?;
        let budget = &interpreter.budget;
        must_be_hashable(&key, budget)?;
        let mut is_new = true;
        for other in &seen {
            is_new = is_new && !other.equals(&key, budget)?;
        }
        if is_new {
            seen.push(key);
            out.push(item.clone());
        }
    }
    interpreter.budget.list(out)
}

pub(super) fn min(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    extreme(interpreter, value, arguments, Ordering::Less)
}

pub(super) fn max(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    extreme(interpreter, value, arguments, Ordering::Greater)
}

fn extreme(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
    better: Ordering,
) -> Result<Value> {
    let [case_sensitive, attribute] = arguments.bind("min or max", ["case_sensitive", "attribute"])?;
    let mut best: Option<(Value, Value)> = None;
    for item in &interpreter.items(value)?.items {
        let key = by_attribute(interpreter, item, attribute.as_ref())?;
        let key = folded(interpreter, key, flag(case_sensitive.as_ref()))?;
        let is_better = match &best {
            Some((old, _)) => key.compare(old, "<", &interpreter.budget)? == Some(better),
            None => true,
        };
        if is_better {
            best = Some((key, item.clone()));
        }
    }
    Ok(best.map_or_else(|| Value::Undefined("an empty list has no extreme".into()), |(_, item)| item))
}

pub(super) fn groupby(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [attribute, default, case_sensitive] =
        arguments.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let case_sensitive = flag(case_sensitive.as_ref());
    let mut keyed = Vec::new();
    for item in &interpreter.items(value)?.items {
        let found = by_attribute(interpreter, item, attribute.as_ref())?;
        let found = match &default {
            Some(default) if found.is_undefined() => default.clone(),
            _ => found,
        };
        let key = folded(interpreter, found.clone(), case_sensitive)?;
        keyed.push((key, found, item.clone()));
    }
    let budget = &interpreter.budget;
    let keyed = sorted(keyed, |(a, ..), (b, ..)| {
        budget.charge_elements(1)?;
        Ok(a.compare(b, "<", budget)? == Some(Ordering::Less))
    })?;
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (key, found, item) in keyed {
        match groups.last_mut() {
            Some((last, _, items)) if last.equals(&key, budget)? => items.push(item),
            _ => groups.push((key, found, vec![item])),
        }
    }
    let groups = groups.into_iter().map(|(_, found, items)| {
        let items = budget.list(items)?;
        budget.seq(SeqKind::Group, vec![found, items])
    });
    budget.list(groups.collect::<Result<_>>()?)
}
