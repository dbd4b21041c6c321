//! The row budget of a pass, and the share of prompts in it while somebody waits for a next token.

use std::time::Duration;

/// The most rows of a pass. More rows read the weights less often, but make everything else wait longer:
/// interrupts are polled between operations, and one operation on 256 rows of a billion parameters takes
/// about 0.1 s on one thread.
pub(super) const MAX_ROWS: usize = 256;

/// The rows that each pass keeps free for prompts. With fewer, requests that arrive together would fall
/// behind. They add at most the time of two steps to a pass with eight next tokens or more, and to a smaller
/// pass if reading the weights takes at least as long as computing eight rows.
pub(super) const MIN_PROMPT_ROWS: usize = 16;

/// The longest duration of a pass that a next token waits for, in steps without a prompt.
const SLOWDOWN: f64 = 2.5;

/// How long passes take, in seconds.
#[derive(Default)]
pub(super) struct Pace {
    /// A pass without rows of prompts.
    step: f64,
    /// What a row of a prompt adds.
    prompt_row: f64,
}

impl Pace {
    /// The most prompt rows in a pass with next tokens of `sequences`. If more prompts wait than sequences
    /// run, the limit grows by their ratio. A prompt yields only to sequences that were running when it
    /// arrived: `later` counts the pairs of a prompt and a sequence that began after it, which are many when
    /// requests arrive at once.
    pub(super) fn prompt_rows(&self, prompts: usize, sequences: usize, later: usize) -> usize {
        if self.step == 0.0 || self.prompt_row == 0.0 {
            return MIN_PROMPT_ROWS;
        }
        let share = (prompts.max(later) as f64 / sequences.max(1) as f64).max(1.0);
        let rows = self.step * (SLOWDOWN - 1.0) * share / self.prompt_row;
        (rows as usize / MIN_PROMPT_ROWS * MIN_PROMPT_ROWS).clamp(MIN_PROMPT_ROWS, MAX_ROWS)
    }

    /// Adds a pass of `rows`, of which `prompt_rows` were those of prompts.
    pub(super) fn add(&mut self, elapsed: Duration, rows: usize, prompt_rows: usize) {
        let blend = |average: &mut f64, new: f64| {
            *average = if *average == 0.0 { new } else { 0.8 * *average + 0.2 * new };
        };
        let elapsed = elapsed.as_secs_f64();
        if prompt_rows == 0 {
            blend(&mut self.step, elapsed);
        } else if prompt_rows >= MIN_PROMPT_ROWS {
            let steps = if rows > prompt_rows { self.step } else { 0.0 };
            blend(&mut self.prompt_row, (elapsed - steps).max(elapsed / 8.0) / prompt_rows as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock: the seconds of a pass whose weights are read once and whose rows are each computed.
    fn pass(weights: f64, row: f64, rows: usize) -> f64 {
        weights + row * rows as f64
    }

    #[test]
    fn many_prompts_do_not_wait_for_few_sequences() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.add(Duration::from_secs_f64(0.1), 1, 0);
            pace.add(Duration::from_secs_f64(0.3), 64, 64);
        }
        let alone = pace.prompt_rows(1, 1, 0);
        assert!((32..=64).contains(&alone), "{alone}");
        assert_eq!(pace.prompt_rows(15, 1, 0), MAX_ROWS);
        assert_eq!(pace.prompt_rows(2, 1, 0), alone * 2);
        assert_eq!(pace.prompt_rows(1, 15, 0), alone);
        assert_eq!(pace.prompt_rows(8, 8, 0), alone);
        // Those that came before the others began do not yield to them.
        assert_eq!(pace.prompt_rows(2, 14, 28), alone * 2);
        assert_eq!(pace.prompt_rows(8, 8, 64), MAX_ROWS);
        assert_eq!(pace.prompt_rows(8, 8, 7), alone);
    }

    #[test]
    fn an_arriving_prompt_delays_next_tokens_by_at_most_three_steps() {
        // From rows that cost nothing compared with the weights to weights that cost nothing.
        for (weights, row) in
            [(0.1, 1e-5), (0.1, 1e-3), (0.1, 0.0125), (0.1, 0.05), (0.01, 0.02), (0.0, 0.02)]
        {
            for streams in [1, 2, 8, 32, 200] {
                if streams < 8 && weights < 8.0 * row {
                    continue;
                }
                let (mut pace, step) = (Pace::default(), pass(weights, row, streams));
                for _ in 0..10 {
                    pace.add(Duration::from_secs_f64(step), streams, 0);
                }
                let (mut left, mut passes) = (2000, 0);
                while left > 0 {
                    let prompt_rows = pace.prompt_rows(1, streams, 0).min(left).min(MAX_ROWS - streams);
                    let elapsed = pass(weights, row, streams + prompt_rows);
                    assert!(
                        elapsed <= 3.0 * step + 1e-9,
                        "{prompt_rows} rows beside {streams} streams take {elapsed} s, a step {step} s"
                    );
                    pace.add(Duration::from_secs_f64(elapsed), streams + prompt_rows, prompt_rows);
                    (left, passes) = (left - prompt_rows, passes + 1);
                }
                // The prompt does not wait long either: it has its share of each pass.
                let part = (1.5 * step / row).clamp(16.0, (MAX_ROWS - streams) as f64);
                let least = (2000.0 / part).ceil();
                assert!(f64::from(passes) <= 2.0 * least + 30.0, "{passes} passes, {least} would do");
            }
        }
    }
}
