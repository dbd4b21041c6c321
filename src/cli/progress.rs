//! Progress bars on standard error, if it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::terminal::Terminal;

/// Whether standard error is a terminal, and `HF_HUB_DISABLE_PROGRESS_BARS` does not switch bars off.
pub(super) fn shows_bars(terminal: &Terminal) -> bool {
    let value = std::env::var("HF_HUB_DISABLE_PROGRESS_BARS").unwrap_or_default();
    terminal.is_interactive && !["1", "ON", "YES", "TRUE"].contains(&value.to_ascii_uppercase().as_str())
}

/// A bar with this template.
pub(super) fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style)
}

/// The bar of a list of texts; hidden for a single text, or without a terminal.
pub(super) fn of_texts(terminal: &Terminal, total: usize) -> ProgressBar {
    if total > 1 && shows_bars(terminal) {
        bar(total as u64, "{wide_bar} {pos}/{len} texts, {eta} left")
    } else {
        ProgressBar::hidden()
    }
}
