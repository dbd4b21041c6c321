//! The tree of beams: time runs downwards, the best beam is the trunk, and branches say how they ended.

use super::super::collected::Pictures;
use super::super::tree::{End, Fate, Rail, Tree, TreeLine};
use super::super::{ordinal, score};
use super::paint::{Look, Paint, last, padded, width};

/// The columns for the step.
const STEP: usize = 5;
/// The columns for the end of a branch and its score.
const END: usize = 25;

pub(super) fn lines(pictures: &Pictures, look: &Look) -> Vec<String> {
    let mut lines = Vec::new();
    for (&prompt, tree) in &pictures.trees {
        lines.extend((!lines.is_empty()).then(String::new));
        let title = if pictures.trees.len() > 1 { format!("prompt {}: ", prompt + 1) } else { String::new() };
        let text = pictures.prompts.get(prompt).map(String::as_str).unwrap_or_default();
        let shown = look.shown(text);
        // Its end is what the beams continue.
        let room = look.width.saturating_sub(STEP + width(&title) + 1);
        let end = last(&shown, room);
        let dots = if end.len() < shown.len() { look.either("…", "~") } else { "" };
        lines.push(" ".repeat(STEP) + &look.paint(Paint::Dim, &format!("{title}{dots}{end}")));
        let groups = tree.groups();
        for &group in &groups {
            if groups.len() > 1 {
                lines.push(look.paint(Paint::Bold, &format!("group {}", group.saturating_add(1))));
            }
            let room = |rails: usize| look.width.saturating_sub(STEP + 2 * rails + END);
            let (drawn, left_out) = tree.lines(group, &room, &|text| width(&look.shown(text)));
            lines.extend(drawn.iter().map(|line| draw(line, look)));
            if left_out > 0 {
                lines.push(look.paint(Paint::Dim, &format!("     {left_out} more branches of branches")));
            }
        }
        lines.push(String::new());
        lines.extend(summary(tree).map(|line| look.paint(Paint::Dim, &line)));
    }
    lines
}

fn summary(tree: &Tree) -> [String; 2] {
    [
        format!("{} steps; {} other continuations never became a beam", tree.steps, tree.pruned),
        "score: the sum of the log-probabilities, divided by a power of the length".to_owned(),
    ]
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
    let (paint, fate) = match end.fate {
        Fate::Result(0) => (Paint::Best, look.either("★ best", "* best").to_owned()),
        Fate::Result(rank) => (Paint::Bold, format!("{} {}", look.either("✔", "+"), ordinal(rank + 1))),
        Fate::Alive(rank) => (Paint::Bold, format!("{} beam {}", look.either("●", "o"), rank + 1)),
        Fate::Finished => (Paint::Plain, format!("{} finished", look.either("■", "#"))),
        Fate::Died(step) => {
            (Paint::Dim, format!("{} died at {}", look.either("✂", "x"), step.saturating_add(1)))
        }
    };
    (paint, format!("{}{:>8}", padded(&fate, 15), score(end.score)))
}
