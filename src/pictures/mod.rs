//! Pictures of how texts were found, drawn from events alone: probabilities of tokens, trees of beams,
//! drafts.
//!
//! [`Pictures`] collects events, live or from a trace. `text` draws it with characters, for the shell; `html`
//! as static HTML without scripts, for notebooks. Both draw the parts that `layout` puts below each other,
//! and the lines that `tree` lays out. All text of models is escaped, and every picture is bounded.

mod collected;
pub mod html;
mod layout;
#[cfg(feature = "cli")]
#[cfg(test)]
mod tests;
#[cfg(feature = "cli")]
pub mod text;
mod tree;

pub use collected::{Pictures, View};

use rsgen_core::escape;

/// The longest text of a token, in characters.
const MAX_TEXT: usize = 200;

/// How unsure a token was, from 0 for one of 90% and more to 4 for one below 10%.
fn heat(probability: f32) -> usize {
    [0.9, 0.6, 0.3, 0.1].iter().filter(|&&least| probability < least).count()
}

/// A probability for people: `93%`, `4.1%`, `<0.1%`.
fn percent(probability: f32) -> String {
    let percent = 100.0 * probability.clamp(0.0, 1.0);
    match percent {
        _ if percent <= 0.0 => "0%".to_owned(),
        _ if percent < 0.1 => "<0.1%".to_owned(),
        _ if percent < 9.95 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

/// A score for people, at most 8 characters.
fn score(value: f32) -> String {
    if value.abs() < 1000.0 { format!("{value:.3}") } else { format!("{value:.1e}") }
}

/// Text of a model on one line: line breaks and tabs as visible signs, hidden characters written out.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars().take(MAX_TEXT) {
        match letter {
            '\n' => shown.push('↵'),
            '\t' => shown.push('⇥'),
            _ if escape::is_hidden(letter) => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// `1st`, `2nd`, `3rd`, `4th`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
