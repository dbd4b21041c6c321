//! The process that threads and locks belong to.
//!
//! A fork copies the memory and the one thread that forks. What the other threads were doing stops in the middle, and a
//! lock that one of them held stays locked for ever. So whatever owns threads or locks keeps the process it was made in,
//! and asks before it uses them. Nothing here waits, and nobody has to be told of a fork.

use crate::error::{Error, Result};

/// The process that something was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is that process.
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Refuses what only that process can do.
    ///
    /// # Errors
    /// `Fork` in every other process.
    pub(crate) fn check(self) -> Result<()> {
        let Self(here) = Self::here();
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
        Home::here().check().unwrap();
        let foreign = Home(std::process::id() + 1);
        assert!(!foreign.is_here());
        let error = foreign.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fork);
        for part in ["open a new Generator", "spawn", "forkserver", &std::process::id().to_string()] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
