//! The tree of beams as a drawing: the lines of the shell's tree, with lines for branches.

use std::fmt::Write as _;

use super::super::score;
use super::super::tree::{Fate, Rail, Tree, TreeLine};
use super::{note, plain};

/// The most lines of a tree.
const MAX_LINES: usize = 400;
/// The height of a line and the widths of a character, of a rail and of the column of steps, in pixels.
const LINE: usize = 20;
const LETTER: usize = 8;
const RAIL: usize = 16;
const STEPS: usize = 36;
/// The characters of a line of text.
const TEXT: usize = 70;

/// The lines of a group.
pub(super) fn lines(tree: &Tree, group: usize, html: &mut String) {
    let (lines, left_out) = tree.lines(group, &|_| TEXT, &|text| text.chars().count());
    svg(&lines, html);
    let more = left_out + lines.len().saturating_sub(MAX_LINES);
    if more > 0 {
        note(&format!("… {more} more lines"), html);
    }
}

fn svg(lines: &[TreeLine], html: &mut String) {
    let lines = &lines[..lines.len().min(MAX_LINES)];
    let rails = lines.iter().map(|line| line.rails.len()).max().unwrap_or(0);
    let ends = STEPS + rails * RAIL + (TEXT + 2) * LETTER;
    let (width, height) = (ends + 27 * LETTER, lines.len() * LINE + 4);
    let _ = write!(
        html,
        "<div class=\"rp-scroll\"><svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"tree of beams\">"
    );
    let mut path = String::new();
    for (index, line) in lines.iter().enumerate() {
        let (top, middle, bottom) = (index * LINE, index * LINE + LINE / 2, (index + 1) * LINE);
        for (column, rail) in line.rails.iter().enumerate() {
            let x = STEPS + column * RAIL + RAIL / 2;
            let right = x + RAIL / 2;
            let _ = match rail {
                Rail::Trunk => write!(path, "M{x} {top}V{bottom}"),
                Rail::Branch => write!(path, "M{x} {top}V{bottom}M{x} {middle}H{right}"),
                Rail::Last => write!(path, "M{x} {top}V{middle}H{right}"),
            };
        }
    }
    let _ = write!(html, "<path d=\"{path}\"/>");
    for (index, line) in lines.iter().enumerate() {
        let y = index * LINE + LINE / 2 + 5;
        if let Some(step) = line.step {
            let _ = write!(
                html,
                "<text class=\"rp-dim\" x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
                STEPS - 8,
                step.saturating_add(1)
            );
        }
        let x = STEPS + line.rails.len() * RAIL + 2;
        let class = match (line.is_trunk, line.is_dead) {
            (true, _) => " class=\"rp-best\"",
            (false, true) => " class=\"rp-dim\"",
            (false, false) => "",
        };
        let _ = write!(html, "<text{class} x=\"{x}\" y=\"{y}\">{}</text>", plain(line.text.trim_start()));
        if let Some(end) = line.end {
            if end.fate == Fate::Result(0) {
                let y = index * LINE + 1;
                let _ = write!(
                    html,
                    "<rect class=\"rp-mark\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"3\"/>",
                    ends - 4,
                    25 * LETTER,
                    LINE - 2
                );
            }
            let _ = write!(
                html,
                "<text{class} x=\"{ends}\" y=\"{y}\">{}</text><text{class} x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
                end.fate.words(true),
                ends + 24 * LETTER,
                score(end.score)
            );
        }
    }
    html.push_str("</svg></div>");
}
