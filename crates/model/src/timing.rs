//! A per-stage profile of passes.
//!
//! Each [`Timing::lap`] adds the time since the last one to a stage, so that no time is lost between stages.
//! A profile that is off costs a branch per stage and never reads the clock.

use std::time::{Duration, Instant};

use rsgen_kernels::Work;

/// Makes the enum and its table.
macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident $name:literal)*) => {
        /// The stages of a pass, in order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// All stages.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$stage),*];

            /// The name that reports use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$stage => $name,)* }
            }
        }
    };
}

stages! {
    /// Searches request rows; block tables grow.
    Prepare "prepare"
    /// Passes of other calls.
    Wait "wait"
    /// The cache takes memory, and blocks that are written to are copied.
    Cache "cache"
    /// Token ids become hidden states.
    Embedding "embedding"
    /// The query, key and value projections: a matrix with normalized inputs.
    Qkv "qkv"
    /// Normalized heads, rotary embedding, keys and values to the cache.
    RopeKv "rope_kv"
    /// Attention over the cache.
    Attention "attention"
    /// The output projection of attention: a matrix.
    Output "output"
    /// The gate and up projections of the MLP, a matrix with normalized inputs, and the activation.
    GateUp "gate_up"
    /// The down projection of the MLP: a matrix.
    Down "down"
    /// The router and the experts of a mixture: matrices.
    Experts "experts"
    /// Hidden states become logits: a matrix.
    Head "head"
    /// Logits become tokens: processors, choice, stopping.
    Search "search"
}

/// The kinds of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassKind {
    /// Of an encoder, over whole sources.
    Encoder,
    /// With rows of a prompt.
    Prompt,
    /// With new tokens only.
    Step,
    /// Of the draft model.
    Draft,
}

/// The stopwatch of a call's passes.
#[derive(Debug, Default)]
pub struct Timing(Option<Box<Stopwatch>>);

#[derive(Debug)]
struct Stopwatch {
    last: Instant,
    kind: PassKind,
    /// By [`PassKind`].
    times: [PassTimes; 4],
}

/// The times of passes of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassTimes {
    /// The passes.
    pub passes: u64,
    /// The rows of all passes.
    pub rows: u64,
    /// By [`Stage`].
    pub stages: [StageTime; Stage::ALL.len()],
}

/// The time of one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTime {
    /// How often it ran.
    pub count: u64,
    /// The total time.
    pub elapsed: Duration,
    /// The bytes read and operations computed.
    pub work: Work,
}

impl Timing {
    /// A stopwatch that is on or off.
    pub fn new(is_on: bool) -> Self {
        let stopwatch = || {
            let (last, times) = (Instant::now(), std::array::from_fn(|_| PassTimes::default()));
            Box::new(Stopwatch { last, kind: PassKind::Step, times })
        };
        Self(is_on.then(stopwatch))
    }

    /// Starts a pass; earlier time is not counted.
    pub fn start(&mut self) {
        if let Some(watch) = &mut self.0 {
            watch.last = Instant::now();
        }
    }

    /// Sets the kind and the number of rows of the pass.
    pub fn pass(&mut self, kind: PassKind, rows: usize) {
        if let Some(watch) = &mut self.0 {
            watch.kind = kind;
            let times = &mut watch.times[kind as usize];
            times.passes += 1;
            times.rows += rows as u64;
        }
    }

    /// Adds the time since the last lap to a stage. `work` returns what the stage read and computed; it is
    /// not called when the stopwatch is off.
    #[inline]
    pub fn lap(&mut self, stage: Stage, work: impl FnOnce() -> Work) {
        if let Some(watch) = &mut self.0 {
            watch.lap(stage, work);
        }
    }

    /// The times of passes of a kind; `None` without any, or when the stopwatch is off.
    pub fn times(&self, kind: PassKind) -> Option<&PassTimes> {
        self.0.as_ref().map(|watch| &watch.times[kind as usize]).filter(|times| times.passes > 0)
    }
}

impl Stopwatch {
    #[cold]
    fn lap(&mut self, stage: Stage, work: impl FnOnce() -> Work) {
        let elapsed = self.last.elapsed();
        let time = &mut self.times[self.kind as usize].stages[stage as usize];
        time.count += 1;
        time.elapsed += elapsed;
        time.work += work();
        // The time that `work` takes belongs to no stage.
        self.last = Instant::now();
    }
}

impl PassTimes {
    /// The time of all stages together.
    pub fn total(&self) -> Duration {
        self.stages.iter().map(|time| time.elapsed).sum()
    }

    /// The stages that ran, in the order of a pass.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, &StageTime)> {
        Stage::ALL.into_iter().zip(&self.stages).filter(|(_, time)| time.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_stand_at_their_places() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place, "{}", stage.name());
        }
    }

    #[test]
    fn a_lap_gets_the_time_since_the_last_one_and_the_work() {
        let begin = Instant::now();
        let mut timing = Timing::new(true);
        std::thread::sleep(Duration::from_millis(20));
        timing.start();
        timing.pass(PassKind::Prompt, 7);
        std::thread::sleep(Duration::from_millis(3));
        timing.lap(Stage::Qkv, || {
            std::thread::sleep(Duration::from_millis(20));
            Work { bytes: 5, ..Work::default() }
        });
        timing.lap(Stage::Embedding, Work::default);
        timing.lap(Stage::Qkv, || Work { bytes: 6, f32_flops: 2, bf16_flops: 1, int8_ops: 0 });

        let times = timing.times(PassKind::Prompt).unwrap();
        assert_eq!((times.passes, times.rows), (1, 7));
        let [(embedding, embedded), (qkv, projected)] = times.stages().collect::<Vec<_>>()[..] else {
            panic!("{times:?}")
        };
        assert_eq!((embedding, embedded.count, qkv, projected.count), (Stage::Embedding, 1, Stage::Qkv, 2));
        assert_eq!(projected.work, Work { bytes: 11, f32_flops: 2, bf16_flops: 1, int8_ops: 0 });
        assert!(projected.elapsed >= Duration::from_millis(3), "{times:?}");
        let counted = times.total() + Duration::from_millis(40);
        assert!(
            counted <= begin.elapsed(),
            "neither the time before the start nor that of `work`: {times:?}"
        );
        for other in [PassKind::Encoder, PassKind::Step, PassKind::Draft] {
            assert_eq!(timing.times(other), None);
        }
    }

    #[test]
    fn a_stopwatch_that_is_off_asks_nothing() {
        let mut timing = Timing::default();
        timing.start();
        timing.pass(PassKind::Step, 1);
        timing.lap(Stage::Head, || panic!("nobody wants to know"));
        assert_eq!(timing.times(PassKind::Step), None);
    }
}
