//! Tests of the queue, of passes and of preemption under shuttle, which runs threads in many orders.
//!
//! The engine's `queue.rs`, `compose.rs`, `pass.rs`, `pass_logits.rs` and `residents.rs` are compiled a second time here, with
//! shuttle's locks and threads and with requests that only count rows and blocks: they name all that they use
//! as a sibling, `super::…`, and find the modules of this file. No wait times out here, so a wake-up that is
//! lost is a deadlock, which shuttle reports.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, unreachable_pub, reason = "code that only the engine uses")]
#![expect(
    clippy::unused_self,
    clippy::unit_arg,
    clippy::unnecessary_wraps,
    reason = "it stands for the engine's"
)]

#[path = "../src/engine/budget.rs"]
mod budget;
#[path = "../src/engine/compose.rs"]
mod compose;
#[path = "../src/engine/pass.rs"]
mod pass;
#[path = "../src/engine/pass_logits.rs"]
mod pass_logits;
#[path = "../src/engine/queue.rs"]
mod queue;
#[path = "../src/engine/residents.rs"]
mod residents;
#[path = "interleavings/sync.rs"]
mod sync;

use std::sync::Arc;

use self::compose::Task;
use self::pass::Scheduler;
use self::pending::{PendingRows, SharedRows};
use self::queue::{Caller, Ticket};
use self::slot::{ModelRunner, Slots};
use rsgen_core::error::{ErrorKind, Result};
use rsgen_generation::StepCost;
use rsgen_generation::search::ModelRole;
use rsgen_model::Timing;
use shuttle::rand::{Rng, thread_rng};

/// A model that computes nothing, and fails for some requests.
mod slot {
    use super::batching::BatchBuilder;
    use super::*;
    use rsgen_core::error::Error;
    use rsgen_model::{EncodeOutput, ForwardOutput};

    pub(super) struct ModelRunner {
        pub(super) role: ModelRole,
        /// The free blocks.
        pub(super) blocks: std::sync::Mutex<usize>,
        /// Whether a pass of several requests has failed, and none has succeeded since.
        pub(super) has_failed: std::sync::Mutex<bool>,
    }

    /// A model and a draft model.
    pub(super) struct Slots(pub(super) [Arc<ModelRunner>; 2]);

    impl ModelRunner {
        pub(super) fn is_same(&self, other: &Self) -> bool {
            std::ptr::eq(self, other)
        }

        pub(super) fn model(&self) {}

        pub(super) fn forward(
            &self,
            _slots: &Slots,
            batch: &BatchBuilder,
            copied: &mut dyn FnMut(),
            _timing: &mut Timing,
            interrupted: &mut dyn FnMut() -> bool,
            _out: &mut ForwardOutput,
        ) -> Result<()> {
            copied();
            for _ in 0..2 {
                shuttle::thread::yield_now();
                if interrupted() {
                    return Err(Error::cancelled());
                }
            }
            let mut has_failed = self.has_failed.lock().unwrap();
            assert!(
                !*has_failed || batch.requests == 1,
                "{} requests in a pass that may fail",
                batch.requests
            );
            *has_failed = batch.fails && (*has_failed || batch.requests > 1);
            if batch.fails { Err(Error::internal("on purpose")) } else { Ok(()) }
        }

        pub(super) fn encode(
            &self,
            slots: &Slots,
            batch: &BatchBuilder,
            timing: &mut Timing,
            interrupted: &mut dyn FnMut() -> bool,
            _out: &mut EncodeOutput,
        ) -> Result<()> {
            self.forward(slots, batch, &mut || (), timing, interrupted, &mut ForwardOutput::default())
        }

        /// Takes blocks if there are so many.
        pub(super) fn take_blocks(&self, count: usize) -> Result<()> {
            let mut blocks = self.blocks.lock().unwrap();
            *blocks = blocks.checked_sub(count).ok_or_else(|| Error::capacity("no blocks"))?;
            Ok(())
        }

        pub(super) fn give_blocks(&self, count: usize) {
            *self.blocks.lock().unwrap() += count;
        }
    }
}

mod batching {
    use rsgen_model::ForwardOutput;

    #[derive(Default)]
    pub(super) struct BatchBuilder {
        pub(super) rows: Vec<()>,
        pub(super) has_prompt: bool,
        pub(super) requests: usize,
        pub(super) fails: bool,
    }

    impl BatchBuilder {
        pub(super) fn clear(&mut self) {
            *self = Self::default();
        }

        pub(super) fn is_whole_step(&self) -> bool {
            !self.has_prompt
        }

        pub(super) fn num_rows(&self) -> usize {
            self.rows.len()
        }

        pub(super) fn num_sequences(&self) -> usize {
            self.rows.len()
        }
    }

    pub(super) struct PassOutputs;

    impl PassOutputs {
        pub(super) fn new(_out: &mut ForwardOutput, (): (), _batch: &BatchBuilder, _is_one: bool) -> Self {
            Self
        }

        pub(super) fn sharing(self, _shared: Option<std::sync::Arc<Vec<f32>>>) -> Self {
            self
        }
    }
}

/// Requests that count rows and blocks.
mod pending {
    use std::time::Duration;

    use super::batching::{BatchBuilder, PassOutputs};
    use super::sync::{Instant, Mutex};
    use super::*;
    use rsgen_generation::StepCost;
    use rsgen_model::{EncodeOutput, ForwardOutput};

    pub(super) type SharedRows = Arc<Mutex<PendingRows>>;

    pub(super) struct PendingRows {
        pub(super) age: u64,
        pub(super) is_streamed: bool,
        pub(super) is_blocked: bool,
        pub(super) last_pass: u64,
        pub(super) came: Option<u64>,
        pub(super) began: Option<u64>,
        pub(super) cost: StepCost,
        pub(super) runner: Arc<ModelRunner>,
        /// Whether it has sources, and those that are not encoded.
        pub(super) has_sources: bool,
        pub(super) sources: usize,
        /// The rows of the step that are left.
        pub(super) left: usize,
        /// The blocks that it needs, and those that it has.
        pub(super) needs: usize,
        pub(super) has: usize,
        /// Whether its passes fail.
        pub(super) fails: bool,
        pub(super) holds: Arc<()>,
    }

    impl PendingRows {
        pub(super) fn runner(&self) -> &Arc<ModelRunner> {
            &self.runner
        }

        pub(super) fn lend(&mut self, _: &mut ForwardOutput) {}

        pub(super) fn task(&self) -> Task {
            Task { role: self.runner.role, encodes: self.sources > 0 }
        }

        pub(super) fn is_prompt(&self) -> bool {
            self.sources > 0 || self.left > 1
        }

        pub(super) fn rows_left(&self) -> usize {
            self.left
        }

        pub(super) fn is_complete(&self) -> bool {
            self.left == 0
        }

        pub(super) fn add_rows(
            &mut self,
            task: Task,
            budget: usize,
            builder: &mut BatchBuilder,
        ) -> Result<usize> {
            self.is_blocked = true;
            self.runner.take_blocks(self.needs - self.has)?;
            (self.has, self.is_blocked) = (self.needs, false);
            let left = if task.encodes { self.sources } else { self.left };
            let rows = left.min(budget).min(1 + thread_rng().gen_range(0..2));
            builder.rows.extend(vec![(); rows]);
            builder.requests += 1;
            builder.fails |= self.fails;
            Ok(rows)
        }

        pub(super) fn copied(&mut self) {
            assert_eq!(self.has, self.needs, "a request in a pass was preempted");
        }

        pub(super) fn take(&mut self, rows: usize, _outputs: &mut PassOutputs) -> Result<()> {
            assert_eq!(self.has, self.needs, "a request in a pass was preempted");
            self.left -= rows;
            Ok(())
        }

        pub(super) fn adopt_sources(&mut self) {}

        pub(super) fn take_sources<P>(&mut self, _: &EncodeOutput, _: &mut [usize; 2], _: P) -> Result<()> {
            assert_eq!(self.has, self.needs, "a request in a pass was preempted");
            self.sources -= 1;
            Ok(())
        }

        pub(super) fn holds_blocks(&self) -> bool {
            self.has > 0
        }

        pub(super) fn keeps_blocks(&self) -> bool {
            false
        }

        pub(super) fn idle_for(&self) -> Duration {
            if self.is_complete() { Instant::now().elapsed() } else { Duration::ZERO }
        }

        pub(super) fn preempt(&mut self) {
            self.runner.give_blocks(std::mem::take(&mut self.has));
            self.sources = usize::from(self.has_sources);
        }
    }

    impl Drop for PendingRows {
        fn drop(&mut self) {
            shuttle::thread::yield_now();
            self.preempt();
        }
    }
}

/// What the requests of a test do besides going on to their ends.
#[derive(Clone, Copy, Default)]
struct Script {
    blocks: usize,
    /// Whether callers are interrupted, and leave in the middle.
    interrupts: bool,
    /// Whether some requests fail.
    fails: bool,
}

const THREADS: usize = 3;

struct Request {
    ticket: Option<Ticket>,
    rows: SharedRows,
    steps: usize,
}

impl Request {
    fn new(scheduler: &Scheduler, script: Script, age: u64) -> Self {
        let mut random = thread_rng();
        let needs = if script.blocks == 0 { 0 } else { 1 + random.gen_range(0..script.blocks) };
        let has_sources = random.gen_bool(0.3);
        let rows = PendingRows {
            age,
            is_streamed: random.gen_bool(0.5),
            is_blocked: false,
            last_pass: 0,
            came: None,
            began: None,
            cost: StepCost::default(),
            runner: Arc::clone(&scheduler.slots.0[random.gen_range(0..2)]),
            has_sources,
            sources: usize::from(has_sources),
            left: 0,
            needs,
            has: 0,
            fails: script.fails && random.gen_bool(0.3),
            holds: Arc::default(),
        };
        Self { ticket: None, rows: scheduler.residents.add(rows), steps: random.gen_range(1..4) }
    }

    fn hand_in(&mut self, caller: &Caller) {
        if self.ticket.is_none() && self.steps > 0 {
            self.rows.lock().left = thread_rng().gen_range(1..4);
            self.ticket = Some(caller.hand_in(&self.rows));
        }
    }

    /// Whether a step has ended. Nobody fails for another one.
    fn advance(&mut self) -> bool {
        let Some(result) = self.ticket.as_ref().and_then(Ticket::result) else { return false };
        self.ticket = None;
        let rows = self.rows.lock();
        match result {
            Ok(_) => assert!(rows.is_complete() && !rows.fails),
            Err(error) => assert!(rows.fails, "{error}"),
        }
        self.steps = if rows.fails { 0 } else { self.steps - 1 };
        true
    }
}

/// A call of one or two requests.
fn call(scheduler: &Scheduler, script: Script, age: u64) {
    let caller = Caller::new(&scheduler.queue);
    let mut requests: Vec<Request> =
        (0..thread_rng().gen_range(1..3)).map(|index| Request::new(scheduler, script, age + index)).collect();
    let mut timing = Timing::new(false);
    let mut interrupted = || script.interrupts && thread_rng().gen_bool(0.2);
    while !requests.is_empty() {
        for request in &mut requests {
            request.hand_in(&caller);
        }
        let waited = caller.wait(&mut timing, &mut interrupted, &mut |timing, interrupted| {
            scheduler.lead(caller.id, timing, interrupted)
        });
        if let Err(error) = waited {
            assert!(script.interrupts && error.kind() == ErrorKind::Cancelled, "{error}");
            return;
        }
        let advanced = requests.iter_mut().filter_map(|request| request.advance().then_some(())).count();
        assert!(advanced > 0, "a caller was woken for nothing");
        requests.retain(|request| request.steps > 0);
        // Some hand their next rows in before they read.
        if thread_rng().gen_bool(0.5) {
            for request in &mut requests {
                request.hand_in(&caller);
            }
        }
        shuttle::thread::yield_now();
    }
}

/// Threads that make calls: all end, whatever the order in which they run, and give everything back.
fn run(script: Script) {
    let models = [ModelRole::Target, ModelRole::Draft].map(|role| {
        let blocks = std::sync::Mutex::new(script.blocks);
        Arc::new(ModelRunner { role, blocks, has_failed: std::sync::Mutex::default() })
    });
    let scheduler = Arc::new(Scheduler::new(Slots(models)));
    let threads: Vec<_> = (0..THREADS as u64)
        .map(|thread| {
            let scheduler = Arc::clone(&scheduler);
            shuttle::thread::spawn(move || {
                for round in 0..2 {
                    call(&scheduler, script, 10 * round + thread);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut left = Vec::new();
    scheduler.queue.waiting(&mut left);
    assert!(left.is_empty());
    for model in &scheduler.slots.0 {
        assert_eq!(*model.blocks.lock().unwrap(), script.blocks);
    }
}

/// Chooses the next thread at random, and with few changes of the running one; `RSGEN_SCHEDULES` times each.
#[expect(clippy::print_stdout, reason = "what was tried, with --nocapture")]
fn check(script: Script) {
    let number = std::env::var("RSGEN_SCHEDULES").map_or(300, |number| number.parse().unwrap());
    shuttle::check_random(move || run(script), number);
    shuttle::check_pct(move || run(script), number, 3);
    println!("{} schedules", 2 * number);
}

#[test]
fn all_calls_are_served() {
    check(Script::default());
}

#[test]
fn an_interrupted_caller_leaves_the_others_served() {
    check(Script { interrupts: true, ..Script::default() });
}

#[test]
fn a_failing_request_fails_alone() {
    check(Script { fails: true, ..Script::default() });
    check(Script { fails: true, interrupts: true, ..Script::default() });
}

#[test]
fn requests_that_take_turns_with_the_blocks_all_end() {
    check(Script { blocks: 2, ..Script::default() });
    check(Script { blocks: 3, interrupts: true, fails: true });
}

#[test]
fn a_wake_up_that_is_lost_is_found() {
    sync::thread::LOSES_WAKE_UPS.set(true);
    let found = std::panic::catch_unwind(|| check(Script::default())).unwrap_err();
    let found = found.downcast_ref::<String>().map(String::as_str);
    assert!(found.is_some_and(|message| message.contains("deadlock")), "{found:?}");
}
