//! The class `Seed`: random numbers that go on from call to call, in the format of torch's generators.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyType};

use super::arrays::array;
use super::calls::Edit;
use super::errors::{guarded, input_error};
use super::prompts::shown;
use rsgen_core::sync::Mutex;
use rsgen_generation::{RandomState, TorchRng};

/// The words of a Mersenne Twister.
const WORDS: usize = 624;
/// The bytes of a state of torch: the first seed, how many words are left, the next one, 624 words of 8 bytes, and
/// numbers of a normal distribution, which sampling does not draw.
const STATE_BYTES: usize = 5056;
const WORDS_AT: usize = 24;

/// Random numbers that go on from call to call, as those of `torch.Generator` do.
///
/// With `seed=7` each call draws the same numbers. With one `Seed(7)` for several calls each goes on where
/// the last one ended: they draw what transformers draws in several calls after one `torch.manual_seed(7)`. The
/// prompts of a list draw independently of each other, each with a seed that is drawn from it. Calls at the same
/// time need a Seed each, and calls with drafts a number.
///
/// Args:
///     seed (int): The seed, as for `torch.manual_seed`.
///
/// Example:
///     >>> seed = rsgen.Seed(7)
///     >>> first = gen.sample("One day", seed=seed, max_new_tokens=20)
///     >>> second = gen.sample("One day", seed=seed, max_new_tokens=20)  # another story
#[pyclass(module = "rsgen", name = "Seed", frozen)]
pub(super) struct Seed {
    state: RandomState,
    initial: Mutex<u64>,
}

impl Seed {
    fn at(state: TorchRng, initial: u64) -> Self {
        Self { state: RandomState::new(state), initial: Mutex::new(initial) }
    }
}

#[guarded]
#[pymethods]
impl Seed {
    #[new]
    #[pyo3(signature = (seed))]
    fn new(seed: &Bound<'_, PyAny>) -> PyResult<Self> {
        let seed = number(seed)?;
        Ok(Self::at(TorchRng::manual_seed(seed), seed))
    }

    /// Begins anew.
    ///
    /// Args:
    ///     seed (int): The seed.
    ///
    /// Returns:
    ///     Self: This object.
    #[pyo3(signature = (seed))]
    fn manual_seed<'py>(slf: PyRef<'py, Self>, seed: &Bound<'py, PyAny>) -> PyResult<PyRef<'py, Self>> {
        let seed = number(seed)?;
        slf.state.set(TorchRng::manual_seed(seed));
        *slf.initial.lock() = seed;
        Ok(slf)
    }

    /// Returns the seed that it began with.
    ///
    /// Returns:
    ///     int: The seed.
    fn initial_seed(&self) -> u64 {
        *self.initial.lock()
    }

    /// Returns the state, as `torch.Generator.get_state()` does: `torch.from_numpy` makes torch's of it.
    ///
    /// Returns:
    ///     NDArray[np.uint8]: The bytes, `[5056]`.
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, STATE_BYTES, bytes(&self.state.get(), *self.initial.lock()))
    }

    /// Goes on from a state of `get_state()`, or one of torch: `generator.get_state().numpy()`.
    ///
    /// Args:
    ///     state (NDArray[np.uint8]): The bytes, `[5056]`.
    ///
    /// Raises:
    ///     InputError: It is no state.
    #[pyo3(signature = (state))]
    fn set_state(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = state.call_method0("tobytes").and_then(|bytes| bytes.extract::<Vec<u8>>());
        let (rng, initial) = given.ok().and_then(|bytes| read(&bytes)).ok_or_else(|| {
            input_error!(
                state.py(),
                "`state` must be what get_state() returns, {STATE_BYTES} bytes as an array of uint8, got {}",
                shown(state)
            )
        })?;
        self.state.set(rng);
        *self.initial.lock() = initial;
        Ok(())
    }

    /// Returns the state, for pickle.
    ///
    /// Returns:
    ///     tuple[Any, tuple[bytes]]: For pickle.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Vec<u8>,))> {
        let this = slf.get();
        Ok((slf.get_type().getattr("_restore")?, (bytes(&this.state.get(), *this.initial.lock()),)))
    }

    #[classmethod]
    fn _restore(class: &Bound<'_, PyType>, state: Vec<u8>) -> PyResult<Self> {
        let restored = read(&state).map(|(rng, initial)| Self::at(rng, initial));
        restored.ok_or_else(|| input_error(class.py(), "this is no pickled Seed"))
    }

    /// Returns one of its own that goes on from here.
    ///
    /// Returns:
    ///     Seed: The copy.
    fn __copy__(&self) -> Self {
        Self::at(self.state.get(), *self.initial.lock())
    }

    /// Returns one of its own that goes on from here.
    ///
    /// Args:
    ///     memo (Any): Of the module copy, unused.
    ///
    /// Returns:
    ///     Seed: The copy.
    #[pyo3(signature = (memo, /))]
    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let _ = memo;
        self.__copy__()
    }

    fn __repr__(&self) -> String {
        format!("<rsgen.Seed of {}>", *self.initial.lock())
    }
}

/// Takes a `Seed` out of the keywords of a call.
pub(super) fn taken<'py>(
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Option<Edit>, Option<Bound<'py, PyDict>>)> {
    let Some(keywords) = keywords else { return Ok((None, None)) };
    let Some(given) = keywords.get_item("seed")? else { return Ok((None, Some(keywords.clone()))) };
    let Ok(seed) = given.cast::<Seed>() else { return Ok((None, Some(keywords.clone()))) };
    let others = keywords.copy()?;
    others.del_item("seed")?;
    let state = seed.get().state.clone();
    Ok((Some(Box::new(|call| call.random_state(state))), Some(others)))
}

/// The number of a seed; a negative one stands for its two's complement, as in torch.
fn number(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = given.py();
    let value = given.extract::<i128>().ok().filter(|_| !given.is_instance_of::<PyBool>());
    let seed = value.filter(|&value| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value));
    let rule = "`seed` must be an integer from -2**63 to 2**64 - 1";
    seed.map(|seed| seed as u64).ok_or_else(|| config_error!(py, "{rule}, got {}", shown(given)))
}

/// The state as torch writes it.
fn bytes(rng: &TorchRng, initial: u64) -> Vec<u8> {
    let (words, next) = rng.state();
    // torch counts from 0 before the first draw, and from 624 after the last one of so many.
    let is_fresh = next == WORDS && TorchRng::manual_seed(initial).state().0 == words;
    let mut bytes = Vec::with_capacity(STATE_BYTES);
    bytes.extend(initial.to_le_bytes());
    // How many words are left counts the one that begins the next 624; then, whether it has a seed.
    bytes.extend((WORDS as i32 - next as i32 + 1).to_le_bytes());
    bytes.extend(1_i32.to_le_bytes());
    bytes.extend(if is_fresh { 0 } else { next as u64 }.to_le_bytes());
    for &word in words {
        bytes.extend(u64::from(word).to_le_bytes());
    }
    bytes.resize(STATE_BYTES, 0);
    bytes
}

/// The generator and the first seed of a state; `None` if it is none.
fn read(bytes: &[u8]) -> Option<(TorchRng, u64)> {
    if bytes.len() != STATE_BYTES {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let left = i32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let next = usize::try_from(WORDS as i64 + 1 - i64::from(left)).ok()?;
    let mut words = [0; WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = u32::try_from(number(WORDS_AT + 8 * index)?).ok()?;
    }
    Some((TorchRng::from_state(words, next)?, number(0)?))
}
