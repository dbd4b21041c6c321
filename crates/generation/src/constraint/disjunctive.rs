//! Several phrases, one of which must occur.

use std::collections::HashMap;
use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId};

use super::{Constraint, ConstraintStep};

/// The most tokens of all phrases together.
const MAX_TOKENS: usize = 1 << 20;

/// transformers' `DisjunctiveConstraint`: one of these phrases.
#[derive(Debug, Clone)]
pub struct DisjunctiveConstraint {
    phrases: Arc<Trie>,
    /// The node of the tokens so far, and their number.
    node: usize,
    len: usize,
}

/// The phrases as a tree, whose nodes are their beginnings.
#[derive(Debug)]
struct Trie {
    nodes: Vec<Node>,
    /// The node that follows a node with a token.
    edges: HashMap<(usize, TokenId), usize>,
    /// The length of the longest phrase.
    longest: usize,
}

/// A beginning of phrases. The first node is that of all.
#[derive(Debug, Default)]
struct Node {
    /// Its last token.
    token: TokenId,
    /// The tokens that may follow, in the order of the phrases. Empty for a whole phrase.
    next: Vec<TokenId>,
    /// The first two phrases that begin so.
    first: usize,
    second: Option<usize>,
}

impl DisjunctiveConstraint {
    /// The constraint of several phrases.
    ///
    /// # Errors
    /// `Config` when there is no phrase, a phrase is empty, one is the beginning of another, which could then
    /// never be reached, or they are too long together.
    pub fn new(phrases: &[Vec<TokenId>]) -> Result<Self> {
        let refused = |rule: String| Err(Self::refused(&rule));
        if phrases.is_empty() || phrases.iter().any(Vec::is_empty) {
            return refused("a list of lists of token ids, none of them empty".to_owned());
        }
        Self::check_len(phrases.iter().map(Vec::len))?;
        let (trie, ends) = Trie::new(phrases);
        for (index, end) in ends.into_iter().enumerate() {
            let Node { first, second, .. } = trie.nodes[end];
            if let Some(other) = if first == index { second } else { Some(first) } {
                return refused(format!(
                    "phrases of which none begins another, but phrase {index} begins phrase {other}; leave the longer \
                     one out"
                ));
            }
        }
        Ok(Self { phrases: Arc::new(trie), node: 0, len: 0 })
    }

    /// Checks that phrases of these lengths are not too long together.
    ///
    /// # Errors
    /// `Config` when they are.
    pub fn check_len(lens: impl IntoIterator<Item = usize>) -> Result<()> {
        let total = lens.into_iter().fold(0_usize, usize::saturating_add);
        if total > MAX_TOKENS {
            let rule =
                format!("phrases of at most {MAX_TOKENS} tokens together, got {total}; give fewer phrases");
            return Err(Self::refused(&rule));
        }
        Ok(())
    }

    #[cold]
    fn refused(rule: &str) -> Error {
        Error::config(format!("of a DisjunctiveConstraint must be {rule}")).about("nested_token_ids")
    }

    fn next(&self) -> &[TokenId] {
        &self.phrases.nodes[self.node].next
    }

    fn is_completed(&self) -> bool {
        self.next().is_empty()
    }
}

impl Trie {
    /// The tree, and the node of each phrase.
    fn new(phrases: &[Vec<TokenId>]) -> (Self, Vec<usize>) {
        let (mut nodes, mut edges) = (vec![Node::default()], HashMap::new());
        let mut ends = Vec::with_capacity(phrases.len());
        for (index, phrase) in phrases.iter().enumerate() {
            let mut node = 0;
            for &token in phrase {
                let child = *edges.entry((node, token)).or_insert(nodes.len());
                if child == nodes.len() {
                    nodes.push(Node { token, first: index, ..Node::default() });
                    nodes[node].next.push(token);
                } else {
                    nodes[child].second.get_or_insert(index);
                }
                node = child;
            }
            ends.push(node);
        }
        let longest = phrases.iter().map(Vec::len).max().unwrap_or(0);
        (Self { nodes, edges, longest }, ends)
    }
}

impl Constraint for DisjunctiveConstraint {
    fn advance(&self) -> Result<Vec<TokenId>> {
        Ok(self.next().to_vec())
    }

    fn does_advance(&self, token: TokenId) -> Result<bool> {
        Ok(self.phrases.edges.contains_key(&(self.node, token)))
    }

    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        let child = self.phrases.edges.get(&(self.node, token)).copied();
        (self.node, self.len) = child.map_or((0, 0), |child| (child, self.len + 1));
        let stepped = child.is_some();
        Ok(ConstraintStep { stepped, completed: self.is_completed(), reset: !stepped })
    }

    fn remaining(&self) -> Result<usize> {
        Ok(if self.is_completed() { 0 } else { self.phrases.longest - self.len })
    }

    fn max_steps(&self) -> usize {
        self.phrases.longest
    }

    fn fresh(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(Self { phrases: Arc::clone(&self.phrases), node: 0, len: 0 }))
    }

    fn fork(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(self.clone()))
    }

    /// The copies of transformers 4.49 share the list of their tokens: what one takes is added for all, but a copy
    /// that starts over leaves the list as it is. So of several tokens that may follow, only the first one
    /// counts as progress in the step that adds them.
    fn fork_took(&mut self, token: TokenId) -> Result<()> {
        if self.does_advance(token)? {
            self.update(token)?;
        }
        Ok(())
    }

    fn tokens(&self) -> Vec<TokenId> {
        self.phrases.nodes[1..].iter().map(|node| node.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrases(of: &[&[u32]]) -> Vec<Vec<TokenId>> {
        of.iter().map(|phrase| phrase.iter().copied().map(TokenId).collect()).collect()
    }

    #[test]
    fn a_phrase_that_begins_another_is_named_with_it() {
        for (given, index, other) in [
            (&[&[1, 2][..], &[1]][..], 1, 0),
            (&[&[1], &[2], &[1, 2, 3]], 0, 2),
            (&[&[5], &[1, 2], &[1, 2]], 1, 2),
            (&[&[1, 2, 3], &[1, 2, 4], &[1, 2]], 2, 0),
        ] {
            let error = DisjunctiveConstraint::new(&phrases(given)).unwrap_err().to_string();
            assert!(error.contains(&format!("phrase {index} begins phrase {other};")), "{error}");
        }
        assert!(DisjunctiveConstraint::new(&phrases(&[&[1, 2], &[1, 3], &[2, 1]])).is_ok());
    }

    #[test]
    fn many_phrases_are_checked_and_followed_without_comparing_each_with_each() {
        let many: Vec<_> = (0..200_000).map(|phrase| vec![TokenId(phrase), TokenId(7)]).collect();
        let mut constraint = DisjunctiveConstraint::new(&many).unwrap();
        assert_eq!(constraint.advance().unwrap().len(), many.len());
        for _ in 0..10_000 {
            assert!(constraint.fork().unwrap().does_advance(TokenId(199_999)).unwrap());
            assert!(constraint.update(TokenId(5)).unwrap().stepped);
            assert!(constraint.update(TokenId(7)).unwrap().completed);
            constraint = DisjunctiveConstraint { node: 0, len: 0, ..constraint };
        }
        let error = DisjunctiveConstraint::new(&vec![vec![TokenId(1); 1024]; 1025]).unwrap_err().to_string();
        assert!(error.contains("at most 1048576 tokens together, got 1049600"), "{error}");
    }
}
