//! The layout of pictures: their parts from top to bottom, which `text` and `html` draw.

use super::tree::Tree;
use super::{Pictures, View, heat, percent};
use crate::engine::trace::{Draft, Token};
use rsgen_generation::search::details::DraftOrigin;

/// The tokens of a row that are explained below its strip.
const EXPLAINED: usize = 3;

/// A part of a picture.
pub(super) enum Part<'a> {
    /// Which row follows.
    Row(String),
    /// The text that beams continue, and which it is among several.
    Prompt(String, &'a str),
    /// Which group of beams follows.
    Group(String),
    /// The text of a row after its prompt, each token with its probability.
    Strip(&'a str, &'a [Token]),
    /// A token with what could have been chosen.
    Explained(&'a Token),
    /// A group of beams.
    Tree(&'a Tree, usize),
    /// A line for each draft.
    Rounds(&'a [Draft]),
    /// What the colours of the view mean, and numbers in sentences.
    Summary(View, Vec<String>),
    /// What is left out.
    More(String),
}

impl Pictures {
    /// The parts of a view, of at most so many rows, prompts and groups.
    pub(super) fn layout(&self, view: View, most: usize) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let all = match view {
            View::Probs => self.rows.len(),
            View::Beams => self.trees.len(),
            View::Drafts => self.drafts.len(),
        };
        match view {
            View::Probs => {
                for (row, tokens) in self.rows.iter().take(most) {
                    parts.extend(
                        (all > 1).then(|| Part::Row(format!("row {} of {all}", row.saturating_add(1)))),
                    );
                    parts.push(Part::Strip(self.prompt_of(*row), tokens));
                    parts.push(Part::Summary(view, certainty(tokens).into_iter().collect()));
                    parts.extend(least_sure(tokens, EXPLAINED).into_iter().map(Part::Explained));
                }
            }
            View::Beams => {
                for (&prompt, tree) in self.trees.iter().take(most) {
                    let title = if all > 1 {
                        format!("prompt {}: ", prompt.saturating_add(1))
                    } else {
                        String::new()
                    };
                    parts.push(Part::Prompt(title, self.prompt(prompt)));
                    let groups = tree.groups();
                    for &group in groups.iter().take(most) {
                        let title = || Part::Group(format!("group {}", group.saturating_add(1)));
                        parts.extend((groups.len() > 1).then(title));
                        parts.push(Part::Tree(tree, group));
                    }
                    let steps = format!(
                        "{} steps; {} other continuations never became a beam",
                        tree.steps, tree.pruned
                    );
                    let score = "score: the sum of the log-probabilities, divided by a power of the length";
                    parts.push(Part::Summary(view, vec![steps, score.to_owned()]));
                }
            }
            View::Drafts => {
                for (row, drafts) in self.drafts.iter().take(most) {
                    parts.extend((all > 1).then(|| Part::Row(format!("row {}", row.saturating_add(1)))));
                    parts.push(Part::Rounds(drafts));
                    parts.push(Part::Summary(view, acceptance(drafts)));
                }
            }
        }
        parts.extend((all > most).then(|| Part::More(format!("{} more rows", all - most))));
        parts
    }

    /// The text of a prompt.
    fn prompt(&self, index: usize) -> &str {
        self.prompts.get(index).map(String::as_str).unwrap_or_default()
    }

    /// The text that a row continues.
    fn prompt_of(&self, row: usize) -> &str {
        let finished = self.finished.iter().find(|finished| finished.row == row);
        self.prompt(finished.map_or(0, |finished| finished.prompt))
    }
}

/// A row in numbers, if its tokens have probabilities.
fn certainty(tokens: &[Token]) -> Option<String> {
    let logprobs: Vec<f32> = tokens.iter().filter_map(|token| token.logprob).collect();
    let mean = logprobs.iter().sum::<f32>() / logprobs.len().max(1) as f32;
    let (each, perplexity) = (percent(mean.exp()), (-mean).exp());
    let perplexity = if perplexity < 1e6 { format!("{perplexity:.2}") } else { format!("{perplexity:.2e}") };
    let words =
        || format!("{} tokens, {each} each in the geometric mean, perplexity {perplexity}", tokens.len());
    (!logprobs.is_empty()).then(words)
}

/// The drafts of a row in numbers.
fn acceptance(drafts: &[Draft]) -> Vec<String> {
    let proposed: usize = drafts.iter().map(|draft| draft.proposed.len()).sum();
    let accepted: usize = drafts.iter().map(|draft| draft.accepted.min(draft.proposed.len())).sum();
    let own = drafts.iter().filter(|draft| draft.next.is_some()).count();
    let share = percent(accepted as f32 / proposed.max(1) as f32);
    let each = (accepted + own) as f32 / drafts.len().max(1) as f32;
    let source = drafts.first().map_or("", |draft| match draft.source {
        DraftOrigin::AssistantModel => " by a draft model",
        DraftOrigin::EarlyExit => " by the model's first layers",
        DraftOrigin::PromptLookup => " by looking into the text",
    });
    vec![
        format!("{proposed} tokens drafted{source}, {accepted} accepted ({share})"),
        format!("{each:.2} tokens a round in {} rounds", drafts.len()),
    ]
}

/// The tokens that the model was least sure of, below 90%, in the order of the text.
fn least_sure(tokens: &[Token], most: usize) -> Vec<&Token> {
    let mut unsure: Vec<(f32, &Token)> = tokens
        .iter()
        .filter_map(|token| token.logprob.map(|logprob| (logprob, token)))
        .filter(|(logprob, _)| heat(logprob.exp()) > 0)
        .collect();
    unsure.sort_by(|a, b| a.0.total_cmp(&b.0));
    unsure.truncate(most);
    unsure.sort_by_key(|(_, token)| token.pos);
    unsure.into_iter().map(|(_, token)| token).collect()
}
