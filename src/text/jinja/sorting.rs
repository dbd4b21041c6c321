//! A stable sort whose comparison may fail, and need not even be an order: what the standard library's sort may panic on.

use super::failure::Result;

/// The items in ascending order; `less` is asked as Python's `sorted` asks `<`.
pub(super) fn sorted<T>(items: Vec<T>, mut less: impl FnMut(&T, &T) -> Result<bool>) -> Result<Vec<T>> {
    let mut runs: Vec<Vec<T>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            merged.push(match pairs.next() {
                Some(right) => merge(left, right, &mut less)?,
                None => left,
            });
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

fn merge<T>(left: Vec<T>, right: Vec<T>, less: &mut impl FnMut(&T, &T) -> Result<bool>) -> Result<Vec<T>> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        out.extend(if less(b, a)? { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_keep_their_order() {
        let items = vec![(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (0, 'e')];
        let sorted = sorted(items, |a, b| Ok(a.0 < b.0)).unwrap();
        assert_eq!(sorted, [(0, 'e'), (1, 'b'), (1, 'd'), (2, 'a'), (2, 'c')]);
    }

    #[test]
    fn a_comparison_that_is_no_order_does_no_harm() {
        let mut turn = false;
        let sorted = sorted((0..100).collect(), |_, _| {
            turn = !turn;
            Ok(turn)
        });
        assert_eq!(sorted.unwrap().len(), 100);
    }
}
