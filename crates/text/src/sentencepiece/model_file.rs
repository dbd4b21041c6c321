//! Reading a `tokenizer.model`: the parts of SentencePiece's protobuf message that encoding and decoding
//! need.
//!
//! The file is untrusted. Its pieces are read one by one, to stop at the limit; everything else is validated
//! here once.

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::CONVERSION;
use super::charsmap::Charsmap;
use super::normalizer::Normalizer;
use super::vocabulary::{MAX_PIECES, Piece, PieceKind, Vocabulary};
use rsgen_core::error::{Error, Result};

/// The longest text of the unknown piece.
const MAX_SURFACE_BYTES: usize = 256;

/// The contents of the file, validated.
#[derive(Debug)]
pub(super) struct ModelFile {
    pub(super) vocabulary: Vocabulary,
    pub(super) normalizer: Normalizer,
    pub(super) is_bpe: bool,
    /// The text of the unknown piece.
    pub(super) unknown_surface: String,
}

#[derive(Clone, PartialEq, Message)]
struct PieceMessage {
    #[prost(string, tag = "1")]
    piece: String,
    #[prost(float, tag = "2")]
    score: f32,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrainerSpec {
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, tag = "24")]
    treat_whitespace_as_suffix: bool,
    #[prost(bool, tag = "35")]
    byte_fallback: bool,
    #[prost(string, optional, tag = "44")]
    unk_surface: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct NormalizerSpec {
    #[prost(bytes = "vec", tag = "2")]
    precompiled_charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    escape_whitespaces: Option<bool>,
}

impl ModelFile {
    /// The map of characters as it is in the file; empty without one.
    pub(super) fn charsmap(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut normalizer = NormalizerSpec::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some((3, content)) = next_field(&mut rest)? {
                normalizer.merge(content).map_err(damaged)?;
            }
        }
        Ok(normalizer.precompiled_charsmap)
    }

    /// Reads the file.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut trainer = TrainerSpec::default();
        let (mut normalizer, mut denormalizer) = (NormalizerSpec::default(), NormalizerSpec::default());
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((tag, content)) = next_field(&mut rest)? else { continue };
            match tag {
                1 if pieces.len() == MAX_PIECES => {
                    return Err(Error::load(format!("it may have at most {MAX_PIECES} pieces")));
                }
                1 => {
                    let message = PieceMessage::decode(content).map_err(|error| {
                        Error::load(format!("piece {} is damaged; download it again", pieces.len()))
                            .with_source(error)
                    })?;
                    pieces.push(piece(pieces.len(), message)?);
                }
                2 => trainer.merge(content).map_err(damaged)?,
                3 => normalizer.merge(content).map_err(damaged)?,
                5 => denormalizer.merge(content).map_err(damaged)?,
                _ => {}
            }
        }
        let surface = trainer.unk_surface.as_ref().map_or(0, String::len);
        if surface > MAX_SURFACE_BYTES {
            return Err(Error::load(format!(
                "`unk_surface`, the text of the unknown piece, may have at most {MAX_SURFACE_BYTES} bytes, found {surface}"
            )));
        }
        if pieces.is_empty() {
            return Err(Error::load("it holds no pieces: is it a SentencePiece model?"));
        }
        if !denormalizer.precompiled_charsmap.is_empty() {
            return Err(Error::load(format!(
                "a model with rules for decoding (`denormalizer_spec`) is not supported; {CONVERSION}"
            )));
        }
        let is_bpe = match trainer.model_type {
            None | Some(1) => false,
            Some(2) => true,
            Some(other) => {
                return Err(Error::load(format!(
                    "`model_type` must be unigram (1) or BPE (2), found {other}; {CONVERSION}"
                )));
            }
        };
        let charsmap = Some(normalizer.precompiled_charsmap.as_slice()).filter(|bytes| !bytes.is_empty());
        let normalizer = Normalizer {
            charsmap: charsmap.map(Charsmap::new).transpose()?,
            add_dummy_prefix: normalizer.add_dummy_prefix.unwrap_or(true),
            remove_extra_whitespaces: normalizer.remove_extra_whitespaces.unwrap_or(true),
            escape_whitespaces: normalizer.escape_whitespaces.unwrap_or(true),
            whitespace_as_suffix: trainer.treat_whitespace_as_suffix,
        };
        Ok(Self {
            vocabulary: Vocabulary::new(pieces, trainer.byte_fallback)?,
            normalizer,
            is_bpe,
            unknown_surface: trainer.unk_surface.unwrap_or_else(|| " \u{2047} ".to_owned()),
        })
    }
}

/// Reads the next field, and returns it if it is length-delimited, as all fields of this message are.
fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, &'a [u8])>> {
    let (tag, wire_type) = decode_key(rest).map_err(damaged)?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, tag, rest, DecodeContext::default()).map_err(damaged)?;
        return Ok(None);
    }
    let length = decode_varint(rest).map_err(damaged)?;
    let parts = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (content, after) = parts
        .ok_or_else(|| Error::load(format!("it ends within a field of {length} bytes; download it again")))?;
    *rest = after;
    Ok(Some((tag, content)))
}

fn piece(index: usize, message: PieceMessage) -> Result<Piece> {
    let kind = match message.kind {
        None | Some(1) => PieceKind::Normal,
        Some(2) => PieceKind::Unknown,
        Some(3) => PieceKind::Control,
        Some(4) => PieceKind::UserDefined,
        Some(5) => PieceKind::Unused,
        Some(6) => PieceKind::Byte,
        Some(other) => {
            return Err(Error::load(format!("piece {index}: its type must be from 1 to 6, found {other}")));
        }
    };
    // Without the sign of zero, which SentencePiece ignores.
    Ok(Piece { text: message.piece.into(), score: message.score + 0.0, kind })
}

#[cold]
fn damaged(error: prost::DecodeError) -> Error {
    Error::load("it is no SentencePiece model, or damaged; download it again").with_source(error)
}
