//! The schedule `"adaptive"`: how many tokens to draft next, so that the tokens come as fast as possible.
//!
//! A round of `n` drafted tokens takes `n` steps of the assistant and a pass of `n + 1` rows, and gives one
//! token more than are accepted. Both are known from the rounds before: the times as averages, acceptance by
//! the place in the draft. The length with the most tokens a second is next, and 0 where plain decoding is
//! faster. Then, after 8, 16, 32 … plain steps, a short draft tries again, if it may well pay: with a few
//! accepted tokens more, and with what was measured counting less for each time that it was not tried. So a
//! draft that is nearly free is tried soon, and a costly one late.
//!
//! Where requests share passes, each counts as if all did as it does: a row costs a pass of 16 requests 16
//! rows. So all of them come to the same answer.

use super::super::step_cost::{StepCost, blend};

/// The least speedup for drafting: a margin for noise.
const GAIN: f64 = 1.03;
/// The decay of an average per round.
const KEPT: f64 = 0.9;
/// The acceptance that a request begins with, and the number of rounds that it counts as.
const FIRST: (f64, f64) = (0.5, 2.0);
/// The plain steps before the first try, and the most before any.
const WAITS: (usize, usize) = (8, 256);
/// The most rounds of a try whose tokens are accepted, before it must pay.
const TRIES: usize = 4;
/// The accepted tokens that a try adds to those of each place.
const HOPE: f64 = 2.0;
/// What measurements still count, for each time that a try came into question since the last one.
const DOUBT: f64 = 0.8;
/// Among so many rounds with drafts one is plain and one has a longer draft, so that neither time grows old.
const REFRESH: usize = 64;

/// The length of the next drafts of a request, and what it is chosen by.
#[derive(Debug, Clone)]
pub(crate) struct AdaptiveLength {
    most: usize,
    /// How often tokens are accepted that follow accepted ones, by their place in the draft.
    acceptance: Vec<Acceptance>,
    /// The seconds of a step of the assistant; `None` without one, 0 before it is known.
    draft_step: Option<f64>,
    /// The sequences in the last pass, and the times of passes.
    cost: StepCost,
    /// The longest draft so far: the next is at most twice as long.
    longest: usize,
    /// The rounds since drafts pay.
    rounds: usize,
    /// The plain steps since the last try, and those that there have to be.
    waited: usize,
    wait: usize,
    /// The rounds of the try that is under way; 0 without one.
    tries: usize,
    /// What measurements count when the next try comes into question: from 1 down, and 0 before the first
    /// draft, which is tried in any case.
    trust: f64,
    /// Whether a drafted token was accepted since the last choice.
    was_accepted: bool,
}

/// A decaying acceptance rate of one draft position.
#[derive(Debug, Clone, Copy, Default)]
struct Acceptance {
    accepted: f64,
    checked: f64,
}

impl Acceptance {
    fn add(&mut self, is_accepted: bool) {
        self.accepted = KEPT * self.accepted + f64::from(u8::from(is_accepted));
        self.checked = KEPT * self.checked + 1.0;
    }
}

impl AdaptiveLength {
    /// Drafts of up to `most` tokens. `by_model`: a model computes them, so that each takes time.
    pub(crate) fn new(most: usize, by_model: bool) -> Self {
        let (accepted, checked) = FIRST;
        Self {
            most,
            acceptance: vec![Acceptance { accepted: accepted * checked, checked }],
            draft_step: by_model.then_some(0.0),
            cost: StepCost::default(),
            longest: 1,
            rounds: 0,
            waited: 0,
            wait: WAITS.0,
            tries: 0,
            trust: 0.0,
            was_accepted: false,
        }
    }

    /// The same for the next call, with other limits.
    pub(crate) fn with_most(self, most: usize) -> Self {
        Self { most, cost: StepCost::default(), ..self }
    }

    /// The length of the next drafts, of which there are `available` tokens.
    pub(crate) fn next(&mut self, available: usize) -> usize {
        let was_accepted = std::mem::take(&mut self.was_accepted);
        let most = self.most.min(available);
        // The first pass computes the prompt, and so long nothing is known of others beside it.
        if most == 0 || self.cost == StepCost::default() {
            return 0;
        }
        let best = self.best(most, 0.0, 1.0);
        let length = if best > 0 {
            self.end_try(WAITS.0);
            self.rounds += 1;
            match self.rounds % REFRESH {
                0 => 0,
                round if round == REFRESH / 2 => most.min(2 * best),
                _ => best,
            }
        } else {
            self.rounds = 0;
            usize::from(self.tries_again(was_accepted, most))
        };
        self.longest = self.longest.max(length);
        length
    }

    /// Whether to draft a token although it is not expected to pay.
    fn tries_again(&mut self, was_accepted: bool, most: usize) -> bool {
        if self.tries > 0 {
            let goes_on = was_accepted && self.tries < TRIES && self.best(most, HOPE, 1.0) > 0;
            if !goes_on {
                self.end_try(self.next_wait());
                return false;
            }
        } else {
            self.waited += 1;
            if self.waited <= self.wait {
                return false;
            }
            self.trust *= DOUBT;
            if self.best(most, HOPE, self.trust) == 0 {
                (self.waited, self.wait) = (0, self.next_wait());
                return false;
            }
        }
        self.tries += 1;
        true
    }

    fn next_wait(&self) -> usize {
        WAITS.1.min(2 * self.wait)
    }

    /// Ends the try that is under way, if there is one. The next one comes after so many plain steps at the
    /// earliest.
    fn end_try(&mut self, wait: usize) {
        (self.waited, self.wait, self.tries, self.trust) = (0, wait, 0, 1.0);
    }

    /// The length with the most tokens a second, 0 if that is plain decoding: when so many tokens more had
    /// been accepted at each place, and what was measured counts only so much (1: fully).
    fn best(&self, most: usize, hope: f64, trust: f64) -> usize {
        let sequences = self.cost.sequences.max(1);
        let check = |length: usize| self.cost.seconds.of(sequences * (length + 1));
        let Some(plain) = check(0) else { return 0 };
        if self.draft_step == Some(0.0) {
            return 1;
        }
        let step = self.draft_step.unwrap_or_default();
        let (mut best, mut rate) = (0, GAIN / plain);
        let (mut tokens, mut chance, mut at) = (1.0, 1.0, 1.0);
        for length in 1..=most.min(2 * self.longest) {
            // The place before counts as one token more.
            let before = if length == 1 { (0.0, 0.0) } else { (at, 1.0) };
            let own = self.acceptance.get(length - 1).copied().unwrap_or_default();
            at = (trust * own.accepted + before.0 + hope) / (trust * own.checked + before.1 + hope);
            chance *= at;
            tokens += chance;
            let extra = length as f64 * step + check(length).unwrap_or(plain) - plain;
            let seconds = plain + trust * extra;
            if tokens / seconds > rate {
                (best, rate) = (length, tokens / seconds);
            }
        }
        best
    }

    /// Takes note of a step of the assistant, of one token for each draft or of more. A step of some of the
    /// requests is one that the others wait for: for all of them to draft it takes more such steps.
    pub(crate) fn drafted(&mut self, cost: StepCost, is_single: bool) {
        let steps = self.cost.sequences as f64 / cost.sequences.max(1) as f64;
        let seconds = cost.waited * steps.max(1.0);
        if let Some(average) = &mut self.draft_step {
            if is_single {
                *average = blend(*average, seconds);
            } else if *average > 0.0 {
                *average = average.min(seconds);
            }
        }
    }

    /// Takes note of a pass of the model.
    pub(crate) fn passed(&mut self, cost: StepCost) {
        self.cost = StepCost { seconds: cost.seconds.rising(), ..cost };
    }

    /// Takes note of a draft of which `accepted` tokens were accepted, and whether the next one was rejected.
    pub(crate) fn checked(&mut self, accepted: usize, was_rejected: bool) {
        self.was_accepted |= accepted > 0;
        let checked = accepted + usize::from(was_rejected);
        if self.acceptance.len() < checked {
            self.acceptance.resize(checked, Acceptance::default());
        }
        for (place, average) in self.acceptance[..checked].iter_mut().enumerate() {
            average.add(place < accepted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::step_cost::PassSeconds;
    use super::*;

    /// A machine with a scripted clock: a pass of the model takes `pass(rows)` seconds, a step of the
    /// assistant `step`.
    struct Machine {
        pass: fn(usize) -> f64,
        step: Option<f64>,
        sequences: usize,
        /// How many of them are in a step of the assistant.
        drafting: usize,
        seconds: PassSeconds,
        random: u64,
    }

    /// The seconds and the lengths of rounds until so many tokens are there.
    struct Run {
        seconds: f64,
        lengths: Vec<usize>,
    }

    /// Passes that are bound by reading weights, and from 8 rows on by arithmetic.
    fn passes(rows: usize) -> f64 {
        (1.0 + 0.02 * rows as f64).max(0.145 * rows as f64)
    }

    impl Machine {
        fn new(step: Option<f64>, sequences: usize) -> Self {
            Self {
                pass: passes,
                step,
                sequences,
                drafting: sequences,
                seconds: PassSeconds::default(),
                random: 7,
            }
        }

        fn length(&self, most: usize) -> AdaptiveLength {
            AdaptiveLength::new(most, self.step.is_some())
        }

        /// Generates tokens with drafts whose tokens are accepted by a chance.
        fn run(&mut self, length: &mut AdaptiveLength, tokens: usize, chance: f64) -> Run {
            let (mut run, mut made) = (Run { seconds: 0.0, lengths: Vec::new() }, 0);
            while made < tokens {
                let drafted = length.next(usize::MAX);
                let rows = self.sequences * (drafted + 1);
                let waited = self.step.unwrap_or_default();
                let step = StepCost { waited, sequences: self.drafting, ..StepCost::default() };
                (0..drafted).for_each(|_| length.drafted(step, true));
                let pass = (self.pass)(rows);
                self.seconds.add(rows, pass);
                run.seconds += pass + drafted as f64 * self.step.unwrap_or_default();
                length.passed(StepCost { waited: pass, sequences: self.sequences, seconds: self.seconds });
                let mut accepted = 0;
                while accepted < drafted && self.draw() < chance {
                    accepted += 1;
                }
                length.checked(accepted, accepted < drafted);
                run.lengths.push(drafted);
                made += accepted + 1;
            }
            run
        }

        fn draw(&mut self) -> f64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random >> 33) as f64 / f64::from(1_u32 << 31)
        }

        /// How many times as fast as plain decoding a request is.
        fn speedup(&mut self, most: usize, tokens: usize, chance: f64) -> f64 {
            let mut length = self.length(most);
            let seconds = self.run(&mut length, tokens, chance).seconds;
            tokens as f64 * (self.pass)(self.sequences) / seconds
        }
    }

    #[test]
    fn drafts_never_lose_and_gain_where_they_are_accepted() {
        for sequences in [1, 2, 4, 16, 60] {
            for step in [None, Some(0.1), Some(0.3), Some(0.6), Some(2.0)] {
                for chance in [0.0, 0.1, 0.3, 0.6, 0.9] {
                    let step = step.map(|step| step * passes(sequences));
                    let speedup = Machine::new(step, sequences).speedup(4, 1000, chance);
                    assert!(speedup > 0.97, "{sequences} sequences, {step:?}, {chance}: {speedup}");
                }
            }
        }
        // What is tried costs little from the first tokens on, also where a pass of more rows takes much
        // longer.
        for sequences in [16, 60] {
            for step in [None, Some(0.1), Some(0.3), Some(0.6), Some(2.0)] {
                for chance in [0.0, 0.1, 0.3, 0.6, 0.9] {
                    let step = step.map(|step| step * passes(sequences));
                    let speedup = Machine::new(step, sequences).speedup(4, 128, chance);
                    assert!(speedup > 0.97, "{sequences} sequences, {step:?}, {chance}: {speedup}");
                }
            }
        }
        for (step, chance, least) in
            [(None, 0.3, 1.2), (None, 0.6, 1.8), (None, 0.9, 3.0), (Some(0.1), 0.6, 1.4)]
        {
            let speedup = Machine::new(step, 1).speedup(4, 1000, chance);
            assert!(speedup > least, "{step:?}, {chance}: {speedup}");
        }
    }

    #[test]
    fn drafts_that_are_never_accepted_are_tried_ever_more_rarely() {
        let mut machine = Machine::new(Some(0.3), 1);
        let mut length = machine.length(20);
        let lengths = machine.run(&mut length, 1000, 0.0).lengths;
        let tries: Vec<usize> = (0..lengths.len()).filter(|&round| lengths[round] > 0).collect();
        assert!(tries.len() <= 10, "{tries:?}");
        assert!(lengths.iter().all(|&length| length <= 2));
        let waits: Vec<usize> =
            tries.windows(2).map(|pair| pair[1] - pair[0]).filter(|&wait| wait > 1).collect();
        assert!(waits.windows(2).all(|pair| pair[1] + 2 >= (2 * pair[0]).min(WAITS.1)), "{tries:?}");
        // The next call goes on from there.
        let mut next = length.with_most(20);
        let lengths = machine.run(&mut next, 100, 0.0).lengths;
        assert!(lengths.iter().sum::<usize>() <= 1, "{lengths:?}");
    }

    #[test]
    fn what_was_never_drafted_is_tried_once() {
        let mut machine = Machine::new(None, 16);
        let mut length = machine.length(4);
        // Candidates that were looked up and found wrong without a check.
        (0..10).for_each(|_| length.checked(0, true));
        let lengths = machine.run(&mut length, 40, 0.0).lengths;
        assert_eq!(lengths.iter().filter(|&&length| length > 0).count(), 1, "{lengths:?}");
    }

    #[test]
    fn drafts_come_back_after_a_bad_stretch() {
        let mut machine = Machine::new(Some(0.1), 1);
        let mut length = machine.length(4);
        machine.run(&mut length, 100, 0.9);
        machine.run(&mut length, 100, 0.0);
        let run = machine.run(&mut length, 600, 0.9);
        let first = run.lengths.iter().position(|&length| length > 1).unwrap();
        assert!(first <= 2 * 128, "{:?}", run.lengths);
        let rest = &run.lengths[first..];
        let drafting = rest.iter().filter(|&&length| length > 0).count();
        assert!(drafting * 10 > rest.len() * 8, "{rest:?}");
    }

    #[test]
    fn drafts_grow_as_far_as_it_pays() {
        let mut machine = Machine::new(None, 1);
        machine.pass = |rows| 1.0 + 0.01 * rows as f64;
        let mut length = machine.length(20);
        let lengths = machine.run(&mut length, 1000, 1.0).lengths;
        assert!(lengths.iter().take(8).any(|&length| length == 20), "{lengths:?}");
        let full = lengths.iter().filter(|&&length| length == 20).count();
        assert!(full * 10 > lengths.len() * 8, "{lengths:?}");
        // A pass of more than 8 rows takes longer than what it would gain.
        let lengths = { Machine::new(None, 1).run(&mut Machine::new(None, 1).length(20), 1000, 0.7).lengths };
        let long = lengths.iter().filter(|&&length| length > 8).count();
        assert!(long * 10 < lengths.len(), "{lengths:?}");
    }

    #[test]
    fn a_request_among_many_counts_the_rows_of_all() {
        let tried = |sequences| {
            let mut machine = Machine::new(None, sequences);
            let mut length = machine.length(4);
            let lengths = machine.run(&mut length, 500, 0.5).lengths;
            lengths.iter().filter(|&&length| length > 0).count() * 100 / lengths.len()
        };
        assert!(tried(1) > 90 && tried(60) < 10, "{} {}", tried(1), tried(60));
    }

    #[test]
    fn a_request_among_many_does_not_draft_alone() {
        let tried = |drafting| {
            let mut machine = Machine::new(Some(0.1), 16);
            (machine.pass, machine.drafting) = (|rows| 1.0 + 0.01 * rows as f64, drafting);
            let mut length = machine.length(4);
            let lengths = machine.run(&mut length, 500, 0.9).lengths;
            lengths.iter().filter(|&&length| length > 0).count() * 100 / lengths.len()
        };
        assert!(tried(16) > 90 && tried(1) < 10, "{} {}", tried(16), tried(1));
    }

    #[test]
    fn an_assistant_that_became_slow_is_let_go_of_and_found_again() {
        let mut machine = Machine::new(Some(0.1), 1);
        let mut length = machine.length(4);
        let drafting = |run: &Run| run.lengths.iter().filter(|&&length| length > 0).count();
        machine.run(&mut length, 200, 0.8);
        machine.step = Some(3.0);
        let slow = machine.run(&mut length, 500, 0.8);
        assert!(drafting(&slow) < 20, "{:?}", slow.lengths);
        machine.step = Some(0.1);
        machine.run(&mut length, 1500, 0.8);
        let quick = machine.run(&mut length, 200, 0.8);
        assert!(drafting(&quick) * 10 > quick.lengths.len() * 8, "{:?}", quick.lengths);
    }
}
