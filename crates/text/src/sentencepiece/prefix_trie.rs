//! A read-only trie of byte strings, to find those that are prefixes of a text.

use std::collections::VecDeque;

/// No string ends at a node.
const NONE: u32 = u32::MAX;

/// Maps strings to numbers; 12 bytes for each node, children side by side.
#[derive(Debug)]
pub(super) struct PrefixTrie {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    label: u8,
    num_children: u16,
    first_child: u32,
    value: u32,
}

impl PrefixTrie {
    /// Builds the trie of strings and their numbers, which must be below `u32::MAX`; of equal strings one
    /// counts.
    pub(super) fn new<'a>(strings: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut strings: Vec<(&[u8], u32)> =
            strings.into_iter().map(|(string, value)| (string.as_bytes(), value)).collect();
        strings.sort_unstable();
        let mut nodes = vec![Node { label: 0, num_children: 0, first_child: 0, value: NONE }];
        // Level by level, so that the children of a node are adjacent.
        let mut open = VecDeque::from([(0, strings.as_slice(), 0)]);
        while let Some((node, strings, depth)) = open.pop_front() {
            let ends_here = strings.iter().take_while(|(string, _)| string.len() == depth).count();
            if let Some(&(_, value)) = strings[..ends_here].first() {
                nodes[node].value = value;
            }
            nodes[node].first_child = nodes.len() as u32;
            for children in strings[ends_here..].chunk_by(|(left, _), (right, _)| left[depth] == right[depth])
            {
                nodes[node].num_children += 1;
                open.push_back((nodes.len(), children, depth + 1));
                let label = children[0].0[depth];
                nodes.push(Node { label, num_children: 0, first_child: 0, value: NONE });
            }
        }
        Self { nodes }
    }

    /// Whether there is no string.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The strings that `text` begins with, shortest first, as length in bytes and number; without the empty
    /// string.
    pub(super) fn prefixes(&self, text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
        let mut node = self.nodes[0];
        let steps = text.iter().map_while(move |&byte| {
            let first = node.first_child as usize;
            let children = &self.nodes[first..first + usize::from(node.num_children)];
            node = children[children.binary_search_by_key(&byte, |child| child.label).ok()?];
            Some(node.value)
        });
        steps.enumerate().filter(|&(_, value)| value != NONE).map(|(index, value)| (index + 1, value))
    }

    /// The longest string that `text` begins with.
    pub(super) fn longest_prefix(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.prefixes(text).last()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_a_plain_search_finds(
            strings in proptest::collection::btree_set("[ab\u{e9}]{1,4}", 0..12),
            text in "[ab\u{e9}]{0,8}",
        ) {
            let trie = PrefixTrie::new(strings.iter().zip(0_u32..).map(|(string, value)| (string.as_str(), value)));
            let mut expected: Vec<(usize, u32)> = strings
                .iter()
                .zip(0..)
                .filter(|(string, _)| text.starts_with(string.as_str()))
                .map(|(string, value)| (string.len(), value))
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(trie.prefixes(text.as_bytes()).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(trie.longest_prefix(text.as_bytes()), expected.last().copied());
            prop_assert_eq!(trie.is_empty(), strings.is_empty());
        }
    }
}
