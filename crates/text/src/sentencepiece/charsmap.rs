//! The precompiled character map of a normalizer: a double-array trie of rules, and their replacements.
//!
//! The array comes from an untrusted file: steps out of bounds, texts that are not UTF-8 and rules that end
//! within a character match nothing.

use rsgen_core::error::{Error, Result};

/// The longest replacement; those of Unicode's normal forms have up to 33 bytes.
const MAX_REPLACEMENT_BYTES: usize = 1024;
/// The longest rule: a damaged array may contain cycles.
const MAX_RULE_BYTES: usize = 128;

/// The rules.
#[derive(Debug)]
pub(super) struct Charsmap {
    /// Each unit: a label in bits 0–7 and 31, in bit 8 whether a rule ends here, and the offset of the
    /// children above.
    units: Box<[u32]>,
    /// Each text ends with NUL.
    replacements: Box<str>,
}

impl Charsmap {
    /// Reads the length of the array in bytes, the array, and the texts; all numbers are little-endian.
    pub(super) fn new(bytes: &[u8]) -> Result<Self> {
        let damaged = |rule: &str| Error::load(format!("precompiled_charsmap: {rule}"));
        let (length, rest) =
            bytes.split_first_chunk().ok_or_else(|| damaged("it must begin with the length of its rules"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (units, replacements) = rest
            .split_at_checked(length)
            .filter(|(units, _)| !units.is_empty() && units.len().is_multiple_of(4))
            .ok_or_else(|| damaged(&format!("its rules must have a multiple of 4 bytes, found {length}")))?;
        let units =
            units.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        let replacements = str::from_utf8(replacements)
            .map_err(|error| damaged("its texts must be UTF-8").with_source(error))?;
        let length = |text: &str| text.len() + 2 * text.matches(' ').count();
        let longest = replacements.split('\0').map(length).max().unwrap_or(0);
        if longest > MAX_REPLACEMENT_BYTES {
            return Err(damaged(&format!(
                "a rule may put in at most {MAX_REPLACEMENT_BYTES} bytes, found {longest}"
            )));
        }
        Ok(Self { units: units.collect(), replacements: replacements.into() })
    }

    /// The longest rule for the beginning of `text`: the bytes that it matches, and their replacement.
    pub(super) fn longest_match(&self, text: &str) -> Option<(usize, &str)> {
        let mut node = way(*self.units.first()?);
        let mut longest = None;
        for (index, &byte) in text.as_bytes().iter().take(MAX_RULE_BYTES).enumerate() {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            if unit & 0x8000_00ff != u32::from(byte) {
                break;
            }
            node ^= way(unit);
            if unit & 0x100 != 0 {
                let Some(leaf) = self.units.get(node) else { break };
                longest = Some((index + 1, (leaf & 0x7fff_ffff) as usize));
            }
        }
        let (length, at) = longest?;
        let (replacement, _) = self.replacements.get(at..)?.split_once('\0')?;
        text.is_char_boundary(length).then_some((length, replacement))
    }
}

/// The offset from a unit to its children, combined by XOR; large offsets are stored in units of 256.
fn way(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array of 256 units whose only rule replaces one letter by the text at `at`.
    fn one_rule(letter: u8, at: u32, texts: &str) -> Vec<u8> {
        let mut units = [0_u32; 256];
        units[0] = 128 << 10;
        let node = 128 ^ u32::from(letter);
        units[node as usize] = u32::from(letter) | 0x100 | (1 << 10);
        units[(node ^ 1) as usize] = 0x8000_0000 | at;
        let mut bytes = 1024_u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts.as_bytes());
        bytes
    }

    #[test]
    fn a_rule_gives_its_text() {
        let map = Charsmap::new(&one_rule(b'a', 2, "x\0yz\0")).unwrap();
        assert_eq!(map.longest_match("ab"), Some((1, "yz")));
        assert_eq!(map.longest_match("ba"), None);
        assert_eq!(map.longest_match(""), None);
    }

    #[test]
    fn damage_is_an_error_or_no_match() {
        let long = "x".repeat(MAX_REPLACEMENT_BYTES + 1);
        for bytes in [&b""[..], b"\0\0", b"\0\0\0\0", b"\x05\0\0\0abcdex\0", b"\xff\xff\xff\xff"] {
            assert!(Charsmap::new(bytes).is_err(), "{bytes:?}");
        }
        assert!(Charsmap::new(&one_rule(b'a', 0, &long)).is_err());
        let mut no_utf8 = one_rule(b'a', 0, "x\0");
        no_utf8.extend(b"\xff\0");
        assert!(Charsmap::new(&no_utf8).is_err());
        for (letter, at, texts) in [(b'a', 9, "x\0"), (b'a', 1, "é\0"), (b'a', 0, "x"), (0xc3, 0, "x\0")] {
            let map = Charsmap::new(&one_rule(letter, at, texts)).unwrap();
            assert_eq!(map.longest_match("aé"), None, "{texts}");
            assert_eq!(map.longest_match("éa"), None, "{texts}");
        }
    }

    #[test]
    fn an_array_that_leads_in_circles_ends() {
        // The only node is its own child.
        let mut bytes = one_rule(b'a', 0, "x\0");
        let node = 4 + 4 * (128 ^ usize::from(b'a'));
        let unit = u32::from(b'a') | (u32::from(b'a') << 10);
        bytes[node..node + 4].copy_from_slice(&unit.to_le_bytes());
        let map = Charsmap::new(&bytes).unwrap();
        assert_eq!(map.longest_match(&"a".repeat(1 << 20)), None);
    }
}
