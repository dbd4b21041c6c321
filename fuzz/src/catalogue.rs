//! The file of a catalogue.

use rsgen_core::error::ErrorKind;
use rsgen_generation::TokenTrie;

/// A file of a catalogue, as it is and with the checksum that belongs to its content: its entries are found, and
/// written again it is the same.
pub fn token_trie(data: &[u8]) {
    for data in [Some(data.to_vec()), with_checksum(data)].into_iter().flatten() {
        let trie = match TokenTrie::read(&mut &*data, data.len() as u64, &mut || false) {
            Ok(trie) => trie,
            Err(error) => {
                super::expect(&error, &[ErrorKind::Load]);
                continue;
            }
        };
        assert!(trie.memory_bytes() <= 2 * data.len());
        for (index, tokens) in trie.iter().enumerate() {
            assert!((1..=trie.longest()).contains(&tokens.len()));
            assert_eq!(trie.find(&tokens), Some(index));
            assert_eq!(trie.payload(index).is_some(), trie.has_payloads());
        }
        let mut written = Vec::new();
        trie.write(&mut written, &mut || false).expect("a list takes any bytes");
        assert_eq!(written, data);
    }
}

/// The same file with its checksum, if it has the sections that its header names.
fn with_checksum(data: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| Some(u64::from_le_bytes(*data.get(at..at + 8)?.first_chunk()?));
    let [nodes, entries, payloads] = [number(8)?, number(16)?, number(24)?];
    let (ends, text) = if payloads == u64::MAX { (0, 0) } else { (entries.checked_mul(8)?, payloads) };
    let of_nodes = nodes.checked_mul(4)?;
    let (mut sum, mut rest) = (0xcbf2_9ce4_8422_2325_u64, data.get(40..)?);
    for len in [of_nodes, of_nodes.checked_add(4)?, of_nodes, ends, text] {
        let (section, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        for word in section.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            sum = (sum ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        rest = after;
    }
    let mut data = data.to_vec();
    data[32..40].copy_from_slice(&sum.to_le_bytes());
    Some(data)
}
