//! The files of a model: in a folder, in a snapshot of the local Hugging Face cache, in GGUF files, embedded in
//! the binary, or in memory.
//!
//! Only regular files in the model's own folder are opened; in the Hugging Face cache also links to the
//! cache's blobs. The contents are not interpreted here.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::foreign::{foreign_file, foreign_folder};
use super::gguf::{self, GgufModel};
use super::hub_cache::HubCache;
use super::in_memory::TensorSource;
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::files::open_regular;
use rsgen_core::json::shown;
use rsgen_kernels::tensor::StoredBytes;

mod gguf_file;

/// The largest file that is read as text, such as config.json or tokenizer.json.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// The files of a model that are read as text, besides those of its tokenizer.
const TEXTS: [&str; 2] = ["config.json", "generation_config.json"];
/// The files of a model's folder that belong to its tokenizer.
pub const TOKENIZER_FILES: [&str; 13] = [
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
];
/// The folder of additional chat templates, and its limits.
const TEMPLATE_FOLDER: &str = "additional_chat_templates";
const MAX_TEMPLATES: usize = 64;
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// The files of one model.
#[derive(Clone)]
pub struct ModelFiles {
    name: String,
    location: Location,
}

#[derive(Clone)]
enum Location {
    Folder {
        path: PathBuf,
        /// The same without links.
        real: PathBuf,
    },
    Embedded(&'static [(&'static str, &'static [u8])]),
    Memory {
        files: Arc<[(String, Vec<u8>)]>,
        /// The caller's tensors, instead of weight files.
        tensors: Option<Arc<dyn TensorSource>>,
    },
    Gguf(Arc<GgufModel>),
}

/// The contents of a weight file.
pub enum FileBytes {
    /// A file on disk, and how long it was when it was opened.
    OnDisk(File, usize),
    /// A part of the binary.
    Static(&'static [u8]),
    /// Bytes in memory.
    Owned(Vec<u8>),
}

impl FileBytes {
    /// All of them.
    pub fn stored(&self) -> StoredBytes<'_> {
        match self {
            Self::OnDisk(file, len) => StoredBytes::File { file, start: 0, len: *len },
            Self::Static(bytes) => StoredBytes::Memory(bytes),
            Self::Owned(bytes) => StoredBytes::Memory(bytes),
        }
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBytes({} bytes)", self.stored().len())
    }
}

impl fmt::Debug for ModelFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFiles").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl ModelFiles {
    /// Finds a model: a folder of this path if there is one, else a Hub id such as `org/name` in the local
    /// cache.
    ///
    /// `revision` is a branch, a tag, a pull request (`refs/pr/1`) or a commit, `main` when absent; a folder
    /// has none. `cache` is the place of the cache, that of the environment when absent.
    ///
    /// # Errors
    /// `Load`, saying where it looked and how to download the model.
    pub fn open(model: &str, revision: Option<&str>, cache: Option<&Path>) -> Result<Self> {
        if Path::new(model).is_dir() {
            return Self::folder(model);
        }
        let path = Path::new(model);
        if path.exists() {
            let mut first = [0; 4];
            let read = open_regular(path).and_then(|mut file| file.read_exact(&mut first));
            if path.extension().is_some_and(|ending| ending == "gguf") || read.is_ok() && gguf::is_one(&first)
            {
                return Self::gguf_file(path);
            }
            return Err(Error::load(format!(
                "{model}: it must be the folder of a model or a GGUF file, found another file; give the folder that it is in"
            )));
        }
        let cache = cache.map_or_else(HubCache::from_env, HubCache::at);
        let folder = cache.find(model, revision)?;
        Ok(Self { name: model.to_owned(), ..Self::folder(folder)? })
    }

    /// The files of a folder.
    ///
    /// # Errors
    /// `Load` when there is no such folder.
    pub fn folder(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let refused =
            |error| Error::load(format!("{}: it must be a folder", path.display())).with_source(error);
        let real = path.canonicalize().map_err(refused)?;
        if !real.is_dir() {
            return Err(Error::load(format!("{}: it must be a folder, found a file", path.display())));
        }
        let name = path.display().to_string();
        let folder = Self { name, location: Location::Folder { path: path.to_owned(), real } };
        match gguf::only_file(path) {
            Some(file) if !folder.contains("config.json") => Self::gguf_file(&path.join(file)),
            _ => Ok(folder),
        }
    }

    /// The files in memory.
    fn in_memory_files(&self) -> Option<&[(String, Vec<u8>)]> {
        match &self.location {
            Location::Memory { files, .. } => Some(files),
            Location::Gguf(model) => Some(model.texts()),
            Location::Folder { .. } | Location::Embedded(_) => None,
        }
    }

    /// Files that are part of the program, by name.
    pub fn embedded(name: &str, files: &'static [(&'static str, &'static [u8])]) -> Self {
        Self { name: name.to_owned(), location: Location::Embedded(files) }
    }

    /// Files in memory, by name, and what there is in place of weight files.
    pub fn in_memory(
        name: impl Into<String>,
        files: impl Into<Arc<[(String, Vec<u8>)]>>,
        tensors: Option<Arc<dyn TensorSource>>,
    ) -> Self {
        Self { name: name.into(), location: Location::Memory { files: files.into(), tensors } }
    }

    /// The tensors that the caller has in place of weight files.
    pub(super) fn tensors(&self) -> Option<&Arc<dyn TensorSource>> {
        match &self.location {
            Location::Memory { tensors, .. } => tensors.as_ref(),
            Location::Folder { .. } | Location::Embedded(_) | Location::Gguf(_) => None,
        }
    }

    /// Whether the model is one of GGUF files.
    pub fn is_gguf(&self) -> bool {
        matches!(self.location, Location::Gguf(_))
    }

    /// The path or id that the model was asked for by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder, unless the model is part of the binary or in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.location {
            Location::Folder { path, .. } => Some(path),
            Location::Embedded(_) | Location::Memory { .. } | Location::Gguf(_) => None,
        }
    }

    /// The text of `config.json`.
    ///
    /// # Errors
    /// `Load` when it is missing or cannot be read.
    pub fn config(&self) -> Result<Cow<'static, [u8]>> {
        self.read("config.json")
    }

    /// The text of `generation_config.json`, if there is one.
    ///
    /// # Errors
    /// `Load` when it cannot be read.
    pub fn generation_config(&self) -> Result<Option<Cow<'static, [u8]>>> {
        self.read_optional("generation_config.json")
    }

    /// The text of `tokenizer_config.json`, if there is one.
    ///
    /// # Errors
    /// `Load` when it cannot be read.
    pub fn tokenizer_config(&self) -> Result<Option<Cow<'static, [u8]>>> {
        self.read_optional("tokenizer_config.json")
    }

    /// The text of `chat_template.jinja`, if there is one.
    ///
    /// # Errors
    /// `Load` when it cannot be read.
    pub fn chat_template(&self) -> Result<Option<Cow<'static, [u8]>>> {
        self.read_optional("chat_template.jinja")
    }

    /// The files `additional_chat_templates/*.jinja`, by their names without the ending, in order.
    ///
    /// # Errors
    /// `Load` when there are more than 64, or one is larger than 1 MiB, no plain file of the model, or cannot
    /// be read.
    pub fn additional_chat_templates(&self) -> Result<Vec<(String, Vec<u8>)>> {
        if let Some(files) = self.in_memory_files() {
            let templates = files.iter().filter_map(|(name, text)| {
                let name = name.strip_prefix(TEMPLATE_FOLDER)?.strip_prefix('/')?.strip_suffix(".jinja")?;
                Some((name.to_owned(), text.clone()))
            });
            return Ok(templates.collect());
        }
        let Some(folder) =
            self.path().map(|path| path.join(TEMPLATE_FOLDER)).filter(|folder| folder.is_dir())
        else {
            return Ok(Vec::new());
        };
        let unreadable = |error| self.unreadable(TEMPLATE_FOLDER).with_source(error);
        let mut templates = Vec::new();
        for entry in folder.read_dir().map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some((file, name)) =
                name.to_str().and_then(|file| Some((file, file.strip_suffix(".jinja")?)))
            else {
                continue;
            };
            let label = format!("{TEMPLATE_FOLDER}/{file}");
            let Some(Located::File(handle)) = self.locate_in(Some(TEMPLATE_FOLDER), file)? else { continue };
            let mut bytes = Vec::new();
            let read = handle.take(MAX_TEMPLATE_BYTES + 1).read_to_end(&mut bytes);
            read.map_err(|error| self.unreadable(&label).with_source(error))?;
            if bytes.len() as u64 > MAX_TEMPLATE_BYTES {
                return Err(Error::load(format!(
                    "{}: {label} may have at most {MAX_TEMPLATE_BYTES} bytes",
                    self.name
                )));
            }
            templates.push((name.to_owned(), bytes));
            if templates.len() > MAX_TEMPLATES {
                return Err(Error::load(format!(
                    "{}: {TEMPLATE_FOLDER} may hold at most {MAX_TEMPLATES} templates",
                    self.name
                )));
            }
        }
        templates.sort();
        Ok(templates)
    }

    /// All files of the model but its weights, by name.
    ///
    /// # Errors
    /// `Load` when one cannot be read.
    pub fn texts(&self) -> Result<Vec<(String, Cow<'static, [u8]>)>> {
        let mut texts = Vec::new();
        for name in TEXTS.into_iter().chain(TOKENIZER_FILES) {
            texts.extend(self.read_optional(name)?.map(|text| (name.to_owned(), text)));
        }
        let templates = self.additional_chat_templates()?.into_iter();
        texts.extend(templates.map(|(name, text)| (format!("{TEMPLATE_FOLDER}/{name}.jinja"), text.into())));
        Ok(texts)
    }

    /// The contents of a file of at most 64 MiB that must be there.
    ///
    /// # Errors
    /// `Load` when it is missing, too large, not a plain file of the model, or cannot be read.
    pub fn read(&self, file: &str) -> Result<Cow<'static, [u8]>> {
        self.read_optional(file)?.ok_or_else(|| {
            Error::load(match self.foreign() {
                Some(foreign) => format!("{}: {file} is missing; {foreign}", self.name),
                None => format!("{}: {file} is missing; is it the folder of a model?", self.name),
            })
        })
    }

    /// As [`Self::read`], for a file that may be missing.
    ///
    /// # Errors
    /// `Load` when it is too large, not a plain file of the model, or cannot be read.
    pub fn read_optional(&self, file: &str) -> Result<Option<Cow<'static, [u8]>>> {
        match self.locate(file)? {
            None => Ok(None),
            Some(Located::Static(bytes)) => Ok(Some(Cow::Borrowed(bytes))),
            Some(Located::Owned(bytes)) => Ok(Some(Cow::Owned(bytes))),
            Some(Located::File(handle)) => {
                let mut bytes = Vec::new();
                // One byte more tells a file that is too large, whatever its length is said to be.
                let read = handle.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes);
                read.map_err(|error| self.unreadable(file).with_source(error))?;
                if bytes.len() > MAX_TEXT_BYTES {
                    return Err(Error::load(format!(
                        "{}: {file} may have at most {MAX_TEXT_BYTES} bytes",
                        self.name
                    )));
                }
                Ok(Some(Cow::Owned(bytes)))
            }
        }
    }

    /// Opens a weight file of any size, if it is there.
    ///
    /// # Errors
    /// `Load` when it is not a plain file of the model, or cannot be opened.
    pub fn weight_file(&self, file: &str) -> Result<Option<FileBytes>> {
        match self.locate(file)? {
            None => Ok(None),
            Some(Located::Static(bytes)) => Ok(Some(FileBytes::Static(bytes))),
            Some(Located::Owned(bytes)) => Ok(Some(FileBytes::Owned(bytes))),
            Some(Located::File(handle)) => {
                let len = handle.metadata().map_err(|error| self.unreadable(file).with_source(error))?.len();
                let len = usize::try_from(len).map_err(|error| self.unreadable(file).with_source(error))?;
                Ok(Some(FileBytes::OnDisk(handle, len)))
            }
        }
    }

    /// The error message for a folder that is recognised as something else than a model.
    pub(super) fn foreign(&self) -> Option<String> {
        self.path().and_then(foreign_folder)
    }

    /// Whether the model has a file of this name.
    pub fn contains(&self, file: &str) -> bool {
        match &self.location {
            Location::Embedded(files) => files.iter().any(|(name, _)| *name == file),
            Location::Memory { .. } | Location::Gguf(_) => {
                self.in_memory_files().is_some_and(|files| files.iter().any(|(name, _)| name == file))
            }
            Location::Folder { path, .. } => is_plain_file_name(file) && path.join(file).exists(),
        }
    }

    fn locate(&self, file: &str) -> Result<Option<Located>> {
        self.locate_in(None, file)
    }

    /// A file right in the model's folder, or in one of the folders in there.
    fn locate_in(&self, folder: Option<&str>, file: &str) -> Result<Option<Located>> {
        if !is_plain_file_name(file) {
            return Err(Error::load(format!(
                "{}: a file of a model must have a plain name, without folders, a leading dot or a colon, found {}",
                self.name,
                shown(&file.into())
            )));
        }
        let (path, own) = match &self.location {
            Location::Embedded(files) => {
                let found = files.iter().find(|(name, _)| folder.is_none() && *name == file);
                return Ok(found.map(|(_, bytes)| Located::Static(bytes)));
            }
            Location::Memory { .. } | Location::Gguf(_) => {
                let found = self.in_memory_files().unwrap_or_default().iter().find(|(name, _)| name == file);
                return Ok(found.map(|(_, bytes)| Located::Owned(bytes.clone())));
            }
            Location::Folder { path, real } => (path.join(folder.unwrap_or("")).join(file), real),
        };
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        // A dangling link remains of an interrupted or deleted download.
        let real = path.canonicalize().map_err(|error| self.unreadable(file).with_source(error))?;
        if !real.starts_with(own) && !is_blob_of(own, &real) {
            return Err(Error::load(format!(
                "{}: {file} is a link out of the model's folder, to {}; copy the file into the folder",
                escape::name(&self.name),
                escape::name(&real.to_string_lossy())
            )));
        }
        let unreadable = |error| self.unreadable(file).with_source(error);
        let handle = open_regular(&real).map_err(unreadable)?;
        if let Some(foreign) = foreign_file(&handle).map_err(unreadable)? {
            return Err(Error::load(format!("{}: {file}: {foreign}", self.name)));
        }
        Ok(Some(Located::File(handle)))
    }

    #[cold]
    fn unreadable(&self, file: &str) -> Error {
        Error::load(format!("{}: {file} cannot be read", self.name))
    }
}

enum Located {
    File(File),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

/// Whether a name is that of a file directly in a folder, on every operating system.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with('.')
        && !name.contains(|char: char| matches!(char, '/' | '\\' | ':') || char.is_control())
}

/// Whether a file is one that a snapshot of the Hugging Face cache links to: `blobs/HASH` of its own model,
/// or `blobs/HA/HASH` of the store that the models of a cache share. Both paths are without links, so a
/// `blobs` that is itself a link leads elsewhere.
fn is_blob_of(snapshot: &Path, file: &Path) -> bool {
    let repository = snapshot
        .parent()
        .filter(|parent| parent.file_name().is_some_and(|name| name == "snapshots"))
        .and_then(Path::parent);
    let (Some(repository), Some(hash)) = (repository, file.file_name().and_then(|name| name.to_str())) else {
        return false;
    };
    let is_model =
        repository.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with("models--"));
    let shared = repository.parent().filter(|_| is_model).zip(hash.get(..2));
    file == repository.join("blobs").join(hash)
        || shared.is_some_and(|(cache, prefix)| file == cache.join("blobs").join(prefix).join(hash))
}

#[cfg(test)]
mod tests;
