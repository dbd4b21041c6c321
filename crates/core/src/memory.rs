//! Memory that requests size: a lack of it is an error, not an abort. And reuse of vectors.

use crate::error::{Error, Result};

/// Makes room for exactly `additional` more elements; `what` they are, such as "scores", goes into the error.
///
/// # Errors
/// `Capacity` when the system does not give the memory. The list stays as it was.
pub fn reserve<T>(list: &mut Vec<T>, additional: usize, what: &str) -> Result<()> {
    check::<T>(additional, what)?;
    list.try_reserve_exact(additional).map_err(|error| refusal::<T>(additional, what, &error))
}

/// The error for memory that the system did not give.
pub fn refusal<T>(additional: usize, what: &str, cause: &dyn std::fmt::Display) -> Error {
    Error::capacity(format!(
        "the system gave no memory for {additional} more {what}, {} bytes; free memory, or ask for less at a time",
        additional.saturating_mul(size_of::<T>())
    ))
    .with_source(cause.to_string())
}

/// Fails where a test wants memory to be short; [`reserve`] calls it.
///
/// # Errors
/// `Capacity`, in builds with debug assertions.
pub fn check<T>(additional: usize, what: &str) -> Result<()> {
    #[cfg(debug_assertions)]
    if failing::is_due() {
        return Err(refusal::<T>(additional, what, &"a test made it fail"));
    }
    let _ = (additional, what);
    Ok(())
}

/// The values in a vector of their own.
///
/// # Errors
/// As for [`reserve`].
pub fn copied<T: Copy>(values: &[T], what: &str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    extend(&mut list, values, what)?;
    Ok(list)
}

/// Appends the values.
///
/// # Errors
/// As for [`reserve`].
pub fn extend<T: Copy>(list: &mut Vec<T>, values: &[T], what: &str) -> Result<()> {
    reserve(list, values.len(), what)?;
    list.extend_from_slice(values);
    Ok(())
}

/// Drops the elements of a vector and returns its memory as an empty vector of another type. For lists of
/// borrows that are rebuilt in each step: the types differ only in lifetimes, so nothing is allocated.
pub fn recycled<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // The standard library collects in place if size and alignment are equal.
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Allocations that fail on purpose, for tests. Builds without debug assertions have none of it.
#[cfg(debug_assertions)]
pub mod failing {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Lets the `index`-th reservation of this thread fail, counted from 0; `None` lets none fail. Returns
    /// what was left to count of an earlier call, `None` when its reservation has failed.
    pub fn at(index: Option<usize>) -> Option<usize> {
        LEFT.replace(index)
    }

    /// Counts a reservation; whether it fails.
    pub(super) fn is_due() -> bool {
        let left = LEFT.get();
        LEFT.set(left.and_then(|left| left.checked_sub(1)));
        left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_memory_stays_and_the_elements_go() {
        let text = "text".to_owned();
        let list: Vec<&str> = std::iter::repeat_n(&*text, 20).collect();
        let (place, capacity) = (list.as_ptr().addr(), list.capacity());
        let recycled: Vec<&'static str> = recycled(list);
        drop(text);
        assert!(recycled.is_empty());
        assert_eq!((recycled.as_ptr().addr(), recycled.capacity()), (place, capacity));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_with_its_size() {
        let mut list = vec![1.0_f32];
        for wanted in [usize::MAX / 8, usize::MAX] {
            let error = reserve(&mut list, wanted, "scores").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Capacity);
            assert!(error.to_string().contains(&format!("no memory for {wanted} more scores")), "{error}");
        }
        assert_eq!(list, [1.0]);
        extend(&mut list, &[2.0, 3.0], "scores").unwrap();
        assert_eq!((list.len(), list.capacity()), (3, 3));
    }

    #[test]
    fn the_reservation_that_is_to_fail_fails_once() {
        failing::at(Some(1));
        let results = [0, 1, 2].map(|_| copied(&[1, 2], "ids").is_ok());
        assert_eq!((results, failing::at(None)), ([true, false, true], None));
    }
}
