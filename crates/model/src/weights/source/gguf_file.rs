//! The files of a model that is one GGUF file, or several.

use std::path::Path;
use std::sync::Arc;

use super::super::foreign::foreign_file;
use super::super::gguf::{GgufModel, GgufTensors};
use super::{FileBytes, Location, ModelFiles, TOKENIZER_FILES};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::files::open_regular;

impl ModelFiles {
    /// The model of a GGUF file, or of several of which it is the first.
    ///
    /// # Errors
    /// `Load` when the file cannot be read, is damaged, or holds a model of a kind that is not supported.
    pub fn gguf_file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        // Right after a separator, there is no parent but the folder at work.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let real = folder.canonicalize();
        let real =
            real.map_err(|error| Error::load(format!("{name}: it cannot be read")).with_source(error))?;
        let location = Location::Folder { path: folder.to_owned(), real };
        let beside = Self { name: folder.display().to_string(), location };
        // The file that is named may be a link to anywhere; those beside it may not.
        let unreadable = |error| Error::load(format!("{name}: it cannot be read")).with_source(error);
        let handle = open_regular(path).map_err(unreadable)?;
        if let Some(foreign) = foreign_file(&handle).map_err(unreadable)? {
            return Err(Error::load(format!("{name}: {foreign}")));
        }
        let len = handle.metadata().map_err(unreadable)?.len();
        let bytes = FileBytes::OnDisk(handle, usize::try_from(len).unwrap_or(usize::MAX));
        // The model's own tokenizer says more than its copy in the file.
        let mut texts = Vec::new();
        if ["tokenizer.json", "tokenizer.model"].into_iter().any(|name| beside.contains(name)) {
            for name in TOKENIZER_FILES {
                texts.extend(beside.read_optional(name)?.map(|text| (name.to_owned(), text.into_owned())));
            }
        }
        let model = GgufModel::new(file, bytes, &|file| beside.weight_file(file), texts);
        let model = model.context(|| beside.name.clone())?;
        Ok(Self { name, location: Location::Gguf(Arc::new(model)) })
    }

    /// The model of a GGUF file in memory.
    ///
    /// # Errors
    /// As for [`Self::gguf_file`].
    pub fn gguf_in_memory(name: &str, file: Vec<u8>) -> Result<Self> {
        let model = GgufModel::new(name, file.into(), &|_| Ok(None), Vec::new())?;
        Ok(Self { name: name.to_owned(), location: Location::Gguf(Arc::new(model)) })
    }

    /// The tensors of GGUF files.
    ///
    /// # Errors
    /// `Load` for a file of a vocabulary alone.
    pub(in super::super) fn gguf(&self) -> Result<Option<&Arc<GgufTensors>>> {
        match &self.location {
            Location::Gguf(model) => model.tensors().context(|| self.name.clone()).map(Some),
            Location::Folder { .. } | Location::Embedded(_) | Location::Memory { .. } => Ok(None),
        }
    }
}
