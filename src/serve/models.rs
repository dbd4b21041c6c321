//! The models of a server by their names: each is loaded when a request needs it, and unloaded for another one or after
//! an idle time, first the one that has not been used for longest. One that is in use stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

use super::app::App;
use super::failure::{self, Failure};
use super::metrics::{ModelMetrics, Refused};
use super::served::{Open, ServedModel};
use super::state::{Phase, ServerState};
use crate::generator::Generator;
use rsgen_core::error::{Error, ErrorKind, Result};
use rsgen_core::escape;
use rsgen_core::sync::{Mutex, MutexGuard};
use rsgen_model::weights::memory_limit;

/// The name that `huggingface_hub` sends when its caller names no model.
pub(super) const NO_MODEL: &str = "dummy";
/// What a name has where Ollama tells several of a kind apart.
pub(super) const TAG: &str = ":latest";
/// How often a load that waits for room looks for it.
const LOOK: Duration = Duration::from_millis(100);
/// The most names in an error.
const MAX_NAMES: usize = 32;

/// All models of a server; the first is that of requests which name none.
pub(super) struct Models {
    pub(super) state: Arc<ServerState>,
    entries: Vec<Entry>,
    /// The names in the order of the entries.
    names: Arc<[String]>,
    slots: Mutex<Vec<Slot>>,
    /// Changes when a model is loaded, released or unloaded, or is to stay for another time.
    changed: watch::Sender<()>,
    /// Held by the load that runs: one at a time, so that each sees what memory the others took.
    loading: Mutex<()>,
    /// Whether the models stay: one alone does, unless there is a `keep_alive`.
    stay: bool,
}

/// What is known of a model whether it is loaded or not.
pub(super) struct Entry {
    pub(super) name: String,
    /// The estimated bytes of memory.
    pub(super) bytes: u64,
    pub(super) adapters: Vec<String>,
    open: Option<Arc<Open>>,
    pub(super) loads: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) unloads: AtomicU64,
    pub(super) metrics: Arc<ModelMetrics>,
}

/// What a load came to: the model, in use until all who waited have it.
type Outcome = Option<Result<Arc<App>, Failure>>;

enum Slot {
    Unloaded,
    Loading(watch::Receiver<Outcome>),
    Loaded(Kept),
}

/// A loaded model.
struct Kept {
    /// The model without a lease.
    app: Arc<App>,
    /// What its requests share while there are any.
    in_use: Weak<App>,
    /// When its last request ended.
    used: Instant,
    /// How long it stays without a request; `None`: until another one needs its memory.
    keep_alive: Option<Duration>,
}

/// A model's state, as lists of models tell it.
pub(super) enum Status {
    Unloaded,
    Loading,
    /// Loaded, and when it is unloaded if no request comes; the model is not in use by this.
    Loaded(Arc<App>, Option<Instant>),
}

impl Status {
    /// The word that llama-server has for it.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded(..) => "loaded",
        }
    }

    pub(super) fn app(&self) -> Option<&Arc<App>> {
        match self {
            Self::Loaded(app, _) => Some(app),
            _ => None,
        }
    }
}

/// Keeps a model loaded until it is dropped.
pub(super) struct Lease {
    models: Arc<Models>,
    index: usize,
}

impl Lease {
    /// How long the model stays without a request from now on.
    pub(super) fn keep_alive(&self, time: Option<Duration>) {
        if let Slot::Loaded(kept) = &mut self.models.slots.lock()[self.index] {
            kept.keep_alive = time;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Slot::Loaded(kept) = &mut self.models.slots.lock()[self.index] {
            kept.used = Instant::now();
        }
        self.models.changed.send_replace(());
    }
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Models {
    /// Begins to serve: requests are accepted from now on.
    ///
    /// # Errors
    /// `Config` when there is no model, when two have one name, or when one is larger than the budget for all.
    pub(super) fn new(state: Arc<ServerState>, models: Vec<ServedModel>) -> Result<Arc<Self>> {
        let options = &state.options;
        let wrong = |why: String| Err(Error::config(why).about("model"));
        if models.is_empty() {
            return wrong("must name at least one".to_owned());
        }
        for (index, ServedModel { name, bytes, .. }) in models.iter().enumerate() {
            if models[..index].iter().any(|other| other.name == *name) {
                return wrong(format!(
                    "has the name {name:?} twice; give each model its own, as in small=path"
                ));
            }
            if let Some(most) = options.models_memory.filter(|most| bytes > most) {
                return Err(Error::config(format!(
                    "must be at least the {bytes} bytes that {name:?} takes, but is {most}"
                ))
                .about("models_memory"));
            }
        }
        Ok(Self::of(state, models))
    }

    fn of(state: Arc<ServerState>, models: Vec<ServedModel>) -> Arc<Self> {
        let names: Arc<[String]> = models.iter().map(|model| model.name.clone()).collect();
        let stay = models.len() == 1 && state.options.keep_alive.is_none();
        let (mut entries, mut slots) = (Vec::new(), Vec::new());
        for ServedModel { name, bytes, adapters, open, loaded } in models {
            let metrics = Arc::<ModelMetrics>::default();
            slots.push(loaded.map_or(Slot::Unloaded, |generator| {
                let app = App::new(Arc::clone(&state), generator, name.clone(), Arc::clone(&names));
                Slot::Loaded(Kept::new(app.with_metrics(&metrics)))
            }));
            let [loads, failures, unloads] = [0; 3].map(AtomicU64::new);
            entries.push(Entry { name, bytes, adapters, open, loads, failures, unloads, metrics });
        }
        state.enter(Phase::Serving);
        let (changed, _) = watch::channel(());
        let slots = Mutex::new(slots);
        Arc::new(Self { state, entries, names, slots, changed, loading: Mutex::default(), stay })
    }

    /// A loaded model by itself.
    pub(super) fn one(state: Arc<ServerState>, generator: Generator) -> Arc<Self> {
        let model = ServedModel::loaded(state.options.served_model_name.as_deref(), generator);
        Self::of(state, vec![model])
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Each model and its state. This is no use of it.
    pub(super) fn all(&self) -> Vec<(&Entry, Status)> {
        let slots = self.slots.lock();
        let status = |slot: &Slot| match slot {
            Slot::Unloaded => Status::Unloaded,
            Slot::Loading(_) => Status::Loading,
            Slot::Loaded(kept) => {
                let ends = kept.keep_alive.filter(|_| !self.stay).and_then(|time| {
                    let since = if kept.is_idle() { kept.used } else { Instant::now() };
                    since.checked_add(time)
                });
                Status::Loaded(Arc::clone(&kept.app), ends)
            }
        };
        self.entries.iter().zip(slots.iter().map(status)).collect()
    }

    /// The model that a request names, once it is loaded; the first if it names none. It stays while the answer lives.
    ///
    /// # Errors
    /// 404 for an unknown name; the error of loading it; 503 when there is no room for it, because others are in use.
    pub(super) async fn named(self: &Arc<Self>, name: Option<&str>) -> Result<Arc<App>, Failure> {
        self.get(self.index_of(name)?).await
    }

    /// The place of the model that a request means. A single one is meant by every name: it says itself which are its.
    fn index_of(&self, name: Option<&str>) -> Result<usize, Failure> {
        let named = name.filter(|name| !["", NO_MODEL].contains(name) && self.entries.len() > 1);
        let Some(name) = named else { return Ok(0) };
        let found = self.find(name).or_else(|| self.find(name.strip_suffix(TAG)?));
        found.ok_or_else(|| {
            let all = self.entries.iter().flat_map(|Entry { name, adapters, .. }| {
                let adapted = adapters.iter().map(move |adapter| format!("{name}:{adapter}"));
                std::iter::once(name.clone()).chain(adapted)
            });
            not_served(name, all)
        })
    }

    /// The model of this id, which may be `model`, `model:adapter` or an adapter of one of them.
    fn find(&self, id: &str) -> Option<usize> {
        let position = |is: &dyn Fn(&Entry) -> bool| self.entries.iter().position(is);
        let with_adapter = || {
            let begins =
                |entry: &Entry| id.strip_prefix(&*entry.name).is_some_and(|rest| rest.starts_with(':'));
            let those = self.entries.iter().enumerate().filter(|(_, entry)| begins(entry));
            those.max_by_key(|(_, entry)| entry.name.len()).map(|(index, _)| index)
        };
        position(&|entry| entry.name == id)
            .or_else(with_adapter)
            .or_else(|| position(&|entry| entry.adapters.iter().any(|adapter| adapter == id)))
    }

    async fn get(self: &Arc<Self>, index: usize) -> Result<Arc<App>, Failure> {
        let mut outcome = {
            let mut slots = self.slots.lock();
            match &mut slots[index] {
                Slot::Loaded(kept) => return Ok(self.lease(index, kept)),
                Slot::Loading(outcome) => outcome.clone(),
                slot @ Slot::Unloaded => {
                    let (sender, outcome) = watch::channel(None);
                    *slot = Slot::Loading(outcome.clone());
                    let models = Arc::clone(self);
                    // It goes on when those who wait for it leave: the next request finds the model.
                    spawn_blocking(move || models.load(index, &sender));
                    outcome
                }
            }
        };
        let told = async { outcome.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()) };
        tokio::select! {
            told = told => told.unwrap_or_else(|| Err(Error::cancelled().into())),
            () = self.state.reached(Phase::Ended) => Err(Error::cancelled().into()),
        }
    }

    /// A loaded model in use.
    fn lease(self: &Arc<Self>, index: usize, kept: &mut Kept) -> Arc<App> {
        kept.in_use.upgrade().unwrap_or_else(|| {
            let app = Arc::new(kept.app.leased(Lease { models: Arc::clone(self), index }));
            kept.in_use = Arc::downgrade(&app);
            app
        })
    }

    /// Loads a model, on a thread that may block, and tells those who wait for it.
    fn load(self: &Arc<Self>, index: usize, outcome: &watch::Sender<Outcome>) {
        // Held until the model has its slot, where the next load counts it.
        let (_alone, opened) = match self.make_room(index) {
            Ok(alone) => {
                let opened = catch_unwind(AssertUnwindSafe(|| self.open(index)));
                (Some(alone), opened.unwrap_or_else(|_| Err(self.state.panicked())))
            }
            Err(failure) => (None, Err(failure)),
        };
        let told = {
            let mut slots = self.slots.lock();
            let (slot, told) = match opened {
                Ok(app) => {
                    let mut kept = Kept::new(app);
                    let app = self.lease(index, &mut kept);
                    (Slot::Loaded(kept), Ok(app))
                }
                Err(failure) => {
                    self.entries[index].failures.fetch_add(1, Ordering::Relaxed);
                    (Slot::Unloaded, Err(failure))
                }
            };
            slots[index] = slot;
            told
        };
        outcome.send_replace(Some(told));
        self.changed.send_replace(());
    }

    fn open(&self, index: usize) -> Result<App, Failure> {
        let Entry { name, open, loads, metrics, .. } = &self.entries[index];
        let open =
            open.as_ref().ok_or_else(|| Failure::internal(format!("{name:?} cannot be loaded again")))?;
        let started = Instant::now();
        let opened = open(&mut || self.state.phase() == Phase::Ended);
        let generator = opened.map_err(|error| self.not_loaded(name, error))?;
        let app = App::new(Arc::clone(&self.state), generator, name.clone(), Arc::clone(&self.names));
        let app = app.with_metrics(metrics);
        loads.fetch_add(1, Ordering::Relaxed);
        log::info!(target: "rsgen::serve", "loaded {name:?} in {:.1} s", started.elapsed().as_secs_f64());
        Ok(app)
    }

    /// The failure for a model that could not be loaded, which is no defect of the server. Its message may name paths.
    fn not_loaded(&self, name: &str, error: Error) -> Failure {
        let why = failure::told(&error);
        if error.kind() == ErrorKind::Cancelled {
            return error.into();
        }
        log::error!(target: "rsgen::serve", "cannot load {name:?}: {}", escape::message(&why));
        let why = if self.state.is_private() { &why } else { "the log of the server says why" };
        let message = format!("the model {name:?} cannot be loaded: {why}");
        match error.kind() {
            ErrorKind::Capacity => self.state.places.refusal(Refused::Capacity, message),
            _ => Failure::internal(message).with_code("model_not_loaded"),
        }
    }

    /// Unloads models that are not in use until there is room for one more, and waits until it is so. Others are loaded
    /// meanwhile if there is room for them. Returns the lock of the load that runs.
    fn make_room(&self, index: usize) -> Result<MutexGuard<'_, ()>, Failure> {
        let patience = self.state.options.queue_timeout;
        let (mut changed, until) = (self.changed.subscribe(), Instant::now() + patience);
        loop {
            let alone = self.loading.lock();
            changed.mark_unchanged();
            let memory = self
                .state
                .options
                .models_memory
                .map_or_else(|| memory_limit().map(|limit| limit.value), Some);
            let unloaded = {
                let mut slots = self.slots.lock();
                if self.has_room(&slots, index, memory, &[]) {
                    drop(slots);
                    return Ok(alone);
                }
                let idle = slots.iter().enumerate().filter_map(|(index, slot)| match slot {
                    Slot::Loaded(kept) if kept.is_idle() && self.entries[index].open.is_some() => {
                        Some((kept.used, index))
                    }
                    _ => None,
                });
                let mut idle: Vec<(Instant, usize)> = idle.collect();
                idle.sort_unstable();
                let idle: Vec<usize> = idle.into_iter().map(|(_, index)| index).collect();
                // None of them goes in vain.
                let helps = self.has_room(&slots, index, memory, &idle);
                idle.first().filter(|_| helps).map(|oldest| self.unload(&mut slots, *oldest))
            };
            // Dropping it returns its memory, which takes its time.
            if unloaded.map(drop).is_some() {
                continue;
            }
            drop(alone);
            // Other programs return memory, too, and tell nobody.
            let left = until.saturating_duration_since(Instant::now()).min(LOOK);
            let _ = Handle::current().block_on(timeout(left, changed.changed()));
            if self.state.phase() == Phase::Ended {
                return Err(Error::cancelled().into());
            }
            if Instant::now() >= until {
                let message = format!(
                    "the model {:?} waited {} seconds for room: the loaded models are in use; come again later",
                    self.entries[index].name,
                    patience.as_secs_f32()
                );
                return Err(self.state.places.refusal(Refused::Capacity, message));
            }
        }
    }

    /// Whether a model may be loaded beside those that are, once the models of `gone` are unloaded. By itself it may: the
    /// loader says what it lacks.
    fn has_room(&self, slots: &[Slot], index: usize, memory: Option<u64>, gone: &[usize]) -> bool {
        let stays = |index: &usize| matches!(slots[*index], Slot::Loaded(_)) && !gone.contains(index);
        let (count, bytes) = (0..slots.len())
            .filter(stays)
            .fold((0, 0), |(count, bytes), index| (count + 1, bytes + self.entries[index].bytes));
        let options = &self.state.options;
        let has_place = options.models_max.is_none_or(|most| count < most);
        // What the system has left does not hold what the others take.
        let taken = if options.models_memory.is_some() { bytes } else { 0 };
        // How much the system gets back is found out by doing it.
        let is_open = options.models_memory.is_none() && !gone.is_empty();
        let fits = is_open || memory.is_none_or(|memory| taken + self.entries[index].bytes <= memory);
        count == 0 || has_place && fits
    }

    /// Takes a model away, whose memory is free when the answer is dropped.
    fn unload(&self, slots: &mut [Slot], index: usize) -> Slot {
        let Entry { name, unloads, .. } = &self.entries[index];
        unloads.fetch_add(1, Ordering::Relaxed);
        log::info!(target: "rsgen::serve", "unloaded {name:?}");
        std::mem::replace(&mut slots[index], Slot::Unloaded)
    }

    /// Unloads models after their idle time, as long as the server lives.
    pub(super) async fn unload_idle(self: Arc<Self>) {
        if self.stay {
            return;
        }
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let (idle, next) = self.take_idle(Instant::now());
            if !idle.is_empty() {
                spawn_blocking(move || drop(idle));
                self.changed.send_replace(());
            }
            let next = async {
                match next {
                    Some(next) => sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = next => {}
                _ = changed.changed() => {}
                () = self.state.reached(Phase::Ended) => return,
            }
        }
    }

    /// The models whose idle time is over, and when that of the next one is.
    fn take_idle(&self, now: Instant) -> (Vec<Slot>, Option<Instant>) {
        let mut slots = self.slots.lock();
        let ends: Vec<(usize, Instant)> = slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match slot {
                Slot::Loaded(kept) if kept.is_idle() && self.entries[index].open.is_some() => {
                    Some((index, kept.used.checked_add(kept.keep_alive?)?))
                }
                _ => None,
            })
            .collect();
        let next = ends.iter().map(|(_, end)| *end).filter(|end| *end > now).min();
        let over = ends.into_iter().filter(|(_, end)| *end <= now);
        (over.map(|(index, _)| self.unload(&mut slots, index)).collect(), next)
    }
}

impl Kept {
    fn new(app: App) -> Self {
        let keep_alive = app.state.options.keep_alive;
        Self { app: Arc::new(app), in_use: Weak::new(), used: Instant::now(), keep_alive }
    }

    fn is_idle(&self) -> bool {
        self.in_use.strong_count() == 0
    }
}

/// The failure for a name that no model has.
pub(super) fn not_served(name: &str, ids: impl Iterator<Item = String>) -> Failure {
    let ids: Vec<String> = ids.take(MAX_NAMES).map(|id| format!("{id:?}")).collect();
    let message =
        format!("the model {name:?} is not served here; it is {}, or leave `model` out", ids.join(", "));
    Failure::not_found("model_not_found", message)
}
