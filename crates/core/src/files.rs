//! Regular files alone: a pipe or a device could block when it is opened, or never end. Files are replaced as a whole; and
//! where a model is.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The absolute path of a folder or file that is there; the id of a model unchanged.
pub fn absolute(model: &str) -> String {
    let path = std::path::absolute(model).ok().filter(|_| Path::new(model).exists());
    path.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_else(|| model.to_owned())
}

/// Opens a regular file to read it.
///
/// # Errors
/// `InvalidInput` for anything that is no regular file, and those of opening.
pub fn open_regular(path: &Path) -> Result<File> {
    // Opening a device may have effects, so it is not even opened.
    check_regular(&fs::metadata(path)?)?;
    open(path, File::options().read(true))
}

/// Writes a file beside `path` and puts it in the place of the regular file that is there, if any: whatever ends the
/// process, the file holds what it held before or all that `write` has written. A link stays one, and a file that is
/// replaced keeps its permissions. A process that is killed may leave `.rsgen-….partial` beside it.
///
/// # Errors
/// `InvalidInput` for anything that is no regular file, those of creating and renaming, and the error of `write`.
pub fn replace<T, E: From<Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let (path, before) = replaced(path)?;
    let mut partial = Partial::create(&path)?;
    let written = write(&mut partial.file)?;
    partial.put(&path, before)?;
    Ok(written)
}

/// Where the file is that a path names, and the permissions that it has.
fn replaced(path: &Path) -> Result<(PathBuf, Option<fs::Permissions>)> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path.to_owned(), None)),
        Err(error) => return Err(error),
    };
    check_regular(&found)?;
    // What may not be written is not replaced either.
    open(path, File::options().write(true))?;
    Ok((fs::canonicalize(path)?, Some(found.permissions())))
}

/// A file that is not whole yet, which goes away when it is dropped.
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    /// Creates one in the folder of a file.
    fn create(beside: &Path) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if beside.file_name().is_none() {
            return Err(Error::new(ErrorKind::InvalidInput, "it must end with the name of a file"));
        }
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = beside.with_file_name(format!(".rsgen-{}-{number}.partial", std::process::id()));
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file, path }),
                // A process of the same number was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts it in the place of a file.
    fn put(&self, place: &Path, permissions: Option<fs::Permissions>) -> Result<()> {
        permissions.map_or(Ok(()), |permissions| self.file.set_permissions(permissions))?;
        // Its bytes are on the disk before its name is.
        self.file.sync_all()?;
        fs::rename(&self.path, place)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After it was put in its place there is none.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens without waiting: since it was checked, a pipe may have been put in the place of the file.
fn open(path: &Path, options: &mut OpenOptions) -> Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(found: &fs::Metadata) -> Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, "it must be a regular file, found a folder, a pipe or a device"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn regular_files_are_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(open_regular(&path).unwrap_err().kind(), ErrorKind::NotFound);
        for text in ["some text", "text"] {
            replace(&path, |file| file.write_all(text.as_bytes())).unwrap();
            let mut read = String::new();
            open_regular(&path).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn folders_pipes_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [folder.path(), &pipe, &link] {
            let replaced = replace(path, |_| Ok::<_, Error>(()));
            for failed in [open_regular(path).unwrap_err(), replaced.unwrap_err()] {
                assert_eq!(failed.kind(), ErrorKind::InvalidInput, "{}", path.display());
            }
        }
        // As if the pipe appeared between check and open: opening must not block.
        let opened = open(&pipe, File::options().read(true));
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before").unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            // Nobody sees what is half written.
            assert_eq!(fs::read_to_string(&path)?, "before");
            Err::<(), _>(Error::other("full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "full");
        let panicked = std::panic::catch_unwind(|| {
            replace(&path, |file| {
                file.write_all(b"half")?;
                std::panic::panic_any("while it was written") as Result<()>
            })
        });
        assert!(panicked.is_err());
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), names(folder.path())),
            ("before".into(), vec!["file".into()])
        );
        // What a killed process of the same number has left.
        for number in 0..100 {
            let left = format!(".rsgen-{}-{number}.partial", std::process::id());
            fs::write(folder.path().join(left), "half").unwrap();
        }
        replace(&path, |file| file.write_all(b"after")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(names(folder.path()).len(), 101);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions_and_its_links() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, |file| file.write_all(b"after")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // A new one has the mode that all files get.
        let new = folder.path().join("new");
        replace(&new, |file| file.write_all(b"new")).unwrap();
        fs::write(path.with_extension("usual"), "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&new), mode(&path.with_extension("usual")));
    }

    #[test]
    fn a_folder_and_a_file_have_an_absolute_path_and_an_id_stays() {
        for there in ["src", "Cargo.toml"] {
            assert_eq!(Path::new(&absolute(there)), Path::new(env!("CARGO_MANIFEST_DIR")).join(there));
        }
        assert_eq!(absolute("org/name"), "org/name");
    }
}
