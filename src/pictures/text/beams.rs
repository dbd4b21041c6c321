//! The tree of beams: time runs downwards, the best beam is the trunk, and branches say how they ended.

use super::super::score;
use super::super::tree::{End, Fate, Rail, Tree, TreeLine};
use super::paint::{Look, Paint, last, padded, width};

/// The columns for the step.
const STEP: usize = 5;
/// The columns for the end of a branch and its score.
const END: usize = 25;

/// The end of a prompt, which is what the beams continue.
pub(super) fn prompt(title: &str, text: &str, look: &Look) -> String {
    let shown = look.shown(text);
    let end = last(&shown, look.width.saturating_sub(STEP + width(title) + 1));
    let dots = if end.len() < shown.len() { look.either("…", "~") } else { "" };
    " ".repeat(STEP) + &look.paint(Paint::Dim, &format!("{title}{dots}{end}"))
}

/// The lines of a group.
pub(super) fn lines(tree: &Tree, group: usize, look: &Look, lines: &mut Vec<String>) {
    let room = |rails: usize| look.width.saturating_sub(STEP + 2 * rails + END);
    let (drawn, left_out) = tree.lines(group, &room, &|text| width(&look.shown(text)));
    lines.extend(drawn.iter().map(|line| draw(line, look)));
    if left_out > 0 {
        lines.push(look.paint(Paint::Dim, &format!("     {left_out} more branches of branches")));
    }
}

fn draw(line: &TreeLine, look: &Look) -> String {
    let step = line
        .step
        .map(|step| step.saturating_add(1).to_string())
        .filter(|step| step.len() < STEP)
        .unwrap_or_default();
    let rails: String = line
        .rails
        .iter()
        .map(|rail| match rail {
            Rail::Trunk => look.either("│ ", "| "),
            Rail::Branch => look.either("├─", "|-"),
            Rail::Last => look.either("└─", "`-"),
        })
        .collect();
    let (paint, end) = line.end.map_or((Paint::Plain, String::new()), |end| ending(end, look));
    let text_paint = match (line.is_trunk, line.is_dead) {
        (true, _) => Paint::Bold,
        (false, true) => Paint::Dim,
        (false, false) => Paint::Plain,
    };
    let text = look.shown(&line.text);
    let room = look.width.saturating_sub(STEP + width(&rails) + END);
    let filled = padded(&text, room.max(width(&text).min(room + END)));
    let start = look.paint(Paint::Dim, &format!("{step:>4} ")) + &look.paint(Paint::Dim, &rails);
    if end.is_empty() {
        return start + &look.paint(text_paint, text.trim_end());
    }
    start + &look.paint(text_paint, &filled) + " " + &look.paint(paint, &end)
}

/// How a branch ended, and its score.
fn ending(end: End, look: &Look) -> (Paint, String) {
    let paint = match end.fate {
        Fate::Result(0) => Paint::Best,
        Fate::Result(_) | Fate::Alive(_) => Paint::Bold,
        Fate::Finished => Paint::Plain,
        Fate::Died(_) => Paint::Dim,
    };
    (paint, format!("{}{:>8}", padded(&end.fate.words(look.unicode), 15), score(end.score)))
}
