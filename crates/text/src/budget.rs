//! What encoding and decoding may take: the length of a text, and the time until the caller gives up.
//!
//! The `tokenizers` crate holds a text as two strings with 16 bytes of alignment for each byte, copies parts
//! of it for each stage, and keeps a few hundred bytes for each part and token.

use std::cell::{Cell, RefCell};

use rsgen_core::error::{Error, Result};

/// The most bytes of a text, in UTF-8, before it is encoded and when it is normalized and split. The crate
/// takes up to 300 times as much memory, usually 100 times.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The bytes of work between two polls: less than a millisecond.
const BYTES_PER_POLL: usize = 4096;

/// The budget of one encoding or decoding.
pub(super) struct Budget<'a> {
    interrupted: RefCell<&'a mut dyn FnMut() -> bool>,
    /// The bytes since the last poll.
    unpolled: Cell<usize>,
    /// Whether the caller has given up.
    is_interrupted: Cell<bool>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Self {
            interrupted: RefCell::new(interrupted),
            unpolled: Cell::new(BYTES_PER_POLL),
            is_interrupted: Cell::new(false),
        }
    }

    /// Counts work on some bytes, and polls now and then.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(super) fn work(&self, bytes: usize) -> Result<()> {
        let unpolled = self.unpolled.get().saturating_add(bytes).saturating_add(16);
        self.unpolled.set(unpolled);
        if unpolled < BYTES_PER_POLL { self.check() } else { self.poll() }
    }

    /// Asks the caller, unless it has given up before.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(super) fn poll(&self) -> Result<()> {
        self.check()?;
        self.unpolled.set(0);
        self.is_interrupted.set((self.interrupted.borrow_mut())());
        self.check()
    }

    /// Fails if the last poll was an interrupt.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_interrupted.get() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// Refuses a text that has more bytes than are encoded at a time.
///
/// # Errors
/// `Input`.
pub(super) fn check_length(bytes: usize) -> Result<()> {
    if bytes > MAX_TEXT_BYTES {
        return Err(Error::input(format!(
            "at most {MAX_TEXT_BYTES} bytes of text are encoded at a time, counted as the tokenizer normalizes and \
             splits it, found up to {bytes}; shorten it or encode it in parts"
        )));
    }
    Ok(())
}
