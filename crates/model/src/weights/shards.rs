//! All tensors of a model: those of `model.safetensors` or `pytorch_model.bin`, of the shards that
//! `model.safetensors.index.json` or `pytorch_model.bin.index.json` lists, of GGUF files, or the caller's own.
//!
//! The index is untrusted: it may name plain files of the model's own folder only, and each tensor must be
//! where it says. As in transformers, safetensors come first, and a prefix of the base model that the names
//! lack, or have too much, is no difference.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

use super::adapter::AdaptedTensor;
use super::in_memory::{MemoryTensors, TensorSource};
use super::quantized::{self, QuantizedTensors};
use super::safetensors::{HeaderLimits, MAX_TENSORS, TensorFile, TensorView};
use super::scope::WeightScope;
use super::source::{FileBytes, MAX_TEXT_BYTES, ModelFiles};
use super::store::{Store, of_view};
use super::tensor_names::TensorNames;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::json::{read_object, shown};
use rsgen_kernels::tensor::{StoredBytes, WeightType};

/// The names of weight files, in the order in which they are looked for: one file, the index of several, and
/// how their names end.
pub(super) const FORMATS: [(&str, &str, &str); 2] = [
    ("model.safetensors", "model.safetensors.index.json", ".safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", ".bin"),
];
/// The field of config.json that names the weight file, or the index, itself.
const NAMED: &str = "transformers_weights";
/// The most files that the tensors of a model may be in.
const MAX_SHARDS: usize = 1000;
/// The tensors of a model by name; remembers which were used.
pub struct Weights {
    stores: Vec<Arc<Store>>,
    tensors: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// The bytes and the numbers of tensors that an adapter adds.
    added: (u64, u64),
    pub(super) family: TensorNames,
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

impl Weights {
    /// Opens the weight files of a model.
    ///
    /// # Errors
    /// `Load` when they are missing, damaged, or not where the index says.
    pub fn open(files: &ModelFiles) -> Result<Self> {
        let mut weights = Self::open_stored(files)?;
        // A packed model has the config.json of the one that it was made of, and no matrices of that any more.
        if weights.packed()?.is_none()
            && let Some(config) = quantized::find(files)?
        {
            weights.present_quantized(&config)?;
        }
        Ok(weights)
    }

    /// Puts the matrices that are stored quantized in the place of the tensors that they are stored in.
    fn present_quantized(&mut self, config: &Map<String, Value>) -> Result<()> {
        let (tensors, parts) = QuantizedTensors::find(config, self)?;
        let parts: HashSet<String> = parts.into_iter().collect();
        self.tensors.retain(|entry| !parts.contains(&entry.name));
        let place = self.stores.len();
        let entry = |name| Entry { name, place: Place::Stored(place), used: AtomicBool::new(false) };
        self.tensors.extend(tensors.names().into_iter().map(entry));
        self.stores.push(Arc::new(Store::Quantized(tensors)));
        self.by_name = self.tensors.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        Ok(())
    }

    /// Opens the weight files of a model with their tensors as they are stored, quantized ones in parts.
    ///
    /// # Errors
    /// As for [`Weights::open`].
    pub fn open_stored(files: &ModelFiles) -> Result<Self> {
        if let Some(tensors) = files.tensors() {
            return Self::from_source(tensors).context(|| files.name());
        }
        if let Some(tensors) = files.gguf()? {
            let names = tensors.names().map(|name| (name.to_owned(), 0)).collect();
            return Ok(Self::with_tensors(vec![Store::Gguf(Arc::clone(tensors))], names));
        }
        if let Some((file, is_index)) = named_file(files)? {
            if is_index {
                return Self::open_shards(files, &file, &files.read(&file)?, FORMATS[0].2);
            }
            let bytes = open_shard(files, &file).context(|| format!("config.json: {NAMED}"))?;
            return Self::of_file(&file, bytes);
        }
        for (single, index, ending) in FORMATS {
            if let Some(bytes) = files.weight_file(single)? {
                return Self::of_file(single, bytes);
            }
            if let Some(text) = files.read_optional(index)? {
                return Self::open_shards(files, index, &text, ending);
            }
        }
        let [(single, index, _), (torch, ..)] = FORMATS;
        let message = format!("{}: neither {single} nor {index} nor {torch} is there", files.name());
        Err(Error::load(match files.foreign() {
            Some(other) => format!("{message}; {other}"),
            None => message,
        }))
    }

    /// The tensors of one safetensors file in memory.
    ///
    /// # Errors
    /// `Load` when it is damaged.
    pub fn from_bytes(safetensors: impl Into<FileBytes>) -> Result<Self> {
        Self::of_file(FORMATS[0].0, safetensors.into())
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

    fn open_shards(files: &ModelFiles, name_of_index: &str, text: &[u8], ending: &str) -> Result<Self> {
        let index = read_object(name_of_index, text, MAX_TEXT_BYTES)?;
        let name_of_index = escape::name(name_of_index);
        let Some(Value::Object(map)) = index.get("weight_map") else {
            return Err(Error::load(format!(
                "{name_of_index}: weight_map must be an object of tensor and file names; download the model again"
            )));
        };
        if map.len() > MAX_TENSORS {
            return Err(Error::load(format!(
                "{name_of_index}: weight_map may have at most {MAX_TENSORS} tensors, found {}",
                map.len()
            )));
        }
        let num_files = map.values().filter_map(Value::as_str).collect::<HashSet<_>>().len();
        if num_files > MAX_SHARDS {
            return Err(Error::load(format!(
                "{name_of_index}: weight_map may name at most {MAX_SHARDS} files, found {num_files}"
            )));
        }
        let mut shards: Vec<(Store, HashSet<String>)> = Vec::new();
        let mut by_file: HashMap<&str, usize> = HashMap::new();
        let mut tensors = Vec::with_capacity(map.len());
        let mut limits = HeaderLimits::default();
        for (name, file) in map {
            let shown_name = escape::name(name);
            let Some(file) = file.as_str().filter(|file| file.ends_with(ending)) else {
                return Err(Error::load(format!(
                    "{name_of_index}: the file of {shown_name} must be the name of a {ending} file, found {}; download the \
                     model again",
                    shown(file)
                )));
            };
            let known = by_file.get(file).copied();
            let shard = known.unwrap_or(shards.len());
            if known.is_none() {
                let bytes = open_shard(files, file)
                    .context(|| format!("{name_of_index}: the file of {shown_name}"))?;
                let store = Store::of_file(file, bytes, &mut limits)?;
                let names = store.names().into_iter().collect();
                shards.push((store, names));
                by_file.insert(file, shard);
            }
            if !shards[shard].1.contains(name) {
                return Err(Error::load(format!(
                    "{name_of_index}: {shown_name} is not in {}; download the model again",
                    escape::name(file)
                )));
            }
            tensors.push((name.clone(), shard));
        }
        // As in transformers, what the index leaves out is read as well, from the last of the files that have
        // it.
        let mut files: Vec<_> = by_file.into_iter().collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        let mut seen: HashSet<&str> = map.keys().map(|name| &**name).collect();
        for (_, shard) in files {
            let others = shards[shard].1.iter().filter(|name| seen.insert(name));
            tensors.extend(others.map(|name| (name.clone(), shard)));
        }
        Ok(Self::with_tensors(shards.into_iter().map(|(store, _)| store).collect(), tensors))
    }

    fn of_file(name: &str, bytes: FileBytes) -> Result<Self> {
        let store = Store::of_file(name, bytes, &mut HeaderLimits::default())?;
        let tensors = store.names().into_iter().map(|name| (name, 0)).collect();
        Ok(Self::with_tensors(vec![store], tensors))
    }

    /// Looks for tensors by the names that this family has for them. Those of llama are looked for before.
    pub fn set_family(&mut self, family: TensorNames) {
        self.family = family;
    }

    /// Whether the class keeps the matrix of this name as `[num_inputs, num_outputs]`.
    pub(super) fn is_transposed_in_class(&self, name: &str) -> bool {
        self.family.is_transposed(name)
    }

    /// The place of the tensor of this name, or of another form of it.
    fn find(&self, name: &str) -> Option<usize> {
        let other = || self.family.forms(name).iter().find_map(|form| self.by_name.get(form));
        self.by_name.get(name).or_else(other).copied()
    }

    fn with_tensors(stores: Vec<Store>, tensors: Vec<(String, usize)>) -> Self {
        let by_name = tensors.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let entry = |(name, store)| Entry { name, place: Place::Stored(store), used: AtomicBool::new(false) };
        Self {
            stores: stores.into_iter().map(Arc::new).collect(),
            tensors: tensors.into_iter().map(entry).collect(),
            by_name,
            added: (0, 0),
            family: TensorNames::LLAMA,
        }
    }

    /// The store that holds the tensor of this name as it was before any adapter, and its name there.
    pub(super) fn place(&self, name: &str) -> Option<(Arc<Store>, String)> {
        let entry = &self.tensors[self.find(name)?];
        match &entry.place {
            Place::Stored(store) => Some((Arc::clone(&self.stores[*store]), entry.name.clone())),
            Place::Adapted(_) => None,
        }
    }

    /// The store that holds the tensor of this name as it was before any adapter.
    pub(super) fn store(&self, name: &str) -> Option<&Arc<Store>> {
        match self.find(name).map(|at| &self.tensors[at].place)? {
            Place::Stored(store) => Some(&self.stores[*store]),
            Place::Adapted(_) => None,
        }
    }

    /// Puts a tensor that is made while it is read in the place of the one of this name, or beside the
    /// others.
    pub(super) fn adapt(&mut self, name: String, tensor: AdaptedTensor) {
        if let Some(at) = self.find(&name) {
            // Products added to blocks are no blocks, and take more memory.
            let before = self.tensor(&name).ok().flatten().map_or(0, |before| before.bytes.len());
            self.added.0 += tensor.num_bytes().saturating_sub(before) as u64;
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
        if let Some(at) = self.find(name) {
            let entry = self.tensors.remove(at);
            self.by_name.remove(&entry.name);
            self.by_name.values_mut().filter(|other| **other > at).for_each(|other| *other -= 1);
        }
    }

    /// All files and other places that hold tensors.
    pub(super) fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// The names of the tensors in the store of this index.
    pub(super) fn stored_in(&self, store: usize) -> impl Iterator<Item = &str> {
        let own = move |entry: &&Entry| matches!(entry.place, Place::Stored(at) if at == store);
        self.tensors.iter().filter(own).map(|entry| &*entry.name)
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
        let Some(entry) = self.find(name).map(|at| &self.tensors[at]) else { return Ok(None) };
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
        let entry = self.find(name).map(|at| &self.tensors[at]).ok_or_else(missing)?;
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
        self.find(name).is_some()
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|entry| entry.name.as_str())
    }

    /// The name of each tensor, how it is stored, its numbers and its bytes in the files.
    pub(super) fn described(&self) -> impl Iterator<Item = (&str, String, u64, u64)> {
        self.tensors.iter().filter_map(|entry| {
            let (dtype, numbers, bytes) = match &entry.place {
                Place::Stored(store) => self.stores[*store].described(&entry.name)?,
                Place::Adapted(tensor) => of_view(&tensor.view(&entry.name)),
            };
            Some((&*entry.name, dtype, numbers, bytes))
        })
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

    /// The bytes that a model reads of them: matrices that are stored quantized are made while they are read.
    pub fn read_len(&self) -> u64 {
        let (read, stored) = self.quantized().map(QuantizedTensors::read_and_stored).unwrap_or_default();
        (self.data_len() + read).saturating_sub(stored)
    }

    /// The memory that they take where each keeps its stored type.
    pub fn kept_len(&self) -> u64 {
        self.data_len() + self.quantized().map_or(0, QuantizedTensors::excess)
    }

    /// The numbers in all weight files, or in memory.
    pub fn num_elements(&self) -> u64 {
        let sum = self.stores.iter().map(|store| store.num_elements()).sum::<u64>() + self.added.1;
        sum.saturating_sub(self.quantized().map_or(0, QuantizedTensors::num_stored))
    }

    fn quantized(&self) -> Option<&QuantizedTensors> {
        self.stores.iter().find_map(|store| match &**store {
            Store::Quantized(tensors) => Some(tensors),
            _ => None,
        })
    }
}

/// The weight file that config.json names, and whether it is an index.
fn named_file(files: &ModelFiles) -> Result<Option<(String, bool)>> {
    let Some(text) = files.read_optional("config.json")? else { return Ok(None) };
    if !text.windows(NAMED.len()).any(|part| part == NAMED.as_bytes()) {
        return Ok(None);
    }
    let config = read_object("config.json", &text, MAX_TEXT_BYTES)?;
    let Some(value) = config.get(NAMED).filter(|value| !value.is_null()) else { return Ok(None) };
    let named = value.as_str().map(|file| (file.to_owned(), file.ends_with(".safetensors.index.json")));
    named.filter(|(file, is_index)| *is_index || file.ends_with(".safetensors")).map(Some).ok_or_else(|| {
        let found = shown(value);
        Error::load(format!(
            "config.json: {NAMED} must be the name of a .safetensors or .safetensors.index.json file, found {found}; correct it"
        ))
    })
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
