//! Tests of folders, links and the layout of the Hugging Face cache.

use std::fs;

use super::super::shards::Weights;
use super::*;

#[test]
fn a_folder_gives_the_files_it_has() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), b"{}").unwrap();
    let files = ModelFiles::open(folder.path().to_str().unwrap(), None, None).unwrap();
    assert_eq!(files.config().unwrap().as_ref(), b"{}");
    assert_eq!(files.generation_config().unwrap(), None);
    assert_eq!(files.read_optional("tokenizer.json").unwrap(), None);
    assert!(files.weight_file("model.safetensors").unwrap().is_none());
    assert!(files.contains("config.json") && !files.contains("../config.json"));
    assert_eq!(files.path(), Some(folder.path()));
    let error = files.read("tokenizer.json").unwrap_err().to_string();
    assert!(error.contains("tokenizer.json is missing"), "{error}");
}

#[test]
fn a_file_is_no_model_and_no_id_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, b"x").unwrap();
    let error = ModelFiles::folder(&path).unwrap_err().to_string();
    assert!(error.contains("it must be a folder, found a file"), "{error}");
    let error = ModelFiles::open(path.to_str().unwrap(), None, None).unwrap_err().to_string();
    assert!(error.contains("found another file; give the folder"), "{error}");
    assert!(ModelFiles::folder(folder.path().join("none")).is_err());
}

#[test]
fn what_is_no_model_is_recognised_with_the_remedy() {
    let open = |files: &[(&str, &[u8])]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let files = ModelFiles::folder(folder.path()).unwrap();
        files.config().and_then(|_| Weights::open(&files)).unwrap_err().to_string()
    };
    let config: (&str, &[u8]) = ("config.json", b"{}");
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 9\n";
    let error = open(&[config, ("model.safetensors", pointer)]);
    assert!(error.contains("model.safetensors: it is a Git LFS pointer"), "{error}");
    assert!(error.contains("`git lfs pull`"), "{error}");
    let error = open(&[("config.json", pointer)]);
    assert!(error.contains("config.json: it is a Git LFS pointer"), "{error}");

    let page = format!("\u{feff}\n<!DOCTYPE html><html>{}</html>", "a ".repeat(1000));
    for (name, page) in [
        ("model.safetensors", page.as_bytes()),
        ("pytorch_model.bin", page.as_bytes()),
        ("model.safetensors.index.json", b"<html>"),
        ("config.json", b"<HTML lang=en>Sign in"),
    ] {
        let others = if name == "config.json" { vec![] } else { vec![config] };
        let error = open(&[&others[..], &[(name, page)]].concat());
        assert!(error.contains(&format!("{name}: it is an HTML page")), "{error}");
        assert!(error.contains("`hf download`"), "{error}");
    }

    let gguf = b"GGUF\x03\0\0\0\0\0";
    let error = open(&[config, ("tiny-Q4_0.gguf", gguf)]);
    assert!(error.contains("it holds GGUF files; open one by its path, such as "), "{error}");
    assert!(error.ends_with("tiny-Q4_0.gguf"), "{error}");
    let error = open(&[config, ("model.safetensors", gguf)]);
    assert!(error.contains("it is a GGUF file under the name of another; open it by its path"), "{error}");
    // One that begins as such is one, whatever its name: those of Ollama have no ending.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), gguf).unwrap();
    let error = ModelFiles::open(file.path().to_str().unwrap(), None, None).unwrap_err().to_string();
    assert!(error.contains("tensor_count takes 8 bytes, but only 2 follow"), "{error}");

    let adapter: (&str, &[u8]) = ("adapter_config.json", br#"{"base_model_name_or_path": "org/base"}"#);
    for files in [vec![adapter], vec![config, adapter]] {
        let error = open(&files);
        assert!(error.contains("it is a PEFT adapter (LoRA) for \"org/base\", not a model"), "{error}");
        assert!(error.contains("--adapter folder"), "{error}");
    }
    assert!(open(&[("adapter_config.json", b"{")]).contains("(LoRA), not a model"));
}

#[test]
fn a_folder_in_place_of_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("config.json")).unwrap();
    let error = ModelFiles::folder(folder.path()).unwrap().config().unwrap_err().to_string();
    assert!(error.contains("must be a regular file"), "{error}");
}

#[cfg(unix)]
#[test]
fn pipes_in_the_place_of_a_model_or_its_files_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let path = folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let model = pipe("model");
    let error = ModelFiles::open(model.to_str().unwrap(), None, None).unwrap_err().to_string();
    assert!(error.contains("it must be the folder of a model"), "{error}");
    pipe("adapter_config.json");
    let files = ModelFiles::folder(folder.path()).unwrap();
    let error = files.config().unwrap_err().to_string();
    assert!(error.contains("config.json is missing"), "{error}");
    for name in ["config.json", "model.safetensors"] {
        pipe(name);
        let error = files.weight_file(name).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("must be a regular file"), "{error}");
    }
}

#[test]
fn a_large_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("config.json")).unwrap();
    file.set_len(MAX_TEXT_BYTES as u64 + 1).unwrap();
    let error = ModelFiles::folder(folder.path()).unwrap().config().unwrap_err().to_string();
    assert!(error.contains("config.json may have at most"), "{error}");
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_within_the_folder_is_followed_and_one_out_of_it_is_not() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"secret").unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("real.json"), b"{}").unwrap();
        symlink("real.json", folder.path().join("config.json")).unwrap();
        symlink(outside.path().join("secret"), folder.path().join("tokenizer.json")).unwrap();
        symlink("/dev/zero", folder.path().join("tokenizer_config.json")).unwrap();
        symlink("nowhere", folder.path().join("generation_config.json")).unwrap();
        let files = ModelFiles::folder(folder.path()).unwrap();
        assert_eq!(files.config().unwrap().as_ref(), b"{}");
        for result in [files.read_optional("tokenizer.json"), files.read_optional("tokenizer_config.json")] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("is a link out of the model's folder"), "{error}");
        }
        let error = files.generation_config().unwrap_err().to_string();
        assert!(error.contains("generation_config.json cannot be read"), "{error}");
    }

    #[test]
    fn a_folder_that_is_itself_a_link_is_fine() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("real")).unwrap();
        fs::write(place.path().join("real/config.json"), b"{}").unwrap();
        symlink("real", place.path().join("model")).unwrap();
        assert!(ModelFiles::folder(place.path().join("model")).unwrap().config().is_ok());
    }

    #[test]
    fn a_snapshot_of_the_cache_links_to_its_blobs() {
        let cache = tempfile::tempdir().unwrap();
        let repository = cache.path().join("models--org--name");
        let snapshot = repository.join("snapshots/0123");
        for folder in [&snapshot, &repository.join("blobs"), &cache.path().join("blobs/ab")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(repository.join("blobs/etag"), b"{}").unwrap();
        fs::write(cache.path().join("blobs/ab/abcd"), b"weights").unwrap();
        fs::write(cache.path().join("other"), b"other").unwrap();
        symlink("../../blobs/etag", snapshot.join("config.json")).unwrap();
        // A file that several repositories share: a link in the snapshot to a link among the blobs.
        symlink("../../blobs/ab/abcd", repository.join("blobs/shared")).unwrap();
        symlink("../../blobs/shared", snapshot.join("model.safetensors")).unwrap();
        symlink("../../../other", snapshot.join("tokenizer.json")).unwrap();
        let files = ModelFiles::folder(&snapshot).unwrap();
        assert_eq!(files.config().unwrap().as_ref(), b"{}");
        let weights = files.weight_file("model.safetensors").unwrap().unwrap();
        assert_eq!(weights.stored().to_vec().unwrap(), b"weights");
        assert!(files.read_optional("tokenizer.json").is_err(), "a link beside the blobs leads out");
    }

    #[test]
    fn links_of_a_snapshot_stay_within_its_model_whatever_its_blobs_are() {
        let (cache, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(outside.path().join("ab")).unwrap();
        for name in ["secret", "ab/abcd"] {
            fs::write(outside.path().join(name), b"{}").unwrap();
        }
        let repository = cache.path().join("models--org--name");
        let snapshot = repository.join("snapshots/0123");
        fs::create_dir_all(&snapshot).unwrap();
        symlink(outside.path(), repository.join("blobs")).unwrap();
        symlink(outside.path(), cache.path().join("blobs")).unwrap();
        symlink("../../blobs/secret", snapshot.join("config.json")).unwrap();
        symlink("../../../blobs/ab/abcd", snapshot.join("tokenizer.json")).unwrap();
        // A folder among the blobs, and another model's.
        let other = cache.path().join("models--org--other");
        fs::create_dir_all(other.join("blobs/deep")).unwrap();
        fs::create_dir_all(other.join("snapshots/0123")).unwrap();
        fs::write(other.join("blobs/etag"), b"{}").unwrap();
        fs::write(other.join("blobs/deep/etag"), b"{}").unwrap();
        symlink("../../../models--org--other/blobs/etag", snapshot.join("generation_config.json")).unwrap();
        symlink("../../blobs/deep/etag", other.join("snapshots/0123/config.json")).unwrap();
        let files = ModelFiles::folder(&snapshot).unwrap();
        let others = ModelFiles::folder(other.join("snapshots/0123")).unwrap();
        for result in [
            files.config().map(Some),
            files.read_optional("tokenizer.json"),
            files.generation_config(),
            others.config().map(Some),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("is a link out of the model's folder"), "{error}");
        }
    }

    #[test]
    fn names_of_links_are_shown_in_harmless_words() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join(format!("\u{202e}\u{1b}[2J{}", "x".repeat(240)));
        fs::write(&target, b"{}").unwrap();
        symlink(&target, folder.path().join("config.json")).unwrap();
        let error = ModelFiles::folder(folder.path()).unwrap().config().unwrap_err().to_string();
        assert!(error.contains("…") && !error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error}");
        assert!(error.ends_with("copy the file into the folder") && error.chars().count() < 500, "{error}");
    }

    #[test]
    fn blobs_beside_an_ordinary_folder_are_out_of_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("models/mine")).unwrap();
        fs::create_dir_all(place.path().join("blobs")).unwrap();
        fs::write(place.path().join("blobs/x"), b"{}").unwrap();
        symlink("../../blobs/x", place.path().join("models/mine/config.json")).unwrap();
        assert!(ModelFiles::folder(place.path().join("models/mine")).unwrap().config().is_err());
    }
}
