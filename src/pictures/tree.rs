//! The tree of a prompt's beams, and its layout in lines.
//!
//! Time runs downwards. The line of the best beam is a trunk; where another beam leaves it, a branch hangs to
//! the right of it and says how it ended. Tokens that follow each other without branching share a line.
//! Continuations that never became a beam are counted, not drawn.

use std::collections::{BTreeMap, BTreeSet};

use super::{ordinal, visible};
use crate::engine::trace::Beams;
use rsgen_generation::search::details::BeamState;

/// The beams of a prompt so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    /// Those that became a beam or a result, by number.
    nodes: BTreeMap<u32, Node>,
    /// The rank of each beam, by number.
    frontier: BTreeMap<u32, usize>,
    /// The rank of each row of the output, by the number of its last node.
    results: BTreeMap<u32, usize>,
    pub(super) steps: usize,
    /// The continuations that never became a beam.
    pub(super) pruned: usize,
}

#[derive(Debug, Clone)]
struct Node {
    parent: Option<u32>,
    step: usize,
    text: String,
    score: f32,
    group: usize,
    finished: bool,
}

/// A line of the picture.
#[derive(Debug, PartialEq)]
pub(super) struct TreeLine {
    /// The step of its first token, on the first line of a segment.
    pub(super) step: Option<usize>,
    /// The rails before the text, from left to right.
    pub(super) rails: Vec<Rail>,
    pub(super) text: String,
    /// The end of the branch, on its last line.
    pub(super) end: Option<End>,
    /// Whether it belongs to the line of the best beam.
    pub(super) is_trunk: bool,
    /// Whether the line belongs to a branch that died.
    pub(super) is_dead: bool,
}

/// A part of the lines that connect branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rail {
    /// A trunk beside the line.
    Trunk,
    /// A branch leaves the trunk.
    Branch,
    /// The trunk ends here.
    Last,
}

/// The end of a branch, with the score of its last node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct End {
    pub(super) fate: Fate,
    pub(super) score: f32,
}

/// The outcome of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is a row of the output; 0 for the best.
    Result(usize),
    /// It is a beam now, of this rank.
    Alive(usize),
    /// It ended, and others were better.
    Finished,
    /// No continuation of it was among the best; the step in which that was found.
    Died(usize),
}

impl Fate {
    /// In words, with a sign before them.
    pub(super) fn words(self, unicode: bool) -> String {
        let (sign, plain, words) = match self {
            Self::Result(0) => ("★", "*", "best".to_owned()),
            Self::Result(rank) => ("✔", "+", ordinal(rank + 1)),
            Self::Alive(rank) => ("●", "o", format!("beam {}", rank + 1)),
            Self::Finished => ("■", "#", "finished".to_owned()),
            Self::Died(step) => ("✂", "x", format!("died at {}", step.saturating_add(1))),
        };
        format!("{} {words}", if unicode { sign } else { plain })
    }
}

impl Tree {
    pub(super) fn add(&mut self, beams: &Beams) {
        for node in &beams.nodes {
            if node.state == BeamState::Pruned {
                self.pruned += 1;
                continue;
            }
            let text = if node.token.text.is_empty() {
                format!("[{}]", node.token.id)
            } else {
                visible(&node.token.text)
            };
            let finished = node.state == BeamState::Finished;
            let node_of_tree = Node {
                parent: node.parent,
                step: beams.step,
                text,
                score: node.score,
                group: node.group,
                finished,
            };
            self.nodes.insert(node.n, node_of_tree);
        }
        self.frontier = beams.frontier.iter().enumerate().map(|(rank, &n)| (n, rank)).collect();
        self.steps = self.steps.max(beams.step.saturating_add(1));
    }

    /// Takes the nodes of the next row of the output.
    pub(super) fn finish(&mut self, path: &[u32]) {
        self.frontier.clear();
        if let Some(n) = path.last() {
            let rank = self.results.len();
            self.results.entry(*n).or_insert(rank);
        }
    }

    /// The groups of beams.
    pub(super) fn groups(&self) -> BTreeSet<usize> {
        self.nodes.values().map(|node| node.group).collect()
    }

    /// The lines of a group of beams, and the number of branches that are too deep to be drawn. `text_width`
    /// is the room for text after this many rails, `width` the width of a text.
    pub(super) fn lines(
        &self,
        group: usize,
        text_width: &dyn Fn(usize) -> usize,
        width: &dyn Fn(&str) -> usize,
    ) -> (Vec<TreeLine>, usize) {
        let mut children: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for (&n, node) in self.nodes.iter().filter(|(_, node)| node.group == group) {
            children.entry(node.parent).or_default().push(n);
        }
        // Parents have lower numbers, so that from the back each node knows the best of its descendants.
        let mut best: BTreeMap<u32, (f32, f32)> = BTreeMap::new();
        for (&n, node) in self.nodes.iter().rev().filter(|(_, node)| node.group == group) {
            let own = (self.importance(n), node.score);
            let below =
                children.get(&Some(n)).into_iter().flatten().filter_map(|child| best.get(child).copied());
            let most = below.fold(own, |a, b| if (b.0, b.1) > (a.0, a.1) { b } else { a });
            best.insert(n, most);
        }
        for children in children.values_mut() {
            children.sort_by(|a, b| {
                let (a, b) = (best[a], best[b]);
                b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
            });
        }
        let mut layout = Layout { tree: self, children, lines: Vec::new(), left_out: 0, text_width, width };
        let roots = layout.children.remove(&None).unwrap_or_default();
        if let Some((&trunk, side)) = roots.split_first() {
            for &branch in side {
                layout.branch(branch, &[Rail::Branch], &[Rail::Trunk]);
            }
            layout.branch(trunk, &[], &[]);
        }
        (layout.lines, layout.left_out)
    }

    /// The order of ends: results, beams, finished ones, then dead ones, the latest first.
    fn importance(&self, n: u32) -> f32 {
        let node = &self.nodes[&n];
        match self.fate(n) {
            Fate::Result(rank) => 4e9 - rank as f32 * 1000.0,
            Fate::Alive(rank) => 3e9 - rank as f32 * 1000.0,
            Fate::Finished => 2e9,
            Fate::Died(_) => node.step as f32,
        }
    }

    fn fate(&self, n: u32) -> Fate {
        let node = &self.nodes[&n];
        if let Some(&rank) = self.results.get(&n) {
            Fate::Result(rank)
        } else if let Some(&rank) = self.frontier.get(&n) {
            Fate::Alive(rank)
        } else if node.finished {
            Fate::Finished
        } else {
            Fate::Died(node.step.saturating_add(1))
        }
    }
}

/// The deepest nesting of branches that is drawn.
const MAX_DEPTH: usize = 8;

/// The layout under construction.
struct Layout<'a> {
    tree: &'a Tree,
    children: BTreeMap<Option<u32>, Vec<u32>>,
    lines: Vec<TreeLine>,
    left_out: usize,
    text_width: &'a dyn Fn(usize) -> usize,
    width: &'a dyn Fn(&str) -> usize,
}

impl Layout<'_> {
    /// Draws a branch to its end, with the branches that leave it. `first` stands before its first line,
    /// `rest` before the others.
    fn branch(&mut self, start: u32, first: &[Rail], rest: &[Rail]) {
        let is_trunk = first.is_empty();
        let mut before = first.to_vec();
        let mut next = Some(start);
        let mut is_first = true;
        while let Some(n) = next {
            let step = self.tree.nodes[&n].step;
            let (mut text, mut last) = (String::new(), n);
            let side = loop {
                text.push_str(&self.tree.nodes[&last].text);
                let mut children = self.children.remove(&Some(last)).unwrap_or_default();
                let ends = !matches!(self.tree.fate(last), Fate::Died(_));
                if children.is_empty() {
                    next = None;
                    break children;
                }
                let main = children.remove(0);
                next = Some(main);
                if !children.is_empty() || ends {
                    break children;
                }
                last = main;
            };
            let fate = self.tree.fate(last);
            let end = (next.is_none() || !matches!(fate, Fate::Died(_)))
                .then(|| End { fate, score: self.tree.nodes[&last].score });
            let is_dead = end.is_some_and(|end| matches!(end.fate, Fate::Died(_)));
            let own = |rail| if is_trunk || !is_first { vec![rail] } else { Vec::new() };
            let closing = if next.is_none() { Rail::Last } else { Rail::Trunk };
            let lines = self.wrapped(&text, before.len() + own(closing).len());
            let count = lines.len();
            for (index, text) in lines.into_iter().enumerate() {
                let is_last = index + 1 == count;
                let mut rails = if index == 0 { before.clone() } else { rest.to_vec() };
                rails.extend(own(if is_last { closing } else { Rail::Trunk }));
                let step = (index == 0).then_some(step);
                self.lines.push(TreeLine {
                    step,
                    rails,
                    text,
                    end: end.filter(|_| is_last),
                    is_trunk,
                    is_dead,
                });
            }
            before = rest.to_vec();
            is_first = false;
            if rest.len() == MAX_DEPTH {
                self.left_out += side.len();
                continue;
            }
            for branch in side {
                self.branch(branch, &[rest, &[Rail::Branch]].concat(), &[rest, &[Rail::Trunk]].concat());
            }
        }
    }

    /// The text in lines, broken at spaces where there are some. All but the first begin with a space, as
    /// most tokens do.
    fn wrapped(&self, text: &str, rails: usize) -> Vec<String> {
        let room = (self.text_width)(rails).max(8);
        let (mut lines, mut used) = (vec![String::new()], 0);
        for word in text.split_inclusive(' ') {
            let width = (self.width)(word.trim_end());
            if used > 1 && used + width > room {
                lines.push(" ".to_owned());
                used = 1;
            }
            let mut letters = [0; 4];
            for letter in word.chars() {
                let width = (self.width)(letter.encode_utf8(&mut letters));
                if used + width > room && letter != ' ' {
                    lines.push(" ".to_owned());
                    used = 1;
                }
                if let Some(line) = lines.last_mut() {
                    line.push(letter);
                }
                used += width;
            }
        }
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
    }
}
