//! An opened model that is dropped detached from Python: to give gigabytes back takes a while.

use std::ops::Deref;

use pyo3::prelude::*;

use super::exit::{detached, inside};
use crate::generator::Generator;

/// A generator of the layer below, there until it is dropped.
pub(super) struct Opened(Option<Generator>);

impl Opened {
    pub(super) fn new(generator: Generator) -> Self {
        Self(Some(generator))
    }
}

impl Deref for Opened {
    type Target = Generator;

    fn deref(&self) -> &Generator {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let generator = self.0.take();
        Python::attach(|py| inside(|| detached(py, || drop(generator))));
    }
}
