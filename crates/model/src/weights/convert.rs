//! Writes the tensors of `pytorch_model.bin` or of GGUF files as safetensors, tensor by tensor.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::gguf::GgufTensors;
use super::packed::{Item, Unread, write};
use super::shards::{FORMATS, Weights};
use super::store::Store;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

impl Weights {
    /// Writes a safetensors file for each weight file into a folder, and their index if there are several; of
    /// GGUF files one, in which blocks are the `float32` numbers that they stand for. With `is_tied`, of
    /// tensors that share their bytes only the first is written. Returns the number of files and the bytes of
    /// their tensors.
    ///
    /// # Errors
    /// `Load` when the weights are neither a `pytorch_model.bin` nor GGUF, or a file cannot be read or written;
    /// `Cancelled`.
    pub fn write_safetensors(
        &self,
        folder: &Path,
        is_tied: bool,
        cancelled: &AtomicBool,
    ) -> Result<(usize, u64)> {
        let [(single, index, _), (torch, ..)] = FORMATS;
        let num_files = self.stores().len();
        let (mut map, mut total, mut places) = (serde_json::Map::new(), 0, HashSet::new());
        for (at, store) in self.stores().iter().enumerate() {
            let out = match num_files {
                1 => single.to_owned(),
                _ => format!("model-{:05}-of-{num_files:05}.safetensors", at + 1),
            };
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            let unread = RefCell::new(None);
            let items = match &**store {
                Store::Torch(file) => {
                    let mut items = Vec::new();
                    for name in self.stored_in(at) {
                        let Some((dtype, shape, bytes)) = file.stored(name) else { continue };
                        if is_tied && !bytes.is_empty() && !places.insert((at, file.place(name))) {
                            continue;
                        }
                        let item = Item::Tensor { name, dtype, shape, bytes, unread: &unread };
                        items.push((name.to_owned(), item));
                    }
                    items
                }
                Store::Gguf(tensors) => self.gguf_items(tensors, &unread)?,
                Store::File(_) | Store::Memory(_) | Store::Quantized(_) => {
                    return Err(Error::load(format!(
                        "there is no {torch} to convert, and no GGUF file; open the model as it is"
                    )));
                }
            };
            map.extend(items.iter().map(|(name, _)| (name.clone(), out.as_str().into())));
            let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
            total += write(&folder.join(&out), metadata, items, &unread)?;
        }
        if num_files > 1 {
            let text = json!({"metadata": {"total_size": total}, "weight_map": map}).to_string();
            let path = folder.join(index);
            fs::write(&path, text).map_err(|error| {
                Error::load(format!("{} cannot be written", escape::name(&path.to_string_lossy())))
                    .with_source(error)
            })?;
        }
        Ok((num_files, total))
    }

    /// All tensors of GGUF files: numbers as they are stored, blocks and what is in another order in `float32`.
    fn gguf_items<'a>(
        &self,
        tensors: &'a GgufTensors,
        unread: &'a Unread,
    ) -> Result<Vec<(String, Item<'a>)>> {
        let mut items = Vec::new();
        for name in tensors.names() {
            let Some(tensor) = tensors.tensor(name)? else { continue };
            // Matrices of `Conv1D` are stored as those of linear layers.
            let is_conv1d = tensor.is_transposed && self.is_transposed_in_class(name);
            let item = match *tensor.shape {
                [outputs, inputs] if is_conv1d => {
                    Item::Transposed { tensor, shape: [inputs, outputs], unread }
                }
                _ => Item::stored(tensor, unread),
            };
            items.push((name.to_owned(), item));
        }
        Ok(items)
    }
}
