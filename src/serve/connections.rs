//! The open connections of a server and their stages. At the limit, the one that has been idle for longest is
//! closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::AbortHandle;

use rsgen_core::sync::Mutex;

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// It waits for its next request.
    Idle,
    /// The head of a request is on its way.
    Head,
    /// The head has arrived; the body may be on its way.
    Reading,
    /// The server computes for it.
    Busy,
    /// The answer is being sent.
    Answering,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Idle, Self::Head, Self::Reading, Self::Busy, Self::Answering];
}

/// The open connections.
#[derive(Debug, Clone)]
pub(super) struct Connections(Arc<Registry>);

#[derive(Debug)]
struct Registry {
    open: Mutex<Open>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Open {
    /// The task and the state of each connection, by its number.
    tasks: HashMap<u64, (AbortHandle, Arc<State>)>,
    next: u64,
}

#[derive(Debug, Default)]
struct State {
    stage: AtomicU8,
    /// When the stage began, in microseconds after the start of the server.
    since: AtomicU64,
    flags: [AtomicBool; 3],
}

/// What else is known of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Flag {
    /// Its client has read nothing for too long.
    Stalled,
    /// An interim response may be sent: its client speaks HTTP/1.1, and no answer has begun.
    Interim,
    /// A stream has to send something, to find out whether its client is still there.
    Ping,
}

/// A connection, as its request sees it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    connections: Connections,
    state: Arc<State>,
}

/// A connection that is busy, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Connection);

impl Connections {
    pub(super) fn new() -> Self {
        Self(Arc::new(Registry { open: Mutex::default(), started: Instant::now() }))
    }

    pub(super) fn len(&self) -> usize {
        self.0.open.lock().tasks.len()
    }

    /// A connection that sends its first request.
    pub(super) fn connection(&self) -> Connection {
        let connection = Connection { connections: self.clone(), state: Arc::default() };
        connection.set(Stage::Head);
        connection
    }

    /// Starts the task of a connection.
    pub(super) fn spawn<F: Future + Send + 'static>(&self, serve: impl FnOnce(Connection) -> F)
    where
        F::Output: Send,
    {
        let connection = self.connection();
        let state = Arc::clone(&connection.state);
        let served = serve(connection);
        let mut open = self.0.open.lock();
        let (number, connections) = (open.next, self.clone());
        let task = tokio::spawn(async move {
            let _removed = Removed(connections, number);
            // Its errors are those of the client, who is gone.
            let _ = served.await;
        });
        open.next += 1;
        open.tasks.insert(number, (task.abort_handle(), state));
    }

    /// Closes the connection that has been in its stage for longest, of those that the server does not
    /// compute for. Returns whether there was one.
    pub(super) fn close_oldest(&self) -> bool {
        let mut open = self.0.open.lock();
        let closable = open.tasks.iter().filter(|(_, (_, state))| state.stage() != Stage::Busy);
        let oldest = closable.min_by_key(|(_, (_, state))| state.since.load(Ordering::Relaxed));
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        abort(&mut open, number);
        true
    }

    /// Closes all connections whose request has not arrived.
    pub(super) fn close_unheard(&self) {
        let mut open = self.0.open.lock();
        let unheard =
            open.tasks.iter().filter(|(_, (_, state))| matches!(state.stage(), Stage::Head | Stage::Reading));
        for number in unheard.map(|(number, _)| *number).collect::<Vec<_>>() {
            abort(&mut open, number);
        }
    }
}

fn abort(open: &mut Open, number: u64) {
    if let Some((task, _)) = open.tasks.remove(&number) {
        task.abort();
    }
}

/// Forgets a connection when its task ends, also by a panic.
struct Removed(Connections, u64);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.0.open.lock().tasks.remove(&self.1);
    }
}

impl State {
    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }
}

impl Connection {
    pub(super) fn stage(&self) -> Stage {
        self.state.stage()
    }

    pub(super) fn set(&self, stage: Stage) {
        let since = self.connections.0.started.elapsed().as_micros() as u64;
        self.state.since.store(since, Ordering::Relaxed);
        self.state.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Sets a flag, and returns what it was.
    pub(super) fn flag(&self, flag: Flag, is_set: bool) -> bool {
        self.state.flags[flag as usize].swap(is_set, Ordering::Relaxed)
    }

    /// Enters a stage from another one, unless it is in a third.
    pub(super) fn change(&self, from: Stage, to: Stage) {
        if self.stage() == from {
            self.set(to);
        }
    }

    pub(super) fn into_busy(self) -> Busy {
        self.set(Stage::Busy);
        Busy(self)
    }
}

impl Busy {
    /// Whether its client has read nothing for too long.
    pub(super) fn is_stalled(&self) -> bool {
        self.0.state.flags[Flag::Stalled as usize].load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(Stage::Busy, Stage::Answering);
    }
}
