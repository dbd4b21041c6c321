//! Tests of catalogues and their files.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use rsgen_core::ErrorKind;

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

fn trie(entries: &[&[u32]]) -> TokenTrie {
    TokenTrie::new(entries.iter().map(|entry| ids(entry))).unwrap()
}

fn bytes(trie: &TokenTrie) -> Vec<u8> {
    let mut bytes = Vec::new();
    trie.write(&mut bytes, &mut || false).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<TokenTrie> {
    TokenTrie::read(&mut &*bytes, bytes.len() as u64, &mut || false)
}

#[test]
fn children_and_ends_are_those_of_the_entries() {
    let trie = trie(&[&[5, 6, 7], &[5], &[5, 2], &[1]]);
    assert_eq!((trie.len(), trie.longest()), (4, 3));
    assert_eq!(trie.children(ROOT), ids(&[1, 5]));
    let five = trie.node_after(&ids(&[5])).unwrap();
    assert_eq!((trie.children(five), trie.entry_of(five)), (&ids(&[2, 6])[..], Some(1)));
    let six = trie.node_after(&ids(&[5, 6])).unwrap();
    assert_eq!((trie.children(six), trie.entry_of(six)), (&ids(&[7])[..], None));
    assert_eq!(trie.node_after(&ids(&[5, 9])), None);
    assert_eq!(trie.iter().collect::<Vec<_>>(), [ids(&[5, 6, 7]), ids(&[5]), ids(&[5, 2]), ids(&[1])]);
    assert_eq!(trie.token_ids(4), None);
}

#[test]
fn the_entry_of_a_row_has_its_tokens_before_the_end() {
    let trie = trie(&[&[5, 0], &[5, 6], &[5], &[7, 0]]);
    let entry = |tokens: &[u32]| trie.entry(&ids(tokens)).map(|entry| entry.index);
    assert_eq!(entry(&[5, 6, 0]), Some(1));
    assert_eq!(entry(&[5, 9]), Some(2));
    assert_eq!(entry(&[5, 0]), Some(0), "the end is its own");
    assert_eq!(entry(&[7, 9]), None);
    assert_eq!(entry(&[0]), None);
    assert_eq!(entry(&[]), None);
}

#[test]
fn entries_that_cannot_be_told_apart_or_have_no_token_are_refused() {
    let error = |entries: &[&[u32]]| TokenTrie::new(entries.iter().map(|entry| ids(entry))).unwrap_err();
    let none = error(&[]);
    assert_eq!(none.kind(), ErrorKind::Input);
    assert!(none.to_string().contains("at least one entry"), "{none}");
    assert!(error(&[&[1], &[]]).to_string().contains("entry 1: it has no token"));
    let same = error(&[&[1, 2, 3], &[9], &[1, 2, 3], &[9], &[1, 2, 3]]);
    assert_eq!(same.prompt_index(), Some(2));
    assert!(
        same.to_string().contains("entry 2: it has the same tokens as entry 0, and 2 more such"),
        "{same}"
    );
    let mut builder = TokenTrieBuilder::default();
    builder.add(&ids(&[1]), Some(&json!("a"))).unwrap();
    assert!(builder.add(&ids(&[2]), None).unwrap_err().to_string().contains("entry 1: either all"));
}

#[test]
fn payloads_come_back_also_from_the_file() {
    let values = [json!("Ünï"), json!(7), json!(null), json!({"a": [1.5, true]})];
    let mut builder = TokenTrieBuilder::default();
    for (token, value) in values.iter().enumerate() {
        builder.add(&[TokenId(9 - token as u32)], Some(value)).unwrap();
    }
    let trie = builder.build(&mut || false).unwrap();
    for trie in [&trie, &read(&bytes(&trie)).unwrap()] {
        assert!(values.iter().enumerate().all(|(index, value)| trie.payload(index).as_ref() == Some(value)));
        assert_eq!(trie.entry(&ids(&[8, 0])).unwrap().payload, Some(json!(7)));
    }
}

#[test]
fn a_file_is_written_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.trie");
    let trie = trie(&[&[5, 6, 7], &[5], &[1]]);
    trie.save(&path, &mut || false).unwrap();
    assert!(TokenTrie::open(&path, &mut || false).unwrap() == trie);
    let missing = TokenTrie::open(folder.path().join("none"), &mut || false).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Load);
    assert!(TokenTrie::open(folder.path(), &mut || false).unwrap_err().to_string().contains("regular file"));
    assert_eq!(trie.save(folder.path(), &mut || false).unwrap_err().kind(), ErrorKind::Load);
}

#[test]
fn a_damaged_file_is_an_error_that_names_the_field() {
    let mut builder = TokenTrieBuilder::default();
    for entry in [&[5, 6, 7][..], &[5], &[1]] {
        builder.add(&ids(entry), Some(&json!("name"))).unwrap();
    }
    let whole = bytes(&builder.build(&mut || false).unwrap());
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len]).unwrap_err().kind(), ErrorKind::Load, "{len} bytes");
    }
    let with = |at: usize, value: u64| {
        let mut changed = whole.clone();
        changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        read(&changed).unwrap_err()
    };
    for (at, field) in [(8, "num_nodes"), (16, "num_entries"), (24, "num_nodes"), (32, "checksum")] {
        for value in [0, 1, 1 << 20, u64::from(u32::MAX), u64::MAX - 1] {
            let error = with(at, value);
            assert_eq!(error.kind(), ErrorKind::Load);
            assert!(at == 24 || error.field().is_some(), "{field} {value}: {error}");
        }
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            assert_eq!(read(&changed).unwrap_err().kind(), ErrorKind::Load, "byte {at}");
        }
    }
}

/// A file with this content, whatever it is, and the checksum that belongs to it.
fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let [nodes, entries, payloads] =
        [8, 16, 24].map(|at| u64::from_le_bytes(content[at..at + 8].try_into().unwrap()) as usize);
    let mut rest = &content[40..];
    for len in [4 * nodes, 4 * nodes + 4, 4 * nodes, 8 * entries, payloads] {
        let (section, after) = rest.split_at(len);
        for word in section.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            sum = (sum ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        rest = after;
    }
    content[32..40].copy_from_slice(&sum.to_le_bytes());
    content
}

#[test]
fn arrays_that_contradict_each_other_are_found_without_the_checksum() {
    let mut builder = TokenTrieBuilder::default();
    for entry in [&[5, 6, 7][..], &[5], &[1]] {
        builder.add(&ids(entry), Some(&json!("name"))).unwrap();
    }
    let trie = builder.build(&mut || false).unwrap();
    let whole = bytes(&trie);
    assert_eq!(with_checksum(whole.clone()), whole);
    let (tokens, first_child) = (40, 40 + 4 * trie.tokens.len());
    let entries = first_child + 4 * trie.first_child.len();
    let (ends, text) = (entries + 4 * trie.entries.len(), entries + 4 * trie.entries.len() + 24);
    for (at, value, field) in [
        (tokens + 4, 6, "tokens"),
        (first_child, 0, "first_child"),
        (first_child + 4, 1, "first_child"),
        (first_child + 4, 9, "first_child"),
        (first_child + 8, u32::MAX, "first_child"),
        (entries, 0, "entries"),
        (entries + 4, 0, "entries"),
        (entries + 4, 7, "entries"),
        (entries + 4, NO_ENTRY, "entries"),
        (ends, 9, "payload of entry 0"),
        (ends + 16, 2, "payloads"),
        (text, 0xff, "payloads"),
        (text, u32::from_le_bytes(*b"nul,"), "payload"),
    ] {
        let mut changed = whole.clone();
        changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let error = read(&with_checksum(changed)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Load);
        assert!(error.to_string().contains(field), "{at} {value}: {error}");
    }
}

#[test]
fn a_build_that_is_interrupted_ends() {
    let mut builder = TokenTrieBuilder::default();
    for entry in 0..200_000 {
        builder.add(&ids(&[entry % 7, entry]), None).unwrap();
    }
    let mut polls = 0;
    let counted = builder.build(&mut || {
        polls += 1;
        polls == 9
    });
    assert_eq!(counted.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(polls, 9);
}

proptest! {
    #[test]
    fn any_entries_are_found_as_in_a_map(
        entries in prop::collection::btree_set(prop::collection::vec(0_u32..5, 1..5), 1..60),
        shift in 0_usize..60,
    ) {
        let mut list: Vec<Vec<TokenId>> = entries.iter().map(|entry| ids(entry)).collect();
        let len = list.len();
        list.rotate_left(shift % len);
        let trie = TokenTrie::new(&list).unwrap();
        prop_assert!(trie.memory_bytes() <= 16 * list.iter().map(Vec::len).sum::<usize>() + 16);
        prop_assert_eq!(trie.iter().collect::<Vec<_>>(), list.clone());
        prop_assert_eq!(trie.longest(), list.iter().map(Vec::len).max().unwrap());
        let mut following: BTreeMap<Vec<TokenId>, BTreeSet<TokenId>> = BTreeMap::new();
        for entry in &list {
            for len in 0..entry.len() {
                following.entry(entry[..len].to_vec()).or_default().insert(entry[len]);
            }
        }
        for (beginning, tokens) in &following {
            let node = trie.node_after(beginning).unwrap();
            prop_assert_eq!(trie.children(node).to_vec(), tokens.iter().copied().collect::<Vec<_>>());
        }
        for (index, entry) in list.iter().enumerate() {
            prop_assert_eq!(trie.find(entry), Some(index));
            let longer = [&entry[..], &[TokenId(7)]].concat();
            prop_assert_eq!(trie.find(&longer), None);
        }
        prop_assert!(read(&bytes(&trie)).unwrap() == trie);
    }

    #[test]
    fn any_bytes_are_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&content).is_err());
    }
}
