//! A model that is dropped detached from Python: freeing gigabytes takes a while.

use std::ops::Deref;

use pyo3::prelude::*;

use super::exit::{detached, inside};
use rsgen::generator::Generator;

/// A generator of the layer below; `Some` until it is dropped.
#[derive(Clone)]
pub(super) struct DropDetached(Option<Generator>);

impl DropDetached {
    pub(super) fn new(generator: Generator) -> Self {
        Self(Some(generator))
    }
}

impl Deref for DropDetached {
    type Target = Generator;

    fn deref(&self) -> &Generator {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl Drop for DropDetached {
    fn drop(&mut self) {
        let generator = self.0.take();
        Python::attach(|py| inside(|| detached(py, || drop(generator))));
    }
}
