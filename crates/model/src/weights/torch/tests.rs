//! Equality with torch on the files of `tests/golden/torch`, and files that nobody would want to open.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch").join(name)
}

fn open(bytes: Vec<u8>) -> Result<TorchFile> {
    TorchFile::new("x.bin", FileBytes::Owned(bytes), &mut HeaderLimits::default())
}

fn read_golden(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn dtype_name(dtype: Dtype) -> String {
    match dtype {
        Dtype::BF16 => "bfloat16".to_owned(),
        Dtype::C64 => "complex64".to_owned(),
        Dtype::BOOL => "bool".to_owned(),
        Dtype::F8_E4M3 => "float8_e4m3fn".to_owned(),
        Dtype::F8_E5M2 => "float8_e5m2".to_owned(),
        other => other.to_string().replace('F', "float").replace('U', "uint").replace('I', "int"),
    }
}

#[test]
fn files_of_torch_hold_what_torch_reads() {
    let expected: Json = serde_json::from_slice(&read_golden("expected.json")).unwrap();
    for (file, tensors) in expected.as_object().unwrap() {
        let handle = std::fs::File::open(golden(file)).unwrap();
        let len = handle.metadata().unwrap().len() as usize;
        let on_disk =
            TorchFile::new("x.bin", FileBytes::OnDisk(handle, len), &mut HeaderLimits::default()).unwrap();
        for opened in [&open(read_golden(file)).unwrap(), &on_disk] {
            let names = opened.tensor_names();
            assert_eq!(names.len(), tensors.as_object().unwrap().len(), "{file}");
            for name in names {
                let (dtype, shape, bytes) = opened.stored(&name).unwrap();
                let found = serde_json::json!([dtype_name(dtype), shape]);
                assert_eq!(
                    found,
                    serde_json::json!([tensors[&name]["dtype"], tensors[&name]["shape"]]),
                    "{file}: {name}"
                );
                let digits = tensors[&name]["bytes"].as_str().unwrap().as_bytes().chunks(2);
                let expected =
                    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap());
                assert_eq!(bytes.to_vec().unwrap(), expected.collect::<Vec<_>>(), "{file}: {name}");
                let is_weight = ["float32", "float16", "bfloat16"].contains(&&*dtype_name(dtype));
                assert_eq!(opened.tensor(&name).is_ok(), is_weight, "{file}: {name}");
            }
        }
    }
}

#[test]
fn tensors_of_one_storage_are_the_same_bytes_and_count_once() {
    for file in ["module.bin", "module_legacy.bin"] {
        let opened = open(read_golden(file)).unwrap();
        let [one, other] =
            ["embed.weight", "head.weight"].map(|name| opened.tensor(name).unwrap().unwrap().bytes);
        assert!(one.is_same(&other), "{file}");
        assert_eq!(opened.data_len(), 4 * (24 + 4 * 3) + 8, "{file}");
        assert_eq!(opened.num_elements(), 24 + 4 * 3 + 1, "{file}");
    }
}

#[test]
fn what_is_no_state_dict_is_refused_by_name() {
    let mut compressed = read_golden("beside.bin");
    // The method of the first entry in the directory.
    let directory = compressed.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    compressed[directory + 10] = 8;
    let legacy = |pickles: &[u8]| [LEGACY, b"\x80\x02M\xe9\x03.", pickles].concat();
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    for (bytes, reason) in [
        (read_golden("refused_module.bin"), "it holds __main__.Module, which is no part of a state dict"),
        (read_golden("refused_numpy.bin"), "it holds numpy._core.multiarray._reconstruct"),
        (read_golden("refused_sparse.bin"), "it holds torch._utils._rebuild_sparse_tensor"),
        (read_golden("refused_nested.bin"), "found \"state_dict\" that is a dictionary itself"),
        (read_golden("refused_list.bin"), "must hold a dictionary of names and tensors"),
        (read_golden("refused_protocol.bin"), "the instruction 0x95 at byte 2"),
        (read_golden("refused_script.bin"), "a program of TorchScript"),
        (compressed, "the entry data.pkl of its zip archive is compressed"),
        (legacy(b"\x80\x02}U\x0dlittle_endian\x89s."), "not little-endian"),
        (legacy(b"\x80\x02}.cos\nsystem\n"), "it holds os.system, which is no part"),
        (legacy(b"\x80\x02}.\x80\x02}(X\x01\x00\x00\x00aK\x01u.]."), ""),
        ([LEGACY, b"K\x01."].concat(), "an unknown version of torch.save"),
        (tar, "a tar archive"),
        (b"GGUF\x03\0\0\0".to_vec(), "a GGUF file"),
        (Vec::new(), "no file of torch.save"),
    ] {
        match open(bytes) {
            Ok(opened) => assert!(reason.is_empty() && opened.tensor_names().is_empty()),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !reason.is_empty() && error.starts_with("x.bin: ") && error.contains(reason),
                    "{error}"
                );
                assert!(
                    error.contains("save") || error.contains("download") || error.contains("open it"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn pickles_that_nest_or_grow_without_end_are_refused_in_bounded_memory() {
    for (pickle, reason) in [
        ([b"\x80\x02)".to_vec(), vec![0x85; 1 << 20], b".".to_vec()].concat(), "bytes of memory"),
        ([b"\x80\x02".to_vec(), vec![b']'; 8 << 20]].concat(), "bytes of memory"),
        ([b"\x80\x02".to_vec(), vec![b'('; 8 << 20]].concat(), "bytes of memory"),
        ([b"\x80\x02]".to_vec(), b"q\0h\0a".repeat(1 << 20), b".".to_vec()].concat(), ""),
        (b"\x80\x02}r\xff\xff\xff\xff.".to_vec(), "damaged"),
        (b"\x80\x02X\xff\xff\xff\xffab.".to_vec(), "ends at byte"),
        (b"\x80\x02}(K\x01u.".to_vec(), "damaged"),
        (b"\x80\x02t.".to_vec(), "damaged"),
        // A list that holds itself as the arguments of its own call.
        (b"\x80\x02](ctorch._tensor\n_rebuild_from_type_v2\nctorch\nTensor\nh\0e.".to_vec(), "damaged"),
    ] {
        let error = Unpickler::new(&pickle).load().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{error}");
    }
}

/// Opens a file and reads all of its tensors, which must be within it.
fn read_all(bytes: Vec<u8>) {
    let len = bytes.len();
    let Ok(file) = open(bytes) else { return };
    assert!(file.data_len() <= len);
    for name in file.tensor_names() {
        let (dtype, shape, bytes) = file.stored(&name).unwrap();
        assert_eq!(bytes.len(), shape.iter().product::<usize>() * bytes_of(dtype));
        assert_eq!(bytes.to_vec().unwrap().len(), bytes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_bytes_make_it_panic(
        file in prop::sample::select(vec!["zip.bin", "legacy.bin", "module_legacy.bin", "beside.bin"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = read_golden(file);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        read_all(bytes);
        read_all([LEGACY, &noise].concat());
        let _ = Unpickler::new(&noise).load();
        read_all(noise);
    }
}
