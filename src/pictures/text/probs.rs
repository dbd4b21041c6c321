//! The probabilities of a row's tokens: its text over a strip of bars, and the tokens it was least sure of.

use super::super::{heat, ordinal, percent};
use super::paint::{Look, Paint, cut, last, padded, width};
use crate::engine::trace::{Alternative, Token};

/// The longest end of a prompt that is shown before a row, in characters.
const LONGEST_BEGINNING: usize = 120;

/// The end of the prompt and the text, and under each token the less sure a bar, the higher.
pub(super) fn strip(prompt: &str, tokens: &[Token], look: &Look, lines: &mut Vec<String>) {
    let (mut text, mut bars, mut used) = (String::new(), String::new(), 0);
    let mut end_line = |text: &mut String, bars: &mut String, used: &mut usize| {
        lines.push(std::mem::take(text));
        let bars = std::mem::take(bars);
        lines.push(bars.trim_end().to_owned());
        *used = 0;
    };
    let start = prompt.char_indices().rev().nth(LONGEST_BEGINNING - 1).map_or(0, |(start, _)| start);
    let shown = look.shown(&prompt[start..]);
    let beginning = last(&shown, look.width * 3 / 4);
    text.push_str(&look.paint(Paint::Dim, beginning));
    bars.push_str(&" ".repeat(width(beginning)));
    used += width(beginning);
    for token in tokens {
        let shown = look.shown(&token.text);
        let probability = token.logprob.map(f32::exp);
        let mut rest = &shown[..];
        if used > 0 && used + width(rest) > look.width {
            end_line(&mut text, &mut bars, &mut used);
        }
        while !rest.is_empty() {
            let part = cut(rest, (look.width - used).max(2));
            rest = &rest[part.len()..];
            text.push_str(&look.paint(Paint::Heat(probability.map_or(0, heat)), part));
            // The space before a word is no part of it, so that words stay apart.
            let word = part.trim_start_matches(' ');
            let space = if word.is_empty() { 0 } else { part.len() - word.len() };
            bars.push_str(&" ".repeat(space));
            bars.push_str(&bar(probability, look).repeat(width(part) - space));
            used += width(part);
            if !rest.is_empty() {
                end_line(&mut text, &mut bars, &mut used);
            }
        }
        if token.text.contains('\n') && used > 0 {
            end_line(&mut text, &mut bars, &mut used);
        }
    }
    if used > 0 {
        end_line(&mut text, &mut bars, &mut used);
    }
}

/// The sign under a token: nothing where the model was sure, else the higher the less sure it was; in ASCII
/// the first digit of the percentage.
fn bar(probability: Option<f32>, look: &Look) -> &'static str {
    let probability = probability.unwrap_or(1.0).clamp(0.0, 1.0);
    let heat = heat(probability);
    if heat == 0 {
        " "
    } else if look.unicode {
        ["▂", "▄", "▆", "█"][heat - 1]
    } else {
        ["0", "1", "2", "3", "4", "5", "6", "7", "8"][((10.0 * probability + 1e-3) as usize).min(8)]
    }
}

pub(super) const fn legend(look: &Look) -> &'static str {
    look.either(
        "no bar: 90% and more   ▂ 60-90%   ▄ 30-60%   ▆ 10-30%   █ below 10%",
        "no digit: 90% and more; 8: 80-90%, ... 1: 10-20%, 0: below 10%",
    )
}

/// A token with what could have been chosen.
pub(super) fn explain(token: &Token, look: &Look, lines: &mut Vec<String>) {
    let probability = token.logprob.map_or(0.0, f32::exp);
    let rank = token.rank.map(|rank| format!(", the {} choice", ordinal_choice(rank))).unwrap_or_default();
    let (place, text) = (format!("token {} ", token.pos.saturating_add(1)), look.quoted(&token.text, 24));
    let rest = format!(" had {}{rank}", percent(probability));
    let rest = cut(&rest, look.width.saturating_sub(width(&place) + width(&text)));
    lines.push(String::new());
    lines.push(place + &look.paint(Paint::Heat(heat(probability)), &text) + rest);
    let changed = |top: &Alternative| top.cut_by.is_some() || (top.p_raw - top.p_final).abs() > 5e-4;
    let processed = token.top.iter().any(changed);
    if processed {
        let head = format!("{:27}{:25}{}", "", "the model", "after the processors");
        lines.push(look.paint(Paint::Dim, &head));
    }
    for top in token.top.iter().take(8) {
        let chosen = top.token.id == token.id;
        let mark = if chosen { look.either("▸", ">") } else { " " };
        let mut line = format!(
            "  {mark} {} {:>5} {}",
            padded(&look.quoted(&top.token.text, 20), 20),
            percent(top.p_raw),
            look.bar(top.p_raw, 14)
        );
        if processed {
            line = padded(&line, 47);
            let after = if let Some(cut_by) = &top.cut_by {
                format!("{} {}", look.either("✂ cut by", "x cut by"), look.shown(cut_by))
            } else {
                let (arrow, bar) = (look.either("→", "->"), look.bar(top.p_final, 14));
                format!("{arrow} {:>5} {bar}", percent(top.p_final))
            };
            line.push_str(&after);
        }
        let line = cut(line.trim_end(), look.width);
        let paint = match (chosen, &top.cut_by) {
            (true, _) => Paint::Bold,
            (false, Some(_)) => Paint::Dim,
            (false, None) => Paint::Plain,
        };
        lines.push(look.paint(paint, line));
    }
}

fn ordinal_choice(rank: usize) -> String {
    if rank == 1 { "first".to_owned() } else { ordinal(rank) }
}
