//! The logits of passes that the requests of one call read where they are, instead of copying their own.

use std::ops::Range;
use std::sync::Arc;

/// The logits of a request among those of a pass.
pub(super) struct LogitsPart {
    pass: Arc<Vec<f32>>,
    range: Range<usize>,
}

impl LogitsPart {
    /// A part of the logits of a pass.
    pub(super) fn new(pass: &Arc<Vec<f32>>, range: Range<usize>) -> Self {
        Self { pass: Arc::clone(pass), range }
    }

    /// The logits, `[rows, vocab_size]`.
    pub(super) fn logits(&self) -> &[f32] {
        &self.pass[self.range.clone()]
    }
}

/// The lists that are shared. One is free again when all its parts have been read.
#[derive(Default)]
pub(super) struct PassLogits {
    lists: Vec<Arc<Vec<f32>>>,
}

impl PassLogits {
    /// The memory of a list that is free, for the next pass; that of others is returned to the system.
    pub(super) fn take(&mut self) -> Vec<f32> {
        let mut taken = Vec::new();
        for list in self.lists.iter_mut().filter_map(Arc::get_mut) {
            let list = std::mem::take(list);
            if list.capacity() > taken.capacity() {
                taken = list;
            }
        }
        taken
    }

    /// Shares the logits of a pass.
    pub(super) fn share(&mut self, logits: Vec<f32>) -> Arc<Vec<f32>> {
        let free = self.lists.iter_mut().position(|list| Arc::get_mut(list).is_some());
        let free = free.unwrap_or_else(|| {
            self.lists.push(Arc::default());
            self.lists.len() - 1
        });
        if let Some(list) = Arc::get_mut(&mut self.lists[free]) {
            *list = logits;
        }
        Arc::clone(&self.lists[free])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_again_when_all_its_parts_are_read() {
        let mut logits = PassLogits::default();
        assert_eq!(logits.take().capacity(), 0);
        let first = logits.share(vec![1.0, 2.0, 3.0, 4.0]);
        let parts = [LogitsPart::new(&first, 0..2), LogitsPart::new(&first, 2..4)];
        drop(first);
        assert_eq!(logits.take().capacity(), 0, "its parts are not read");
        let second = logits.share(vec![5.0]);
        assert_eq!((parts[1].logits(), &second[..]), (&[3.0, 4.0][..], &[5.0][..]));
        drop((parts, second));
        assert_eq!(logits.take().capacity(), 4, "the larger one");
        assert_eq!(logits.take().capacity(), 0);
        logits.share(vec![6.0]);
        assert_eq!(logits.lists.len(), 2);
    }
}
