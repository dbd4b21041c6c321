//! The pieces of a model: their types and scores, and the lookup of texts.

use std::collections::HashMap;
use std::sync::Arc;

use super::prefix_trie::PrefixTrie;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The most pieces that a model may have, as ids are limited.
pub(super) const MAX_PIECES: usize = 1 << 22;
/// The longest piece that is read: SentencePiece trains none beyond 512 characters.
pub(super) const MAX_PIECE_BYTES: usize = 2048;
const NUL: &str = "\0";

/// The type of a piece, as numbered in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Normal,
    /// Stands for unknown characters; there is one.
    Unknown,
    /// Never matched in a text, such as `<s>`.
    Control,
    /// User-defined: matched before anything else, and never split.
    UserDefined,
    /// Unused: takes part in merges but is never a result.
    Unused,
    /// `<0xNN>`, for the bytes of unknown characters.
    Byte,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) text: Arc<str>,
    pub(super) score: f32,
    pub(super) kind: PieceKind,
}

/// All pieces; the index of each is its id.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) pieces: Vec<Piece>,
    /// The pieces that a text may be split into.
    textual: HashMap<Arc<str>, u32>,
    /// Unknown, control and byte pieces.
    reserved: HashMap<Arc<str>, u32>,
    pub(super) unknown: u32,
    /// The pieces of the 256 bytes, with byte fallback.
    pub(super) bytes: Option<Box<[u32; 256]>>,
    pub(super) user_defined: PrefixTrie,
    pub(super) longest_piece: usize,
}

impl Vocabulary {
    /// Checks the pieces against SentencePiece's own rules.
    pub(super) fn new(mut pieces: Vec<Piece>, byte_fallback: bool) -> Result<Self> {
        let (mut textual, mut reserved) = (HashMap::new(), HashMap::new());
        let mut unknown = None;
        let mut bytes = [None; 256];
        for (id, piece) in (0_u32..).zip(&mut pieces) {
            if byte_fallback && &*piece.text == NUL {
                // Some converters add it beside <0x00>.
                piece.kind = PieceKind::Unused;
                continue;
            }
            let faulty =
                |rule: &str| Error::load(format!("piece {id}, {}: {rule}", shown(&(*piece.text).into())));
            if piece.text.is_empty() || piece.text.len() > MAX_PIECE_BYTES {
                let length = piece.text.len();
                return Err(Error::load(format!(
                    "piece {id}: a piece must have from 1 to {MAX_PIECE_BYTES} bytes, found {length}"
                )));
            }
            if piece.text.contains(NUL) {
                return Err(faulty("a piece may not hold NUL"));
            }
            if !piece.score.is_finite() {
                return Err(faulty(&format!("its score must be a finite number, found {}", piece.score)));
            }
            let is_textual =
                matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Unused);
            let group = if is_textual { &mut textual } else { &mut reserved };
            if let Some(before) = group.insert(piece.text.clone(), id) {
                return Err(faulty(&format!("each piece may come once, but piece {before} is the same")));
            }
            if piece.kind == PieceKind::Unknown && unknown.replace(id).is_some() {
                return Err(faulty("only one piece may be for unknown characters"));
            }
            if piece.kind == PieceKind::Byte {
                if !byte_fallback {
                    return Err(faulty("a piece of a byte needs `byte_fallback`"));
                }
                let byte =
                    byte_of(&piece.text).ok_or_else(|| faulty("the piece of a byte must be <0xNN>"))?;
                bytes[usize::from(byte)] = Some(id);
            }
        }
        let unknown = unknown.ok_or_else(|| Error::load("no piece is for unknown characters"))?;
        let bytes = byte_fallback.then(|| {
            let missing =
                |byte| Error::load(format!("`byte_fallback` needs a piece for each byte, {byte} has none"));
            let mut ids = [0; 256];
            for (byte, id) in bytes.into_iter().enumerate() {
                ids[byte] = id.ok_or_else(|| missing(byte))?;
            }
            Ok::<_, Error>(Box::new(ids))
        });
        let bytes = bytes.transpose()?;
        let symbols = pieces.iter().filter(|piece| piece.kind == PieceKind::UserDefined);
        let user_defined = PrefixTrie::new(symbols.map(|piece| (&*piece.text, 0)));
        let longest_piece = pieces.iter().map(|piece| piece.text.len()).max().unwrap_or(0);
        Ok(Self { pieces, textual, reserved, unknown, bytes, user_defined, longest_piece })
    }

    /// The piece that a part of a text may become.
    pub(super) fn textual(&self, text: &str) -> Option<u32> {
        self.textual.get(text).copied()
    }

    /// The piece of this name, whatever it is for.
    pub(super) fn named(&self, text: &str) -> Option<u32> {
        self.reserved.get(text).or_else(|| self.textual.get(text)).copied()
    }

    /// The type of the piece of this name; unknown when there is none.
    pub(super) fn kind_of(&self, text: &str) -> PieceKind {
        self.named(text).map_or(PieceKind::Unknown, |id| self.kind(id))
    }

    pub(super) fn kind(&self, id: u32) -> PieceKind {
        self.pieces[id as usize].kind
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.pieces[id as usize].score
    }

    pub(super) fn text(&self, id: u32) -> &str {
        &self.pieces[id as usize].text
    }
}

/// The byte that a piece `<0xNN>` stands for; only upper-case digits are written.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    if digits.len() == 2 && digits.bytes().all(is_digit) { u8::from_str_radix(digits, 16).ok() } else { None }
}
