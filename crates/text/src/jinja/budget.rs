//! The budget of a rendering. minijinja's fuel counts instructions; this counts the work and the memory of each.
//!
//! Each rendering runs on its own thread, so its budget is a thread-local variable. Freed memory is not refunded.
//! Larger inputs have larger budgets.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::{Error, ErrorKind};

/// The steps of a rendering, whatever its input: instructions, elements or [`BYTES_PER_STEP`]. Some tens of nanoseconds.
const STEPS: usize = 500_000;
/// The steps that each byte of the input adds.
const STEPS_PER_INPUT_BYTE: usize = 10;
/// The units of minijinja's fuel that each byte of the input adds to [`STEPS`]: instructions, or 64 bytes of text each.
const FUEL_PER_INPUT_BYTE: usize = 4;
/// The bytes that a rendering may allocate, whatever its input.
const BYTES: usize = 16 << 20;
/// The bytes that each byte of the input adds: templates copy it a dozen times.
const BYTES_PER_INPUT_BYTE: usize = 128;
/// The bytes of text that are written or read in the time of a step.
const BYTES_PER_STEP: usize = 32;
/// The bytes of text that are changed character by character in the time of a step.
const BYTES_PER_CHANGE_STEP: usize = 4;
/// The bytes of an element of a list or dict, without its contents.
pub(super) const ELEMENT_BYTES: usize = 32;

thread_local! {
    /// The steps and the bytes that are left.
    static LEFT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Ends the rendering once it is set.
    static CANCELLED: RefCell<Arc<AtomicBool>> = RefCell::default();
}

/// Has the renderings of this thread end once `cancelled` is set.
pub(super) fn end_when(cancelled: Arc<AtomicBool>) {
    CANCELLED.set(cancelled);
}

/// Begins a rendering for an input of `bytes` bytes. Returns minijinja's fuel for it.
pub(super) fn begin(bytes: usize) -> u64 {
    let steps = STEPS.saturating_add(bytes.saturating_mul(STEPS_PER_INPUT_BYTE));
    LEFT.set((steps, BYTES.saturating_add(bytes.saturating_mul(BYTES_PER_INPUT_BYTE))));
    STEPS.saturating_add(bytes.saturating_mul(FUEL_PER_INPUT_BYTE)) as u64
}

/// Charges for work of a few tens of nanoseconds each.
pub(super) fn steps(steps: usize) -> Result<(), Error> {
    take(steps, 0)
}

/// Charges for reading text.
pub(super) fn scan(bytes: usize) -> Result<(), Error> {
    take(bytes / BYTES_PER_STEP + 1, 0)
}

/// Charges for allocating text.
pub(super) fn bytes(bytes: usize) -> Result<(), Error> {
    take(bytes / BYTES_PER_STEP, bytes)
}

/// Charges for changing text character by character: the result may be three times as long.
pub(super) fn chars(bytes: usize) -> Result<(), Error> {
    take(bytes / BYTES_PER_CHANGE_STEP + 1, bytes.saturating_mul(3))
}

/// Charges for elements of lists and dicts.
pub(super) fn elements(elements: usize) -> Result<(), Error> {
    take(elements, elements.saturating_mul(ELEMENT_BYTES))
}

/// The steps and the bytes that are left.
#[cfg(test)]
pub(super) fn left() -> (usize, usize) {
    LEFT.get()
}

/// The message of a rendering that takes too much.
pub(super) fn exceeded(what: &str) -> String {
    format!(
        "it takes more {what} than a chat template may: it loops, recurses, or makes texts or lists without end"
    )
}

fn take(steps: usize, bytes: usize) -> Result<(), Error> {
    let (steps_left, bytes_left) = LEFT.get();
    let rest = (steps_left.checked_sub(steps), bytes_left.checked_sub(bytes));
    LEFT.set((rest.0.unwrap_or(0), rest.1.unwrap_or(0)));
    let message = match rest {
        _ if CANCELLED.with_borrow(|cancelled| cancelled.load(Ordering::Relaxed)) => {
            "it was cancelled".to_owned()
        }
        (Some(_), Some(_)) => return Ok(()),
        (None, _) => exceeded("time"),
        _ => exceeded("memory"),
    };
    Err(Error::new(ErrorKind::InvalidOperation, message))
}
