//! The open connections of a server, and what each one does.

/// A connection, as its request sees it.
#[derive(Debug, Clone)]
pub(super) struct Connection;

/// A connection that is busy, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy;

impl Connection {
    pub(super) fn into_busy(self) -> Busy {
        Busy
    }
}
