//! The tensors of an adapter by the module of the model that they are for.

use std::collections::BTreeMap;

use super::Adapter;
use super::names::{Part, parse};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;

/// The names of the adapter's tensors for one matrix.
#[derive(Default)]
pub(super) struct Module {
    pub(super) a: Option<String>,
    pub(super) b: Option<String>,
    pub(super) is_embedding: bool,
    pub(super) base: Option<String>,
}

impl Module {
    /// The names of both factors; `None` if there are none.
    ///
    /// # Errors
    /// `Load` when one is missing.
    pub(super) fn factors(&self) -> Result<Option<[&str; 2]>> {
        match (&self.a, &self.b) {
            (Some(a), Some(b)) => Ok(Some([a, b])),
            (None, None) => Ok(None),
            (Some(there), None) | (None, Some(there)) => Err(Error::load(format!(
                "{} must have a second factor, but only this one is there; download the adapter again",
                escape::name(there)
            ))),
        }
    }
}

/// The tensors of an adapter.
pub(super) struct Modules {
    /// The factors, and what lies below them, by the name of the module.
    pub(super) modules: BTreeMap<String, Module>,
    /// Tensors in place of the model's own: the model's name and the adapter's.
    pub(super) wholes: BTreeMap<String, String>,
}

impl Modules {
    /// Those of an adapter.
    ///
    /// # Errors
    /// `Load` for a tensor of no kind that is supported.
    pub(super) fn of(adapter: &Adapter) -> Result<Self> {
        let mut modules: BTreeMap<String, Module> = BTreeMap::new();
        let mut wholes = BTreeMap::new();
        for name in adapter.tensor_names() {
            let (module, part) = parse(name).context(|| format!("the adapter {}", adapter.name))?;
            let name = name.to_owned();
            // PEFT writes the parts of a wrapper again beside the tensor itself.
            let copied = [".modules_to_save.weight", ".original_module.weight"];
            let copied = copied.iter().find_map(|ending| name.strip_suffix(ending));
            if copied.is_some_and(|module| adapter.store.stored(&weight(module)).is_some()) {
                continue;
            }
            if part == Part::Whole {
                wholes.insert(module.to_owned(), name);
                continue;
            }
            let module = modules.entry(module.to_owned()).or_default();
            match part {
                Part::A | Part::EmbeddingA => module.a = Some(name),
                Part::B | Part::EmbeddingB => module.b = Some(name),
                Part::Base => module.base = Some(name),
                Part::Whole => {}
            }
            module.is_embedding |= matches!(part, Part::EmbeddingA | Part::EmbeddingB);
        }
        Ok(Self { modules, wholes })
    }
}

/// The name of a module's matrix.
pub(super) fn weight(module: &str) -> String {
    format!("{module}.weight")
}
