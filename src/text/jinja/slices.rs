//! Items and slices by number, counted from either end.

use std::rc::Rc;

use super::budget::Budget;
use super::failure::{Failure, Result};
use super::value::{Seq, SeqKind, Value};

/// The place that a number names, if there is one; `-1` is the last.
pub(super) fn place(key: &Value, len: usize) -> Option<usize> {
    let key = key.as_int()?;
    let place = if key < 0 { key + len as i128 } else { key };
    usize::try_from(place).ok().filter(|place| *place < len)
}

/// The character at a place of a text.
pub(super) fn char_at(budget: &Budget, text: &str, key: &Value) -> Result<Option<Value>> {
    let Some(number) = key.as_int() else { return Ok(None) };
    budget.scan(text.len())?;
    let step = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    let char = if number < 0 { text.chars().nth_back(step - 1) } else { text.chars().nth(step) };
    Ok(char.map(|char| Value::str(char.encode_utf8(&mut [0; 4]))))
}

/// `value[start:stop:step]`; undefined where Python has no slices.
pub(super) fn slice(budget: &Budget, value: &Value, bounds: &[Value; 3]) -> Result<Value> {
    value.must_be_defined()?;
    let no_slice = || Ok(Value::Undefined(format!("a {} has no such slice", value.type_name()).into()));
    if bounds.iter().any(|bound| !matches!(bound, Value::None) && bound.as_int().is_none()) {
        return no_slice();
    }
    let [start, stop, step] = bounds.each_ref().map(Value::as_int);
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Failure::new("the step of a slice must not be 0"));
    }
    match value {
        Value::Str(text) => {
            budget.scan(text.len())?;
            if text.is_ascii() {
                let places = places(text.len(), start, stop, step);
                let bytes = text.as_bytes();
                let text: String = places.map(|place| char::from(bytes[place])).collect();
                return budget.text(text);
            }
            let chars: Vec<char> = text.chars().collect();
            let text: String = places(chars.len(), start, stop, step).map(|place| chars[place]).collect();
            budget.text(text)
        }
        Value::Seq(seq) if !seq.kind.is_view() => {
            let places = places(seq.items.len(), start, stop, step);
            budget.charge_elements(places.len() + 1)?;
            let items = places.map(|place| seq.items[place].clone()).collect();
            let kind = if seq.kind == SeqKind::Group { SeqKind::Tuple } else { seq.kind };
            Ok(Value::Seq(Rc::new(Seq { kind, items, depth: seq.depth })))
        }
        _ => no_slice(),
    }
}

/// The places that a slice names, in its order.
fn places(
    len: usize,
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
) -> impl ExactSizeIterator<Item = usize> {
    let len = len as i128;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i128>, default: i128| {
        bound.map_or(default, |bound| {
            let bound = if bound < 0 { bound.saturating_add(len) } else { bound };
            bound.clamp(lowest, highest)
        })
    };
    let (start, stop) =
        if step > 0 { (bound(start, 0), bound(stop, len)) } else { (bound(start, len - 1), bound(stop, -1)) };
    let distance = if step > 0 { stop - start } else { start - stop };
    // Both are far below 2^64: texts and lists are in memory.
    let stride = step.unsigned_abs().min(u64::MAX.into()) as i128;
    let count = if distance > 0 { (distance - 1) / stride + 1 } else { 0 };
    (0..count as usize).map(move |index| (start + index as i128 * stride * step.signum()) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_name_the_places_that_pythons_do() {
        // Compared with a slice of Python's, by counting: start, then on by step while before stop.
        let naive = |len: i128, start: Option<i128>, stop: Option<i128>, step: i128| {
            let index = |bound: i128| if bound < 0 { bound + len } else { bound };
            let mut out = Vec::new();
            let mut place = start.map_or(if step > 0 { 0 } else { len - 1 }, index);
            place = if step > 0 { place.max(0) } else { place.min(len - 1) };
            let end = stop.map(index);
            while (0..len).contains(&place)
                && end.is_none_or(|end| (place < end) == (step > 0) && place != end)
            {
                out.push(place as usize);
                place += step;
            }
            out
        };
        let bounds = (-7..8).map(Some).chain([None, Some(i128::MAX), Some(i128::MIN)]);
        for start in bounds.clone() {
            for stop in bounds.clone() {
                for step in [-9, -3, -2, -1, 1, 2, 3, 9] {
                    for len in 0..6 {
                        let found: Vec<usize> = places(len, start, stop, step).collect();
                        if start != Some(i128::MIN) {
                            assert_eq!(
                                found,
                                naive(len as i128, start, stop, step),
                                "{start:?} {stop:?} {step} {len}"
                            );
                        }
                    }
                }
            }
        }
    }
}
