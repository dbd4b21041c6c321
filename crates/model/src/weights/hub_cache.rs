//! The local cache of the Hugging Face Hub, read as `huggingface_hub` writes it: `refs/<revision>` names a
//! commit, `snapshots/<commit>` is the model's folder.
//!
//! Nothing is downloaded or written. The error for a missing model names the command that downloads it.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use rsgen_core::error::{Error, Result};
use rsgen_core::files::open_regular;
use rsgen_core::json::shown;
use rsgen_core::types::Choice;

/// The path of the cache in the cache folder of the user.
const XDG_PLACE: &str = "huggingface/hub";
/// The most bytes read of a file in `refs/`, which holds the name of a commit.
const MAX_REFERENCE_BYTES: u64 = 1024;

/// A cache folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCache {
    folder: PathBuf,
}

/// Why a folder is the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum HubCacheReason {
    /// An environment variable names it, or a folder around it.
    Environment {
        /// Its name.
        variable: &'static str,
    },
    /// It is the default folder in the home folder.
    Home,
}

impl fmt::Display for HubCacheReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { variable } => write!(f, "named by {variable}"),
            Self::Home => f.write_str("the usual place in the home folder"),
        }
    }
}

impl HubCache {
    /// The cache that the environment names: `HF_HUB_CACHE`, else `$HF_HOME/hub`, else
    /// `$XDG_CACHE_HOME/huggingface/hub`, else `~/.cache/huggingface/hub`.
    pub fn from_env() -> Self {
        Self::choose().value
    }

    /// [`HubCache::from_env`], with what names it.
    pub fn choose() -> Choice<Self, HubCacheReason> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The cache in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder of a model in this cache.
    ///
    /// `revision` is a branch, a tag, a pull request (`refs/pr/1`) or a commit, `main` when absent.
    ///
    /// # Errors
    /// `Load` when `model` is no Hub id, or this revision of it is not in the cache.
    pub fn find(&self, model: &str, revision: Option<&str>) -> Result<PathBuf> {
        if model.starts_with('~') {
            return Err(Error::load(format!(
                "{}: only a shell expands `~`, and only without quotes; write the path out, or use os.path.expanduser in \
                 Python",
                shown(&model.into())
            )));
        }
        if !is_hub_id(model) {
            return Err(Error::load(format!(
                "{}: there is no folder of this path, and it is no id of the Hugging Face Hub such as org/name; check the \
                 path",
                shown(&model.into())
            )));
        }
        let wanted = revision.unwrap_or("main");
        if !wanted.split('/').all(is_plain_segment) {
            return Err(Error::load(format!(
                "revision must be a branch, a tag, refs/pr/<number> or a commit, found {wanted:?}"
            )));
        }
        let repository = self.folder.join(format!("models--{}", model.replace('/', "--")));
        let reference = repository.join("refs").join(wanted);
        let mut commit = String::new();
        let read = open_regular(&reference)
            .and_then(|file| file.take(MAX_REFERENCE_BYTES).read_to_string(&mut commit));
        let commit = match read.map(|_| commit) {
            Ok(commit) if is_plain_segment(commit.trim()) => commit.trim().to_owned(),
            Ok(_) => {
                return Err(Error::load(format!(
                    "{}: it must name a commit; download the model again",
                    reference.display()
                )));
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                wanted.to_owned()
            }
            Err(error) => {
                let message = format!("{}: it cannot be read; download the model again", reference.display());
                return Err(Error::load(message).with_source(error));
            }
        };
        let snapshot = repository.join("snapshots").join(commit);
        // A revision with a slash is never a snapshot of its own.
        if snapshot.parent().is_some_and(|parent| parent.ends_with("snapshots")) && snapshot.is_dir() {
            return Ok(snapshot);
        }
        let option = revision.map(|revision| format!(" --revision {revision}")).unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_default().join(model);
        Err(Error::load(format!(
            "{model}: there is neither a folder {} nor the revision {wanted} in the Hugging Face cache at {}; \
             download it with: hf download {model}{option}",
            here.display(),
            repository.display()
        )))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Choice<Self, HubCacheReason> {
        let set = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let home = set("HOME").or_else(|| set("USERPROFILE")).map_or_else(PathBuf::new, PathBuf::from);
        let expanded = |path: &str| match path.strip_prefix('~') {
            Some("") => home.clone(),
            Some(rest) if rest.starts_with(['/', '\\']) => home.join(&rest[1..]),
            _ => PathBuf::from(path),
        };
        // The second name is the one that old versions of huggingface_hub used.
        let places = [
            ("HF_HUB_CACHE", ""),
            ("HUGGINGFACE_HUB_CACHE", ""),
            ("HF_HOME", "hub"),
            ("XDG_CACHE_HOME", XDG_PLACE),
        ];
        let named = places.into_iter().find_map(|(variable, rest)| {
            let folder = expanded(&set(variable)?);
            let folder = if rest.is_empty() { folder } else { folder.join(rest) };
            Some(Choice::new(Self::at(folder), HubCacheReason::Environment { variable }))
        });
        named.unwrap_or_else(|| {
            Choice::new(Self::at(home.join(".cache").join(XDG_PLACE)), HubCacheReason::Home)
        })
    }

    /// The cache folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The ids of the models in it, in alphabetical order, complete or not.
    pub fn models(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut models: Vec<String> = names
            .filter_map(|name| Some(name.strip_prefix("models--")?.replacen("--", "/", 1)))
            .filter(|model| is_hub_id(model))
            .collect();
        models.sort_unstable();
        models
    }
}

/// `name` or `org/name`, by the Hub's own rules.
fn is_hub_id(model: &str) -> bool {
    model.len() <= 96
        && model.split('/').count() <= 2
        && model.split('/').all(is_plain_segment)
        && !model.contains("--")
        && !model.contains("..")
}

/// A name that cannot lead out of a folder.
fn is_plain_segment(segment: &str) -> bool {
    !segment.is_empty()
        && segment.len() <= 255
        && !segment.starts_with(['.', '-'])
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A cache with the branch `main`, a tag, and a pull request.
    fn cache() -> (tempfile::TempDir, HubCache) {
        let folder = tempfile::tempdir().unwrap();
        let repository = folder.path().join("models--org--name");
        fs::create_dir_all(repository.join("snapshots").join(COMMIT)).unwrap();
        fs::create_dir_all(repository.join("snapshots/feed")).unwrap();
        fs::create_dir_all(repository.join("refs/refs/pr")).unwrap();
        fs::write(repository.join("refs/main"), COMMIT).unwrap();
        fs::write(repository.join("refs/v1.0"), format!("{COMMIT}\n")).unwrap();
        fs::write(repository.join("refs/refs/pr/1"), "feed").unwrap();
        fs::write(repository.join("refs/gone"), "dead").unwrap();
        fs::write(repository.join("refs/evil"), "../../../etc").unwrap();
        fs::write(repository.join("refs/long"), "a".repeat(1 << 20)).unwrap();
        let cache = HubCache::at(folder.path());
        (folder, cache)
    }

    #[test]
    fn branches_tags_pull_requests_and_commits_are_found() {
        let (_folder, cache) = cache();
        for (revision, commit) in
            [(None, COMMIT), (Some("v1.0"), COMMIT), (Some("refs/pr/1"), "feed"), (Some(COMMIT), COMMIT)]
        {
            let found = cache.find("org/name", revision).unwrap();
            assert!(found.ends_with(Path::new("models--org--name/snapshots").join(commit)), "{revision:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_said_with_the_place_and_the_command() {
        let (folder, cache) = cache();
        let place = folder.path().display().to_string();
        for (model, revision, command) in [
            ("org/other", None, "hf download org/other"),
            ("gpt", None, "hf download gpt"),
            ("org/name", Some("refs/pr/2"), "hf download org/name --revision refs/pr/2"),
            ("org/name", Some("gone"), "hf download org/name --revision gone"),
        ] {
            let error = cache.find(model, revision).unwrap_err().to_string();
            assert!(error.contains(&place) && error.ends_with(command), "{error}");
        }
    }

    #[test]
    fn names_that_lead_out_of_the_cache_are_refused() {
        let (_folder, cache) = cache();
        for model in
            ["../x", "a/b/c", "/etc", "", "org/", "./x", "a--b", "org/..", "org\\name", "o\0g", "a/-rf"]
        {
            let error = cache.find(model, None).unwrap_err().to_string();
            assert!(error.contains("no id of the Hugging Face Hub"), "{error}");
        }
        for revision in ["../../x", "/etc", "", "a//b", "refs/../..", "x\0", "-rf"] {
            let error = cache.find("org/name", Some(revision)).unwrap_err().to_string();
            assert!(error.contains("revision must be"), "{error}");
        }
        for revision in ["evil", "long"] {
            let error = cache.find("org/name", Some(revision)).unwrap_err().to_string();
            assert!(error.contains("must name a commit"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn references_that_are_no_regular_files_are_refused_at_once() {
        let (folder, cache) = cache();
        let references = folder.path().join("models--org--name/refs");
        let pipe = references.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", references.join("endless")).unwrap();
        for revision in ["pipe", "endless", "refs"] {
            let error = cache.find("org/name", Some(revision)).unwrap_err().to_string();
            let named = error.contains(&format!("refs/{revision}"));
            assert!(named && error.contains("must be a regular file"), "{error}");
        }
    }

    #[test]
    fn the_environment_is_asked_in_the_order_of_huggingface_hub() {
        let variables = [
            ("HF_HUB_CACHE", "/a"),
            ("HUGGINGFACE_HUB_CACHE", "~/b"),
            ("HF_HOME", "~"),
            ("XDG_CACHE_HOME", "/d"),
            ("HOME", "/home/u"),
        ];
        let expected =
            ["/a", "/home/u/b", "/home/u/hub", "/d/huggingface/hub", "/home/u/.cache/huggingface/hub"];
        for (first, expected) in expected.into_iter().enumerate() {
            let known = &variables[first..];
            let cache = HubCache::from_variables(|name| {
                let found = known.iter().find(|(known, _)| *known == name);
                // An empty variable counts as absent.
                found.map(|(_, value)| (*value).to_owned()).or(Some(String::new()))
            });
            assert_eq!(cache.value.folder(), Path::new(expected));
            let name = known.first().map(|(name, _)| *name).filter(|name| *name != "HOME");
            let reason =
                name.map_or(HubCacheReason::Home, |variable| HubCacheReason::Environment { variable });
            assert_eq!(cache.reason, reason);
        }
    }

    #[test]
    fn the_models_of_a_cache_are_listed_by_their_ids() {
        let (folder, cache) = cache();
        for name in ["models--gpt2", "datasets--org--text", "models--", "version.txt"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(cache.models(), ["gpt2", "org/name"]);
        assert!(HubCache::at(folder.path().join("missing")).models().is_empty());
    }
}
