//! Tests of sharded models: what an index may say.

use std::fs;

use super::super::safetensors::tests::safetensors_file;
use super::*;

/// A folder with two shards and this index.
fn folder(index: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("a.safetensors", &safetensors_file(&[("x", "F32", &[2]), ("y", "F32", &[1])]));
    write("b.safetensors", &safetensors_file(&[("z", "BF16", &[3]), ("x", "F32", &[7])]));
    write(FORMATS[0].1, index.as_bytes());
    folder
}

fn open(folder: &tempfile::TempDir) -> Result<Weights> {
    Weights::open(&ModelFiles::folder(folder.path()).unwrap())
}

#[test]
fn tensors_come_from_the_shard_that_the_index_names() {
    let index = r#"{"metadata": {"total_size": 18}, "weight_map":
        {"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}"#;
    let weights = open(&folder(index)).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["x", "y", "z"]);
    assert_eq!(weights.tensor("x").unwrap().unwrap().shape, [2]);
    assert_eq!(weights.tensor("z").unwrap().unwrap().shape, [3]);
    assert_eq!(weights.data_len(), 12 + 34);
}

#[test]
fn a_single_file_wins_over_an_index() {
    let folder = folder("this is not even JSON");
    fs::write(folder.path().join(FORMATS[0].0), safetensors_file(&[("w", "F16", &[2])])).unwrap();
    assert_eq!(open(&folder).unwrap().names().collect::<Vec<_>>(), ["w"]);
}

#[test]
fn what_the_index_says_must_be_so() {
    for (index, reason) in [
        ("[]", "must be a JSON object"),
        ("{}", "weight_map must be an object"),
        (r#"{"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}}"#, "\"x\" comes twice"),
        (r#"{"weight_map": {"x": 3}}"#, "must be the name of a .safetensors file"),
        (r#"{"weight_map": {"x": "a.bin"}}"#, "must be the name of a .safetensors file"),
        (
            r#"{"weight_map": {"x": "c.safetensors"}}"#,
            "\"c.safetensors\" is missing; download the model again",
        ),
        (r#"{"weight_map": {"z": "a.safetensors"}}"#, "z is not in a.safetensors"),
        (r#"{"weight_map": {"q": "a.safetensors"}}"#, "q is not in a.safetensors"),
    ] {
        let error = open(&folder(index)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn names_that_lead_out_of_the_folder_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("s.safetensors");
    fs::write(&secret, safetensors_file(&[("x", "F32", &[2])])).unwrap();
    for name in [
        "../s.safetensors",
        "..\\\\s.safetensors",
        "sub/s.safetensors",
        "./a.safetensors",
        ".hidden.safetensors",
        "..safetensors",
        "/etc/s.safetensors",
        "C:s.safetensors",
        "C:\\\\s.safetensors",
        "\\\\\\\\server\\\\s.safetensors",
        "a.safetensors:stream.safetensors",
        "a\\u0000.safetensors",
        "a\\n.safetensors",
        secret.to_str().unwrap(),
    ] {
        let index = format!(r#"{{"weight_map": {{"x": "{name}"}}}}"#);
        let error = open(&folder(&index)).expect_err(name).to_string();
        assert!(error.contains("a plain name"), "{name}: {error}");
    }
    // These are plain names that no file has.
    for name in ["%2e%2e%2fs.safetensors", "..\u{2215}s.safetensors", "NUL.safetensors", "~.safetensors"] {
        let index = format!(r#"{{"weight_map": {{"x": "{name}"}}}}"#);
        let error = open(&folder(&index)).expect_err(name).to_string();
        assert!(error.contains("a plain name") || error.contains("is missing"), "{name}: {error}");
    }
}

#[test]
fn a_damaged_shard_is_named() {
    let index = r#"{"weight_map": {"x": "a.safetensors", "z": "b.safetensors"}}"#;
    let folder = folder(index);
    let shard = folder.path().join("b.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.starts_with("b.safetensors: "), "{error}");
}

#[test]
fn a_folder_without_safetensors_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.contains("neither model.safetensors nor model.safetensors.index.json"), "{error}");
    fs::write(folder.path().join("pytorch_model.bin"), b"x").unwrap();
    let error = open(&folder).unwrap_err().to_string();
    assert!(error.contains("pytorch_model.bin: it is no file of torch.save"), "{error}");
}

#[cfg(unix)]
#[test]
fn the_shards_of_a_model_are_limited_together() {
    let folder = tempfile::tempdir().unwrap();
    let tensors: Vec<(String, &str, &[usize])> =
        (0..4000).map(|index| (format!("tensor.{index}"), "F32", &[0][..])).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, dtype, shape)| (&**name, *dtype, *shape)).collect();
    fs::write(folder.path().join("0.safetensors"), safetensors_file(&tensors)).unwrap();
    for link in 1..1100 {
        let link = folder.path().join(format!("{link}.safetensors"));
        std::os::unix::fs::symlink("0.safetensors", link).unwrap();
    }
    let refused = |shards: usize| {
        let map: Vec<String> =
            (0..shards).map(|shard| format!(r#""tensor.{shard}":"{shard}.safetensors""#)).collect();
        fs::write(folder.path().join(FORMATS[0].1), format!(r#"{{"weight_map":{{{}}}}}"#, map.join(",")))
            .unwrap();
        open(&folder).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(25), "");
    assert!(refused(26).contains("more than 100000 tensors"), "{}", refused(26));
    assert!(
        refused(1001).contains("weight_map may name at most 1000 files, found 1001"),
        "{}",
        refused(1001)
    );
    let long: Vec<String> =
        (0..9).map(|index| format!("tensor.{index}")).chain(["x".repeat(4 << 20)]).collect();
    let long: Vec<_> = long.iter().map(|name| (&**name, "F32", &[0][..])).collect();
    fs::write(folder.path().join("0.safetensors"), safetensors_file(&long)).unwrap();
    assert_eq!(refused(7), "");
    assert!(
        refused(9).contains("7.safetensors: all headers may have at most 33554432 bytes"),
        "{}",
        refused(9)
    );
}
