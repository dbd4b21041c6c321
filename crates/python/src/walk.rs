//! Walks the lists and iterators of arguments: Ctrl-C ends that at each item, and what is too long or has no end is refused.

use std::cell::Cell;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyIterator, PyList, PySlice};

use super::abc::is_sequence;
use super::arrays::numpy;
use super::prompts::{shown, string};
use super::signals::{check_signals, keep};

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

/// What has been seen of one argument.
pub(super) struct Walk {
    most_items: usize,
    items: Cell<usize>,
    text_bytes: Cell<usize>,
}

/// The items of one list.
pub(super) struct Items<'a, 'py> {
    walk: &'a Walk,
    items: Bound<'py, PyIterator>,
}

impl Default for Walk {
    fn default() -> Self {
        Self::up_to(MAX_ITEMS)
    }
}

impl Walk {
    fn up_to(most_items: usize) -> Self {
        Self { most_items, items: Cell::new(0), text_bytes: Cell::new(0) }
    }

    /// The items of anything that can be iterated.
    ///
    /// # Errors
    /// `InputError` for too many, already here where their number is known; then what the iterator or a signal handler
    /// raises.
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

    /// Counts elements of an array that are read without an iterator of Python's.
    ///
    /// # Errors
    /// As for [`Walk::items`].
    pub(super) fn take(&self, py: Python<'_>, items: usize) -> PyResult<()> {
        self.check(py, items)?;
        self.items.set(self.items.get() + items);
        Ok(())
    }

    /// A text, which in Python may hold what no Unicode text holds.
    ///
    /// # Errors
    /// `InputError` for such a one, and as for [`Walk::count_text`].
    pub(super) fn text(&self, given: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = given.py();
        let text = given.extract().map_err(|error: PyErr| {
            let position = keep(py, error.value(py).getattr("start").and_then(|at| string(&at)));
            let position = position.as_deref().unwrap_or("?");
            input_error!(py, "a text must be Unicode, but has a lone surrogate at position {position}: {}; replace it, for example with \
                     text.encode(\"utf-8\", \"replace\").decode()",
                    shown(given))
        })?;
        self.count_text(py, text)
    }

    /// A text that was copied.
    ///
    /// # Errors
    /// `InputError` when the texts of the argument are too long together.
    pub(super) fn count_text(&self, py: Python<'_>, text: String) -> PyResult<String> {
        self.text_bytes.set(self.text_bytes.get() + text.len());
        if self.text_bytes.get() <= MAX_TEXT_BYTES {
            return Ok(text);
        }
        let rule = format!("the texts of an argument may have at most {MAX_TEXT_BYTES} bytes together");
        Err(input_error!(py, "{rule}; give less in a call"))
    }

    fn check(&self, py: Python<'_>, more: usize) -> PyResult<()> {
        if more <= self.most_items - self.items.get() {
            return Ok(());
        }
        let rule =
            format!("an argument may hold at most {} items, those of its lists included", self.most_items);
        Err(input_error!(py, "{rule}; give less in a call"))
    }
}

impl<'py> Iterator for Items<'_, 'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        let py = self.items.py();
        // Iterators written in C run no signal handlers.
        if let Err(error) = py.check_signals() {
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
        count(&Walk::up_to(MAX_LISTED), value, 0)?;
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
