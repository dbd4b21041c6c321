//! LoRA adapters of PEFT (Hu et al., arXiv:2106.09685): a folder with `adapter_config.json` and
//! `adapter_model.safetensors` or, as older versions wrote it, `adapter_model.bin`.
//!
//! An adapter is merged into the weights while they are read, in PEFT's order and with its rounding: see
//! [`AdaptedTensor`]. Or it stays beside the model, for the rows that name it: see [`Factors`]. What would need more
//! than that, such as DoRA, is an error.

mod config;
mod factors;
mod merge;
mod modules;
mod names;
mod tensor;

use std::path::Path;
use std::sync::Arc;

pub use config::AdapterConfig;
pub use factors::Factors;
pub(super) use tensor::AdaptedTensor;

use super::safetensors::{HeaderLimits, TensorView};
use super::source::ModelFiles;
use super::store::Store;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;

pub(super) const CONFIG: &str = "adapter_config.json";
/// Its tensors, in the order in which PEFT looks for them.
const TENSORS: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// An adapter whose configuration and header have been checked.
pub struct Adapter {
    name: String,
    config: AdapterConfig,
    /// A file.
    store: Arc<Store>,
    tensor_names: Vec<String>,
}

impl Adapter {
    /// Finds an adapter: a folder of this path, or else a Hub id in the local cache, as [`ModelFiles::open`]
    /// does.
    ///
    /// # Errors
    /// `Load` when there is no such adapter, or it is of a kind that is not supported.
    pub fn open(adapter: &str, cache: Option<&Path>) -> Result<Self> {
        Self::of_files(&ModelFiles::open(adapter, None, cache)?)
    }

    /// The adapter that these files are.
    ///
    /// # Errors
    /// As for [`Adapter::open`].
    pub fn of_files(files: &ModelFiles) -> Result<Self> {
        let name = escape::name(files.name()).into_owned();
        let missing = |file: &str, what: &str| Error::load(format!("{name}: {file} is missing; {what}"));
        let config = files.read_optional(CONFIG)?;
        let config = config.ok_or_else(|| missing(CONFIG, "is it the folder of an adapter of PEFT?"))?;
        let config =
            AdapterConfig::from_json(&config).context(|| CONFIG).context(|| files.name().to_owned())?;
        for file in TENSORS {
            let Some(bytes) = files.weight_file(file)? else { continue };
            let store = Store::of_file(file, bytes, &mut HeaderLimits::default())
                .context(|| files.name().to_owned())?;
            let tensor_names = store.names();
            if tensor_names.is_empty() {
                return Err(Error::load(format!(
                    "{name}: {file} has no tensors; download the adapter again"
                )));
            }
            return Ok(Self { name, config, store: Arc::new(store), tensor_names });
        }
        Err(missing(TENSORS[0], "download the adapter again"))
    }

    /// Whether these are the files of an adapter rather than of a model.
    pub fn is_one(files: &ModelFiles) -> bool {
        files.contains(CONFIG) && !files.contains("config.json")
    }

    /// What its `adapter_config.json` says.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    /// The names of its tensors, in the order of the file.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensor_names.iter().map(String::as_str)
    }

    /// A tensor of its header.
    fn tensor<'n>(&'n self, name: &'n str) -> Result<TensorView<'n>> {
        let found = self.store.tensor(name)?;
        found.ok_or_else(|| Error::internal("an adapter has the tensors of its header"))
    }

    /// How many numbers it holds.
    pub fn num_elements(&self) -> u64 {
        self.store.num_elements()
    }

    /// The bytes of its tensors.
    pub fn data_len(&self) -> u64 {
        self.store.data_len()
    }
}
