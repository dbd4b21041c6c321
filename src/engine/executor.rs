//! The steps of a caller's requests: hands their rows in, waits for passes, and advances the searches.

use super::core::Engine;
use super::queue::{Caller, Interrupt};
use super::request::{Request, SearchScratch};
use rsgen_core::{Mutex, Result};
use rsgen_kernels::Work;
use rsgen_model::{Stage, Timing};

/// The logits from which on searches are worth the threads: it takes some ten microseconds to look through them.
const SHARED_LOGITS: usize = 1 << 16;

/// Runs the requests of one caller.
pub(super) struct Executor {
    pub(super) timing: Timing,
    /// The requests whose search advanced or failed in the last step, with the result.
    pub(super) advanced: Vec<(usize, Result<()>)>,
    caller: Caller,
    /// Memory that searches borrow, for each thread.
    scratch: Mutex<Vec<SearchScratch>>,
}

impl Executor {
    /// For the requests of one call.
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            timing: engine.timing(),
            advanced: Vec::new(),
            caller: engine.caller(),
            scratch: Mutex::default(),
        }
    }

    /// Waits until rows of some of the requests are computed, and advances those.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; `Fork`.
    pub(super) fn step(
        &mut self,
        engine: &Engine,
        requests: &mut [Request],
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        self.timing.start();
        self.advanced.clear();
        for request in &mut *requests {
            request.hand_in(&self.caller);
        }
        self.timing.lap(Stage::Prepare, Work::default);
        engine.wait(&self.caller, &mut self.timing, interrupted)?;
        self.search(engine, requests);
        // Another leader may compute the next step while the caller reads this one: at most one step ahead.
        for (index, result) in &self.advanced {
            if result.is_ok() && !requests[*index].stepped.finished {
                requests[*index].hand_in(&self.caller);
            }
        }
        self.timing.lap(Stage::Search, Work::default);
        Ok(())
    }
    /// Advances the searches whose rows are computed: those with many logits on all threads, but for those that call the
    /// caller's functions, which stay on the caller's thread.
    fn search(&mut self, engine: &Engine, requests: &mut [Request]) {
        let scratch = &self.scratch;
        let search = |request: &mut Request| {
            let mut own = scratch.lock().pop().unwrap_or_default();
            let found = request.search(&mut own);
            scratch.lock().push(own);
            found
        };
        for (index, request) in requests.iter_mut().enumerate() {
            match request.take_results() {
                Ok(false) => {}
                Ok(true) => self.advanced.push((index, Ok(()))),
                Err(error) => self.advanced.push((index, Err(error))),
            }
        }
        let num_logits = requests.iter().map(Request::num_logits).sum::<usize>();
        if self.advanced.len() > 1 && num_logits >= SHARED_LOGITS {
            engine.workers().for_each_chunk(requests, 1, |_, request| {
                if let [request] = request
                    && request.is_ready
                    && !request.calls_back
                {
                    request.found = Some(search(request));
                }
            });
        }
        for (index, result) in &mut self.advanced {
            let request = &mut requests[*index];
            if result.is_ok() {
                let found = request.found.take().unwrap_or_else(|| search(request));
                *result = found.and_then(|()| request.note_step());
            }
        }
    }
}
