//! Writes the tensors of `pytorch_model.bin` as safetensors, file by file and tensor by tensor.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::super::packed::{Item, write};
use super::super::shards::{FORMATS, Weights};
use super::super::store::Store;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

impl Weights {
    /// Writes a safetensors file for each weight file into a folder, and their index if there are several.
    /// With `is_tied`, of tensors that share their bytes only the first is written. Returns the number of
    /// files and the bytes of their tensors.
    ///
    /// # Errors
    /// `Load` when the weights are no `pytorch_model.bin`, or a file cannot be read or written; `Cancelled`.
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
            let Store::Torch(file) = &**store else {
                return Err(Error::load(format!("there is no {torch} to convert; open the model as it is")));
            };
            let out = match num_files {
                1 => single.to_owned(),
                _ => format!("model-{:05}-of-{num_files:05}.safetensors", at + 1),
            };
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            let unread = RefCell::new(None);
            let mut items = Vec::new();
            for name in self.stored_in(at) {
                let Some((dtype, shape, bytes)) = file.stored(name) else { continue };
                if is_tied && !bytes.is_empty() && !places.insert((at, file.place(name))) {
                    continue;
                }
                map.insert(name.to_owned(), out.as_str().into());
                items.push((name.to_owned(), Item::Tensor { name, dtype, shape, bytes, unread: &unread }));
            }
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
}
