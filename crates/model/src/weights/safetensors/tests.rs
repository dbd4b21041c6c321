//! Tests of one safetensors file: what is read, and a table of hostile files.

use serde_json::{Value, json};

use super::*;

/// A file with these tensors, in this order, whose bytes count up from 0.
pub(in crate::weights) fn safetensors_file(tensors: &[(&str, &str, &[usize])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, dtype, shape) in tensors {
        let size = match *dtype {
            "F64" | "I64" => 8,
            "F32" | "I32" => 4,
            _ => 2,
        };
        let start = end;
        end += shape.iter().product::<usize>() * size;
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        header.insert((*name).to_owned(), entry);
    }
    file(&Value::Object(header).to_string(), &(0..end).map(|byte| byte as u8).collect::<Vec<u8>>())
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn open(bytes: Vec<u8>) -> Result<TensorFile> {
    TensorFile::new("model.safetensors", FileBytes::Owned(bytes), &mut HeaderLimits::default())
}

#[test]
fn tensors_are_found_with_type_shape_and_bytes() {
    let shapes: [(&str, &str, &[usize]); 4] =
        [("a", "F32", &[2, 1]), ("b", "BF16", &[3]), ("c", "F16", &[]), ("empty", "F32", &[0, 5])];
    let file = open(safetensors_file(&shapes)).unwrap();
    assert_eq!((file.tensor_names().len(), file.data_len()), (4, 16));
    let b = file.tensor("b").unwrap().unwrap();
    assert_eq!((b.encoding, b.shape), (DType::Bf16.into(), &[3][..]));
    assert_eq!(b.bytes.to_vec().unwrap(), [8, 9, 10, 11, 12, 13]);
    let c = file.tensor("c").unwrap().unwrap();
    assert_eq!((c.encoding, c.shape), (DType::F16.into(), &[][..]));
    assert_eq!(c.bytes.to_vec().unwrap(), [14, 15]);
    assert!(file.tensor("empty").unwrap().unwrap().bytes.is_empty());
    assert!(file.tensor("d").unwrap().is_none());
}

#[test]
fn the_bundled_model_is_read_whole() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/rsgen/models/story-3m/model.safetensors");
    let file = open(std::fs::read(path).unwrap()).unwrap();
    let names = file.tensor_names();
    assert_eq!(names.len(), 2 + 6 * 9);
    let mut total = 0;
    for name in &names {
        let tensor = file.tensor(name).unwrap().unwrap();
        assert_eq!(tensor.bytes.len(), tensor.encoding.bytes_of(tensor.shape.iter().product()).unwrap());
        total += tensor.bytes.len();
    }
    assert_eq!(total, file.data_len());
}

#[test]
fn other_types_are_refused_when_asked_for() {
    let file = open(safetensors_file(&[("a", "F64", &[2]), ("b", "F32", &[1])])).unwrap();
    let error = file.tensor("a").unwrap_err().to_string();
    assert_eq!(
        error,
        "model.safetensors: a must be stored as F32, BF16 or F16, found F64; load the model with transformers and save it \
         with `dtype` float32"
    );
    assert!(file.tensor("b").unwrap().is_some());
}

#[test]
fn hostile_files_are_refused() {
    let one = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":{a}}},
                "b":{{"dtype":"F32","shape":[1],"data_offsets":{b}}}}}"#
        )
    };
    let with_length = |length: u64| {
        let mut bytes = file(one, &[0; 8]);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let mut large = vec![b' '; 8 + MAX_HEADER_BYTES + 1];
    large[..8].copy_from_slice(&(MAX_HEADER_BYTES as u64 + 1).to_le_bytes());
    large[8] = b'{';
    let deep = format!(r#"{{"__metadata__":{}}}"#, "[".repeat(200_000));
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "at least 8 bytes, found 0"),
        ("seven bytes", vec![1; 7], "at least 8 bytes, found 7"),
        ("only a length", 5_u64.to_le_bytes().to_vec(), "only 0 bytes follow"),
        ("truncated header", file(one, &[0; 8])[..30].to_vec(), "only 22 bytes follow"),
        ("truncated data", file(one, &[0; 7]), "do not fill"),
        ("data beyond the tensors", file(one, &[0; 9]), "do not fill"),
        ("header length too long", with_length(1 << 20), "bytes follow"),
        ("header length too short", with_length(20), "header is refused"),
        ("header length zero", with_length(0), "must be a JSON object"),
        ("header length near the end of numbers", with_length(u64::MAX), "at most"),
        ("header above the cap", large, "at most"),
        ("header is a list", file("[]", &[]), "must be a JSON object"),
        ("header begins with a space", file(&format!(" {one}"), &[0; 8]), "must be a JSON object"),
        ("header is no text", file("{\u{0}\u{ff}", &[]), "header is refused"),
        ("deep header", file(&deep, &[]), "recursion limit"),
        ("overlap", file(&two("[0,4]", "[2,6]"), &[0; 6]), "do not fill"),
        ("same place twice", file(&two("[0,4]", "[0,4]"), &[0; 4]), "do not fill"),
        ("hole", file(&two("[0,4]", "[6,10]"), &[0; 10]), "do not fill"),
        ("does not begin at 0", file(&two("[4,8]", "[8,12]"), &[0; 12]), "do not fill"),
        ("end before start", file(&one.replace("[0,8]", "[8,0]"), &[0; 8]), "whose end is before the start"),
        (
            "beyond the file",
            file(&one.replace("[0,8]", "[0,8000000000]").replace("[2]", "[2000000000]"), &[0; 8]),
            "do not fill",
        ),
        (
            "negative offset",
            file(&one.replace("[0,8]", "[-8,0]"), &[0; 8]),
            "data_offsets [-8,0], which are not two places",
        ),
        (
            "three offsets",
            file(&one.replace("[0,8]", "[0,8,8]"), &[0; 8]),
            "[0,8,8], which are not two places",
        ),
        (
            "shape larger than the bytes",
            file(&one.replace("[2]", "[3]"), &[0; 8]),
            "\"a\" has the shape [3] of dtype \"F32\", but its data_offsets [0,8] hold 8 bytes",
        ),
        ("shape smaller than the bytes", file(&one.replace("[2]", "[1]"), &[0; 8]), "hold 8 bytes"),
        (
            "shape whose product wraps to the right size",
            file(&one.replace("[2]", "[9223372036854775809,2]"), &[0; 8]),
            "hold 8 bytes",
        ),
        ("fractional shape", file(&one.replace("[2]", "[2.5]"), &[0; 8]), "[2.5], which is no list of sizes"),
        ("wrong type name", file(&one.replace("F32", "F33"), &[0; 8]), "unknown dtype \"F33\""),
        ("type of another size", file(&one.replace("F32", "F64"), &[0; 8]), "hold 8 bytes"),
        ("no offsets", file(r#"{"a":{"dtype":"F32","shape":[2]}}"#, &[0; 8]), "\"a\" has no data_offsets"),
        ("entry is no object", file(r#"{"a":3}"#, &[]), "\"a\" has no dtype"),
        (
            "a name twice",
            file(&two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), &[0; 8]),
            "\"a\" comes twice",
        ),
        (
            "a field twice",
            file(&one.replace("\"shape\"", "\"shape\":[2],\"shape\""), &[0; 8]),
            "the key \"shape\" comes twice",
        ),
        (
            "metadata twice",
            file(&one.replace("{\"a\"", r#"{"__metadata__":{},"__metadata__":{},"a""#), &[0; 8]),
            "comes twice",
        ),
        (
            "a key of the metadata twice",
            file(&one.replace("{\"a\"", r#"{"__metadata__":{"k":"1","k":"2"},"a""#), &[0; 8]),
            "\"k\" comes twice",
        ),
        ("text after the header", file(&format!("{one}x"), &[0; 8]), "header is refused"),
    ];
    for (what, bytes, reason) in table {
        let error = open(bytes).expect_err(what).to_string();
        assert!(error.starts_with("model.safetensors: "), "{what}: {error}");
        assert!(error.contains(reason), "{what}: {error}");
    }
}

#[test]
fn a_header_cannot_hold_much_in_one_entry_or_in_its_metadata() {
    let entry = |shape: &str| {
        format!(r#"{{"model.norm.weight":{{"dtype":"F32","shape":[{shape}0],"data_offsets":[0,0]}}}}"#)
    };
    assert!(open(file(&entry(&"0,".repeat(30)), &[])).is_ok());
    for shape in ["0,".repeat(1000), "0,".repeat(15_000_000), "[[[]]],".repeat(1000)] {
        let error = open(file(&entry(&shape), &[])).unwrap_err().to_string();
        assert!(error.contains("\"model.norm.weight\" its values take more than 16384 bytes"), "{error}");
    }
    let metadata: Vec<String> = (0..1_000_000).map(|key| format!("\"{key}\":\"\"")).collect();
    let error = open(file(&format!(r#"{{"__metadata__":{{{}}}}}"#, metadata.join(",")), &[])).unwrap_err();
    assert!(error.to_string().contains("its values take more than 16777216 bytes"), "{error}");
}

#[test]
fn names_are_shown_in_harmless_words() {
    let name = format!("\u{202e}\u{200b}\\u001b[2J{}", "x".repeat(100_000));
    let header = |entry: &str| format!(r#"{{"{name}":{entry}}}"#);
    for entry in ["3", r#"{"dtype":"F32","shape":[9],"data_offsets":[0,0]}"#] {
        let error = open(file(&header(entry), &[])).unwrap_err().to_string();
        assert!(error.contains(r"\u{202e}\u{200b}\u{1b}[2Jxxx") && error.contains("…xxx"), "{error}");
        assert!(error.chars().count() < 500, "{error}");
    }
    let stored = open(file(&header(r#"{"dtype":"I8","shape":[0],"data_offsets":[0,0]}"#), &[])).unwrap();
    let error = stored.tensor(&stored.tensor_names()[0]).unwrap_err().to_string();
    assert!(error.contains(r"\u{202e}\u{200b}\u{1b}[2Jxxx") && error.chars().count() < 500, "{error}");
}

#[test]
fn spaces_after_the_header_are_allowed() {
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   "#;
    assert!(open(file(header, &[0; 8])).is_ok());
}

#[test]
fn too_many_tensors_are_refused_and_the_most_are_read_in_time() {
    let header = |count: usize| {
        let entries: Vec<String> = (0..count)
            .map(|index| format!(r#""t{index}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#))
            .collect();
        format!("{{{}}}", entries.join(","))
    };
    let started = std::time::Instant::now();
    assert_eq!(open(file(&header(MAX_TENSORS), &[])).unwrap().tensor_names().len(), MAX_TENSORS);
    assert!(started.elapsed().as_secs() < 10);
    let error = open(file(&header(MAX_TENSORS + 1), &[])).unwrap_err().to_string();
    assert!(error.contains("more than 100000 tensors"), "{error}");
}
