//! How many tokens to draft next: transformers' `num_assistant_tokens_schedule`.

use super::super::super::config::AssistantTokensSchedule;
use super::super::super::plan::KeptTokens;

/// The number of drafted tokens of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    kind: AssistantTokensSchedule,
    num_tokens: usize,
}

impl Schedule {
    /// Begins with `num_tokens`, or with what an earlier call of a heuristic schedule has kept.
    pub(super) fn new(kind: AssistantTokensSchedule, num_tokens: usize, kept: &KeptTokens) -> Self {
        let kept = kept.get().filter(|_| kind == AssistantTokensSchedule::Heuristic);
        Self { kind, num_tokens: kept.unwrap_or(num_tokens) }
    }

    /// The most tokens of the next draft; the schedule `"adaptive"` may want fewer.
    pub(super) fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Takes note of a draft that was accepted whole or not.
    pub(super) fn update(&mut self, accepted_whole: bool) {
        if matches!(
            self.kind,
            AssistantTokensSchedule::Heuristic | AssistantTokensSchedule::HeuristicTransient
        ) {
            let less = self.num_tokens.saturating_sub(1).max(1);
            self.num_tokens = if accepted_whole { self.num_tokens.saturating_add(2) } else { less };
        }
    }

    /// Keeps the number for later calls, if the schedule does.
    pub(super) fn keep(&self, kept: &KeptTokens) {
        if self.kind == AssistantTokensSchedule::Heuristic {
            kept.set(self.num_tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heuristic_schedules_grow_by_two_and_shrink_by_one() {
        let kept = KeptTokens::default();
        for (kind, expected) in [
            (AssistantTokensSchedule::Constant, [2, 2, 2, 2]),
            (AssistantTokensSchedule::HeuristicTransient, [4, 3, 2, 1]),
            (AssistantTokensSchedule::Heuristic, [4, 3, 2, 1]),
            (AssistantTokensSchedule::Adaptive, [2, 2, 2, 2]),
        ] {
            let mut schedule = Schedule::new(kind, 2, &kept);
            let numbers = [true, false, false, false].map(|whole| {
                schedule.update(whole);
                schedule.num_tokens()
            });
            assert_eq!(numbers, expected, "{kind:?}");
            schedule.update(false);
            assert!(schedule.num_tokens() >= 1);
            schedule.keep(&kept);
        }
        assert_eq!(kept.get(), Some(1), "only one of them keeps its number");
        let next = |kind| Schedule::new(kind, 9, &kept).num_tokens();
        assert_eq!(next(AssistantTokensSchedule::Heuristic), 1);
        assert_eq!(next(AssistantTokensSchedule::HeuristicTransient), 9);
        assert_eq!(next(AssistantTokensSchedule::Constant), 9);
    }
}
