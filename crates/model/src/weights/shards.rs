//! All tensors of a model: `model.safetensors`, the shards that `model.safetensors.index.json` lists, or the
//! caller's own.
//!
//! The index is untrusted: it may name plain files of the model's own folder only, and each tensor must be
//! where it says. Other weight formats are not read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::adapter::AdaptedTensor;
use super::in_memory::{MemoryTensors, TensorSource};
use super::safetensors::{HeaderLimits, MAX_TENSORS, TensorFile, TensorView};
use super::scope::WeightScope;
use super::source::{FileBytes, MAX_TEXT_BYTES, ModelFiles};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::json::{read_object, shown};
use rsgen_kernels::tensor::{StoredBytes, WeightType};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The most files that the tensors of a model may be in.
const MAX_SHARDS: usize = 1000;
/// Weight files of other formats, named in the error when there is no safetensors file.
const OTHER_FORMATS: [&str; 4] =
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"];

/// The tensors of a model by name; remembers which were used.
pub struct Weights {
    stores: Vec<Arc<Store>>,
    tensors: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// The bytes and the numbers of tensors that an adapter adds.
    added: (u64, u64),
}

/// Where tensors are stored.
pub(super) enum Store {
    File(TensorFile),
    Memory(MemoryTensors),
}

struct Entry {
    name: String,
    place: Place,
    used: AtomicBool,
}

/// Where a tensor is.
enum Place {
    /// In the store of this index, under its own name.
    Stored(usize),
    /// Made while it is read.
    Adapted(Box<AdaptedTensor>),
}

impl Store {
    /// The tensor of this name, if it is there.
    ///
    /// # Errors
    /// `Load` when it is stored in a type that is not supported.
    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Result<Option<TensorView<'a>>> {
        match self {
            Self::File(file) => file.tensor(name),
            Self::Memory(tensors) => tensors.tensor(name),
        }
    }

    fn file(&self) -> Option<&TensorFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Memory(_) => None,
        }
    }

    pub(super) fn data_len(&self) -> u64 {
        match self {
            Self::File(file) => file.data_len() as u64,
            Self::Memory(tensors) => tensors.data_len() as u64,
        }
    }

    pub(super) fn num_elements(&self) -> u64 {
        match self {
            Self::File(file) => file.num_elements(),
            Self::Memory(tensors) => tensors.num_elements(),
        }
    }
}

impl Weights {
    /// Opens the weight files of a model.
    ///
    /// # Errors
    /// `Load` when they are missing, damaged, or not where the index says.
    pub fn open(files: &ModelFiles) -> Result<Self> {
        if let Some(tensors) = files.tensors() {
            return Self::from_source(tensors).context(|| files.name());
        }
        if let Some(bytes) = files.weight_file(SINGLE)? {
            return Self::of_file(bytes);
        }
        if let Some(index) = files.read_optional(INDEX)? {
            return Self::open_shards(files, &index);
        }
        let message = format!("{}: neither {SINGLE} nor {INDEX} is there", files.name());
        let other = OTHER_FORMATS.into_iter().find(|&other| files.contains(other));
        let other = other.map(|other| format!("{other} is of another format: save the model as safetensors"));
        Err(Error::load(match other.or_else(|| files.foreign()) {
            Some(other) => format!("{message}; {other}"),
            None => message,
        }))
    }

    /// The tensors of one safetensors file in memory.
    ///
    /// # Errors
    /// `Load` when it is damaged.
    pub fn from_bytes(safetensors: impl Into<FileBytes>) -> Result<Self> {
        Self::of_file(safetensors.into())
    }

    /// The tensors of a source in memory.
    ///
    /// # Errors
    /// `Load` when there are too many, one is too large, or two have the same name.
    pub fn from_source(source: &Arc<dyn TensorSource>) -> Result<Self> {
        let tensors = MemoryTensors::new(source)?;
        let names = tensors.names().map(|name| (name.to_owned(), 0)).collect();
        Ok(Self::with_tensors(vec![Store::Memory(tensors)], names))
    }

    fn open_shards(files: &ModelFiles, index: &[u8]) -> Result<Self> {
        let index = read_object(INDEX, index, MAX_TEXT_BYTES)?;
        let Some(Value::Object(map)) = index.get("weight_map") else {
            return Err(Error::load(format!(
                "{INDEX}: weight_map must be an object of tensor and file names; download the model again"
            )));
        };
        if map.len() > MAX_TENSORS {
            return Err(Error::load(format!(
                "{INDEX}: weight_map may have at most {MAX_TENSORS} tensors, found {}",
                map.len()
            )));
        }
        let num_files = map.values().filter_map(Value::as_str).collect::<HashSet<_>>().len();
        if num_files > MAX_SHARDS {
            return Err(Error::load(format!(
                "{INDEX}: weight_map may name at most {MAX_SHARDS} files, found {num_files}"
            )));
        }
        let mut shards: Vec<TensorFile> = Vec::new();
        let mut by_file: HashMap<&str, usize> = HashMap::new();
        let mut tensors = Vec::with_capacity(map.len());
        let mut limits = HeaderLimits::default();
        for (name, file) in map {
            let shown_name = escape::name(name);
            let Some(file) = file.as_str().filter(|file| file.ends_with(".safetensors")) else {
                return Err(Error::load(format!(
                    "{INDEX}: the file of {shown_name} must be the name of a .safetensors file, found {}; download the model \
                     again",
                    shown(file)
                )));
            };
            let known = by_file.get(file).copied();
            let shard = known.unwrap_or(shards.len());
            if known.is_none() {
                let bytes =
                    open_shard(files, file).context(|| format!("{INDEX}: the file of {shown_name}"))?;
                shards.push(TensorFile::new(file, bytes, &mut limits)?);
                by_file.insert(file, shard);
            }
            if !shards[shard].contains(name) {
                return Err(Error::load(format!(
                    "{INDEX}: {shown_name} is not in {}; download the model again",
                    escape::name(file)
                )));
            }
            tensors.push((name.clone(), shard));
        }
        Ok(Self::with_tensors(shards.into_iter().map(Store::File).collect(), tensors))
    }

    fn of_file(bytes: FileBytes) -> Result<Self> {
        let file = TensorFile::new(SINGLE, bytes, &mut HeaderLimits::default())?;
        let tensors = file.tensor_names().into_iter().map(|name| (name, 0)).collect();
        Ok(Self::with_tensors(vec![Store::File(file)], tensors))
    }

    fn with_tensors(stores: Vec<Store>, tensors: Vec<(String, usize)>) -> Self {
        let by_name = tensors.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let entry = |(name, store)| Entry { name, place: Place::Stored(store), used: AtomicBool::new(false) };
        Self {
            stores: stores.into_iter().map(Arc::new).collect(),
            tensors: tensors.into_iter().map(entry).collect(),
            by_name,
            added: (0, 0),
        }
    }

    /// The store that holds the tensor of this name as it was before any adapter.
    pub(super) fn store(&self, name: &str) -> Option<&Arc<Store>> {
        match self.by_name.get(name).map(|&at| &self.tensors[at].place)? {
            Place::Stored(store) => Some(&self.stores[*store]),
            Place::Adapted(_) => None,
        }
    }

    /// Puts a tensor that is made while it is read in the place of the one of this name, or beside the
    /// others.
    pub(super) fn adapt(&mut self, name: String, tensor: AdaptedTensor) {
        if let Some(&at) = self.by_name.get(&name) {
            self.tensors[at].place = Place::Adapted(Box::new(tensor));
        } else {
            self.added.0 += tensor.num_bytes() as u64;
            self.added.1 += tensor.num_elements() as u64;
            self.by_name.insert(name.clone(), self.tensors.len());
            let place = Place::Adapted(Box::new(tensor));
            self.tensors.push(Entry { name, place, used: AtomicBool::new(false) });
        }
    }

    /// Leaves the tensor of this name out.
    pub(super) fn leave_out(&mut self, name: &str) {
        if let Some(at) = self.by_name.remove(name) {
            self.tensors.remove(at);
            self.by_name.values_mut().filter(|other| **other > at).for_each(|other| *other -= 1);
        }
    }

    /// The root scope.
    pub fn root(&self) -> WeightScope<'_> {
        WeightScope::new(self)
    }

    /// The tensor of this full name, if there is one; it counts as used from now on.
    ///
    /// # Errors
    /// `Load` when it is stored in a type that is not supported.
    pub fn tensor(&self, name: &str) -> Result<Option<TensorView<'_>>> {
        let Some(entry) = self.by_name.get(name).map(|&at| &self.tensors[at]) else { return Ok(None) };
        entry.used.store(true, Ordering::Relaxed);
        match &entry.place {
            Place::Stored(store) => self.stores[*store].tensor(&entry.name),
            Place::Adapted(tensor) => Ok(Some(tensor.view(&entry.name))),
        }
    }

    /// The packed type of the matrices; `None` if the model is not packed.
    ///
    /// # Errors
    /// `Load` when it was packed by another version of rsgen.
    pub fn packed(&self) -> Result<Option<WeightType>> {
        match &self.stores[..] {
            [store] => store.file().map_or(Ok(None), TensorFile::packed),
            _ => Ok(None),
        }
    }

    /// The shapes of all packed matrices.
    pub(super) fn packed_shapes(&self) -> Vec<Vec<usize>> {
        self.stores.iter().filter_map(|store| store.file()).flat_map(TensorFile::packed_shapes).collect()
    }

    /// The packed matrix of this name and shape; it counts as used from now on.
    ///
    /// # Errors
    /// `Load` when it is missing, of another shape, or stored as numbers.
    pub fn packed_matrix(&self, name: &str, shape: [usize; 3]) -> Result<StoredBytes<'_>> {
        let missing =
            || Error::load(format!("{name}: the packed model has no matrix of this name; pack it again"));
        let entry = self.by_name.get(name).map(|&at| &self.tensors[at]).ok_or_else(missing)?;
        entry.used.store(true, Ordering::Relaxed);
        let file = match &entry.place {
            Place::Stored(store) => self.stores[*store].file(),
            Place::Adapted(_) => None,
        };
        let (found, bytes) = file.ok_or_else(missing)?.packed_matrix(&entry.name)?.ok_or_else(missing)?;
        if found != shape {
            return Err(Error::load(format!(
                "{name}: config.json predicts a packed matrix of the shape {shape:?}, found {found:?}; the files do not \
                 belong together"
            )));
        }
        Ok(bytes)
    }

    /// Whether there is a tensor of this full name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|entry| entry.name.as_str())
    }

    /// The names of the tensors that were never requested; `rotary_emb.inv_freq` of old checkpoints is
    /// normal.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.tensors.iter().filter(|entry| !entry.used.load(Ordering::Relaxed));
        unused.map(|entry| entry.name.as_str())
    }

    /// The bytes of all weight files without their headers, or of the tensors in memory.
    pub fn data_len(&self) -> u64 {
        self.stores.iter().map(|store| store.data_len()).sum::<u64>() + self.added.0
    }

    /// The numbers in all weight files, or in memory.
    pub fn num_elements(&self) -> u64 {
        self.stores.iter().map(|store| store.num_elements()).sum::<u64>() + self.added.1
    }
}

fn open_shard(files: &ModelFiles, file: &str) -> Result<FileBytes> {
    files.weight_file(file)?.ok_or_else(|| {
        let (folder, file) = (escape::name(files.name()), escape::name(file));
        Error::load(format!("{folder}: \"{file}\" is missing; download the model again"))
    })
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights")
            .field("stores", &self.stores.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
