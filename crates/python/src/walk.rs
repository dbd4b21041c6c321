//! Iteration over the lists of arguments, with limits on items, text and memory. Signals are checked at each
//! item.

use std::cell::Cell;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyIterator, PyList, PySlice, PyString};

use super::abc::is_sequence;
use super::arrays::numpy;
use super::errors::exception;
use super::prompts::{shown, string};
use super::signals::{between, check_signals, keep};
use rsgen_core::error::ErrorKind;
use rsgen_model::weights::available_memory;

/// The most items of an argument, those of the lists in it included.
const MAX_ITEMS: usize = 1 << 24;
/// The most bytes of its texts.
const MAX_TEXT_BYTES: usize = 1 << 28;
/// The most numbers of lists that numpy makes an array of, where signals are not looked at.
const MAX_LISTED: usize = 1 << 22;
/// The most elements of an array that become objects at once, for the same reason.
const MAX_LISTED_AT_ONCE: usize = 1 << 20;
/// The most elements of an array, which may take less memory than a copy: `np.broadcast_to`.
const MAX_ELEMENTS: usize = 1 << 28;

/// A text of an argument, which in Python may hold what no Unicode text holds: that is an `InputError`.
pub(super) struct Text<'a>(pub(super) &'a str);

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'a> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        given.extract().map(Self).map_err(|error| not_unicode(&given, error))
    }
}

/// An `InputError` of an error about a lone surrogate.
fn not_unicode(given: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = given.py();
    if !error.is_instance_of::<PyUnicodeError>(py) {
        return error;
    }
    let position = keep(py, error.value(py).getattr("start").and_then(|at| string(&at)));
    let position = position.as_deref().unwrap_or("?");
    input_error!(
        py,
        "a text must be Unicode, but has a lone surrogate at position {position}: {}; replace it, for example with \
         text.encode(\"utf-8\", \"replace\").decode()",
        shown(given)
    )
}

/// The bytes that an item of most arguments becomes.
const ITEM_BYTES: usize = 8;
/// So many items are not compared with the available memory, because reading it is slow.
const UNWEIGHED_ITEMS: usize = 1 << 16;
/// Nor are fewer bytes of texts than these.
const UNWEIGHED_TEXT_BYTES: usize = 1 << 20;

/// The items and texts of one argument so far.
pub(super) struct Walk {
    most_items: usize,
    items: Cell<usize>,
    text_bytes: Cell<usize>,
    item_bytes: usize,
    /// The available memory suffices for so many items.
    weighed: Cell<usize>,
    /// And it sufficed when the texts had so many bytes.
    weighed_text_bytes: Cell<usize>,
}

/// The items of one list.
pub(super) struct Items<'a, 'py> {
    walk: &'a Walk,
    items: Bound<'py, PyIterator>,
}

impl Default for Walk {
    fn default() -> Self {
        Self::new(MAX_ITEMS, ITEM_BYTES)
    }
}

impl Walk {
    fn new(most_items: usize, item_bytes: usize) -> Self {
        Self {
            most_items,
            items: Cell::new(0),
            text_bytes: Cell::new(0),
            item_bytes,
            weighed: Cell::new(UNWEIGHED_ITEMS),
            weighed_text_bytes: Cell::new(0),
        }
    }

    /// The walk of an argument whose items become so many bytes each, where 8 are usual; its texts are copied as
    /// many times more often.
    pub(super) fn weighing(item_bytes: usize) -> Self {
        Self::new(MAX_ITEMS, item_bytes)
    }

    /// The items of anything that can be iterated.
    ///
    /// # Errors
    /// `InputError` for too many, already here where their number is known; then what the iterator or a
    /// signal handler raises.
    pub(super) fn items<'a, 'py>(&'a self, value: &Bound<'py, PyAny>) -> PyResult<Items<'a, 'py>> {
        let py = value.py();
        match value.len() {
            Ok(len) => self.check(py, len)?,
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => self.check(py, usize::MAX)?,
            // An iterator.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
            Err(error) => return Err(error),
        }
        Ok(Items { walk: self, items: value.try_iter()? })
    }

    /// The items of a list as values of Rust.
    ///
    /// # Errors
    /// As for [`Walk::items`], and for an item of another type.
    pub(super) fn list<'py, T: FromPyObjectOwned<'py>>(&self, value: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
        self.items(value)?.map(|item| item?.extract().map_err(Into::into)).collect()
    }

    /// The elements of an array as a list of Python's.
    ///
    /// # Errors
    /// As for [`Walk::items`].
    pub(super) fn array_as_list<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, size) = (array.py(), size(array)?);
        self.check(py, size)?;
        let len = if size > MAX_LISTED_AT_ONCE { array.len()? } else { 1 };
        let step = (MAX_LISTED_AT_ONCE * len / size.max(1)).max(1);
        if len <= step {
            return array.call_method0("tolist");
        }
        let list = PyList::empty(py);
        for start in (0..len).step_by(step) {
            check_signals(py)?;
            let part =
                array.get_item(PySlice::new(py, start as isize, (start + step).min(len) as isize, 1))?;
            list.call_method1("extend", (part.call_method0("tolist")?,))?;
        }
        Ok(list.into_any())
    }

    /// Counts elements of an array that are read without a Python iterator.
    ///
    /// # Errors
    /// As for [`Walk::items`].
    pub(super) fn take(&self, py: Python<'_>, items: usize) -> PyResult<()> {
        self.check(py, items)?;
        self.items.set(self.items.get() + items);
        Ok(())
    }

    /// A copy of a text, which in Python may hold what no Unicode text holds.
    ///
    /// # Errors
    /// `InputError` for such a one, and as for [`Walk::copy_text`].
    pub(super) fn text(&self, given: &Bound<'_, PyString>) -> PyResult<String> {
        self.copy_text(given).map_err(|error| not_unicode(given, error))
    }

    /// A copy of a text.
    ///
    /// # Errors
    /// `InputError` when the texts of the argument are too long together; `CapacityError` when the memory
    /// does not suffice; `UnicodeEncodeError` for a lone surrogate.
    pub(super) fn copy_text(&self, text: &Bound<'_, PyString>) -> PyResult<String> {
        let (py, text) = (text.py(), text.to_str()?);
        self.text_bytes.set(self.text_bytes.get() + text.len());
        if self.text_bytes.get() > MAX_TEXT_BYTES {
            let rule = format!("the texts of an argument may have at most {MAX_TEXT_BYTES} bytes together");
            return Err(input_error!(py, "{rule}; give less in a call"));
        }
        self.weigh_texts(py)?;
        let mut copy = String::new();
        copy.try_reserve_exact(text.len()).map_err(|_| refused(py, "a text", text.len()))?;
        copy.push_str(text);
        Ok(copy)
    }

    /// Checks that the memory suffices for the texts so far and their later copies, once for each so many bytes.
    fn weigh_texts(&self, py: Python<'_>) -> PyResult<()> {
        let text_bytes = self.text_bytes.get();
        if text_bytes - self.weighed_text_bytes.get() < UNWEIGHED_TEXT_BYTES {
            return Ok(());
        }
        let bytes = text_bytes.saturating_mul(self.item_bytes / ITEM_BYTES);
        if available_memory().is_some_and(|available| bytes as u64 > available) {
            return Err(refused(py, "the texts", bytes));
        }
        self.weighed_text_bytes.set(text_bytes);
        Ok(())
    }

    /// Checks that so many more items are allowed, and that the memory suffices for them and for as many
    /// again: the next ones are weighed then.
    fn check(&self, py: Python<'_>, more: usize) -> PyResult<()> {
        let items = self.items.get();
        if more > self.most_items - items {
            let rule = format!(
                "an argument may hold at most {} items, those of its lists included",
                self.most_items
            );
            return Err(input_error!(py, "{rule}; give less in a call"));
        }
        if items + more > self.weighed.get() {
            let next = (2 * (items + more)).min(self.most_items);
            let bytes = (next - items).saturating_mul(self.item_bytes);
            if available_memory().is_some_and(|available| bytes as u64 > available) {
                return Err(refused(py, &format!("{} items", items + more), bytes));
            }
            self.weighed.set(next);
        }
        Ok(())
    }
}

fn refused(py: Python<'_>, what: &str, bytes: usize) -> PyErr {
    let rule = format!("{what} of an argument may take {bytes} bytes of memory, which are not available");
    exception(py, ErrorKind::Capacity, format!("{rule}; give less in a call"))
}

impl<'py> Iterator for Items<'_, 'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        let py = self.items.py();
        // Iterators written in C run no signal handlers, and let no other thread run.
        if let Err(error) = between(py) {
            return Some(Err(error));
        }
        let item = self.items.next()?;
        Some(item.and_then(|item| self.walk.take(py, 1).map(|()| item)))
    }
}

/// A value as an array of numpy's. Lists are walked first: numpy would not end at an endless one.
///
/// # Errors
/// `InputError` for one that is too large, and what numpy raises.
pub(super) fn to_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if !value.hasattr("__array__")? {
        count(&Walk::new(MAX_LISTED, ITEM_BYTES), value, 0)?;
    }
    let array = numpy(py)?.call_method1("asarray", (value,))?;
    if array.getattr("size")?.extract::<usize>()? > MAX_ELEMENTS {
        return Err(input_error!(py, "an array may have at most {MAX_ELEMENTS} elements"));
    }
    Ok(array)
}

/// The number of elements of an array; 0 if it does not say it as numpy does.
fn size(array: &Bound<'_, PyAny>) -> PyResult<usize> {
    match array.getattr_opt("size")? {
        Some(size) if size.is_instance_of::<PyInt>() => size.extract(),
        _ => Ok(0),
    }
}

/// Counts the items of lists in lists, as deep as an array of two dimensions needs.
fn count(walk: &Walk, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if is_number || depth > 3 {
        return Ok(());
    }
    if value.hasattr("__array__")? {
        return walk.take(value.py(), size(value)?);
    }
    if !is_sequence(value)? {
        return Ok(());
    }
    walk.items(value)?.try_for_each(|item| count(walk, &item?, depth + 1))
}
