//! Reuse of vectors.

/// Drops the elements of a vector and returns its memory as an empty vector of another type. For lists of borrows that are
/// rebuilt in each step: the types differ only in lifetimes, so nothing is allocated.
pub(crate) fn recycled<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // The standard library collects in place if size and alignment are equal.
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
