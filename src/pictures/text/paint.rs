//! [`Look`]: how wide a picture is, and with which characters and colours it is drawn.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How pictures are drawn as text.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The width of a line, in columns.
    pub width: usize,
    /// The most lines: of more, those in the middle are left out.
    pub max_lines: usize,
    /// Whether lines and blocks may be drawn with characters beyond ASCII.
    pub unicode: bool,
    /// Whether there are colours.
    pub colors: bool,
}

/// The role of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Dim,
    Bold,
    /// A token, by how unsure the model was: 0 to 4.
    Heat(usize),
    /// The best.
    Best,
    Accepted,
    Rejected,
    /// The model's own token after a draft.
    Next,
}

impl Paint {
    /// The colours set foreground and background both, so that they can be read on a dark and on a light
    /// terminal.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain | Self::Heat(0) => "",
            Self::Dim => "2",
            Self::Bold => "1",
            Self::Heat(1) => "38;5;16;48;5;230",
            Self::Heat(2) => "38;5;16;48;5;222",
            Self::Heat(3) => "38;5;16;48;5;215",
            Self::Heat(_) => "38;5;16;48;5;209",
            Self::Best => "1;38;5;16;48;5;151",
            Self::Accepted => "38;5;16;48;5;151",
            Self::Rejected => "9;38;5;16;48;5;217",
            Self::Next => "1;38;5;16;48;5;153",
        }
    }
}

impl Look {
    /// A piece of a line with its colours.
    pub(super) fn paint(&self, paint: Paint, text: &str) -> String {
        match paint.code() {
            code if self.colors && !code.is_empty() && !text.is_empty() => {
                format!("\x1b[{code}m{text}\x1b[0m")
            }
            _ => text.to_owned(),
        }
    }

    /// The Unicode or the ASCII form, as the look allows.
    pub(super) const fn either(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// Text of a model as it is shown: without hidden characters, and in ASCII if nothing else can be shown.
    pub(super) fn shown(&self, text: &str) -> String {
        let visible = super::super::visible(text);
        if self.unicode {
            return visible;
        }
        let plain = |letter: char| match letter {
            '↵' => "\\n".to_owned(),
            '⇥' => "\\t".to_owned(),
            _ if letter.is_ascii() => letter.to_string(),
            _ => letter.escape_default().to_string(),
        };
        visible.chars().map(plain).collect()
    }

    /// A text in quotes, at most `width` columns.
    pub(super) fn quoted(&self, text: &str, width: usize) -> String {
        let shown = self.shown(text);
        if self::width(&shown) + 2 <= width {
            return format!("\"{shown}\"");
        }
        format!("\"{}{}\"", cut(&shown, width.saturating_sub(3)), self.either("…", "~"))
    }

    /// A bar of `width` columns for a share of 1.
    pub(super) fn bar(&self, share: f32, width: usize) -> String {
        let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f32).round() as usize;
        if !self.unicode {
            return "#".repeat((eighths + 4) / 8);
        }
        let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        "█".repeat(eighths / 8) + rest
    }

    /// At most `max_lines` lines, the rest from the middle left out.
    pub(super) fn bounded(&self, mut lines: Vec<String>) -> Vec<String> {
        if lines.len() <= self.max_lines {
            return lines;
        }
        let kept = self.max_lines.saturating_sub(1);
        let head = kept / 2;
        let left_out = lines.len() - kept;
        let tail = lines.split_off(lines.len() - (kept - head));
        lines.truncate(head);
        lines.push(self.paint(Paint::Dim, &format!("{} {left_out} more lines", self.either("⋮", "..."))));
        lines.extend(tail);
        lines
    }
}

/// The number of columns of a text.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text, at most `columns` wide.
pub(super) fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += letter.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// The end of a text, at most `columns` wide.
pub(super) fn last(text: &str, columns: usize) -> &str {
    let over = width(text).saturating_sub(columns);
    let mut skipped = 0;
    for (at, letter) in text.char_indices() {
        if skipped >= over {
            return &text[at..];
        }
        skipped += letter.width().unwrap_or(0);
    }
    ""
}

/// A text with spaces after it, `columns` wide.
pub(super) fn padded(text: &str, columns: usize) -> String {
    let cut = cut(text, columns);
    cut.to_owned() + &" ".repeat(columns - width(cut))
}
