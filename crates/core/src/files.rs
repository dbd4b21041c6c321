//! Opens regular files alone: a pipe or a device could block when it is opened, or never end; and says where a model is.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

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

/// Creates a file to write it, or empties the regular file that is there.
///
/// # Errors
/// `InvalidInput` for anything that is no regular file, and those of creating.
pub fn create_regular(path: &Path) -> Result<File> {
    match fs::metadata(path) {
        Ok(found) => check_regular(&found)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    open(path, File::options().write(true).create(true).truncate(true))
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
            create_regular(&path).unwrap().write_all(text.as_bytes()).unwrap();
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
            for opened in [open_regular(path), create_regular(path)] {
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::InvalidInput, "{}", path.display());
            }
        }
        // As if the pipe appeared between check and open: opening must not block.
        let opened = open(&pipe, File::options().read(true));
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_folder_and_a_file_have_an_absolute_path_and_an_id_stays() {
        for there in ["src", "Cargo.toml"] {
            assert_eq!(Path::new(&absolute(there)), Path::new(env!("CARGO_MANIFEST_DIR")).join(there));
        }
        assert_eq!(absolute("org/name"), "org/name");
    }
}
