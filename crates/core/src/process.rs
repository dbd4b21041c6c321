//! The process that owns threads and locks.
//!
//! A fork copies the memory and the one thread that forks. What the other threads were doing stops in the
//! middle, and a lock that one of them held stays locked for ever. So every owner of threads or locks keeps
//! the id of the process that made it, and checks that before it uses them. Nothing here waits, and no code
//! has to run at a fork.

use crate::error::{Error, Result};

/// The id of the process that made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerPid(u32);

impl OwnerPid {
    /// The current process.
    pub fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether the owner is the current process.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Refuses what only the owner can do.
    ///
    /// # Errors
    /// `Fork` in every other process.
    pub fn check(self) -> Result<()> {
        let Self(here) = Self::current();
        if self.0 == here {
            return Ok(());
        }
        Err(Error::fork(format!(
            "a Generator of process {} cannot compute in process {here}, which was forked from it: a fork copies neither its \
             threads nor what they were doing; open a new Generator in the forked process, or start processes by spawn \
             or forkserver",
            self.0
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn another_process_is_refused_with_the_remedy() {
        OwnerPid::current().check().unwrap();
        let foreign = OwnerPid(std::process::id() + 1);
        assert!(!foreign.is_current());
        let error = foreign.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fork);
        for part in ["open a new Generator", "spawn", "forkserver", &std::process::id().to_string()] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
