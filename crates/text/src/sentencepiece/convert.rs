//! Makes a tokenizer.json of a SentencePiece model, as transformers does it for classes on the `tokenizers`
//! crate.
//!
//! It holds the vocabulary and the map of characters; the class adds the rest. What the model says about
//! spaces and bytes does not count there.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokenizers::AddedToken;

use super::model_file::ModelFile;
use super::vocabulary::{Piece, PieceKind};
use crate::settings::Settings;
use crate::tokenizer_class::TokenizerClass;
use crate::translation_class::PieceOrder;
use rsgen_core::error::{Error, Result};

/// The longest piece whose merges are looked for, in characters: each is cut at every place.
const MAX_PIECE: usize = 128;

/// The text of a tokenizer.json; the pieces that are no text are added to `settings`.
pub(crate) fn tokenizer_json(
    model: &[u8],
    class: &TokenizerClass,
    order: PieceOrder,
    settings: &mut Settings,
) -> Result<Vec<u8>> {
    let charsmap = ModelFile::charsmap(model)?;
    let pieces = ModelFile::read(model)?.vocabulary.pieces;
    let added = pieces.iter().filter_map(|piece| {
        let special = piece.kind == PieceKind::Control;
        (special || piece.kind == PieceKind::UserDefined)
            .then(|| AddedToken::from(piece.text.to_string(), special).normalized(false))
    });
    settings.pieces = Some(added.collect());
    let named = |name: &str, default: &str| settings.special_token(name).unwrap_or(default).to_owned();
    let scored = |pieces: &[Piece]| -> Vec<(String, f64)> {
        pieces.iter().map(|piece| (piece.text.to_string(), f64::from(piece.score))).collect()
    };
    let from = |first: usize| pieces.get(first..).unwrap_or_default();
    let mut vocab: Vec<(String, f64)> = Vec::new();
    match order {
        PieceOrder::Sentinels => {
            vocab.extend(scored(&pieces));
            let sentinels = (0..settings.of_class.extra_ids(100)).rev();
            vocab.extend(sentinels.map(|i| (format!("<extra_id_{i}>"), 0.0)));
        }
        PieceOrder::Masks => {
            vocab.push((named("pad_token", "<pad>"), 0.0));
            vocab.push((named("eos_token", "</s>"), 0.0));
            let mask = named("mask_token", "<mask_1>");
            let other = if mask == "<mask_2>" { "<mask_1>" } else { "<mask_2>" };
            let of_sentences = settings.of_class.mask_token_sent.clone().unwrap_or_else(|| other.to_owned());
            vocab.extend([(mask, 0.0), (of_sentences, 0.0)]);
            let unknown = 2..settings.of_class.offset.unwrap_or(103);
            vocab.extend(unknown.map(|i| (format!("<unk_{i}>"), -100.0)));
            vocab.extend(scored(from(2)));
        }
        PieceOrder::Fairseq => {
            let first = if class.names.contains(&"MBart50Tokenizer") { "cls_token" } else { "bos_token" };
            for (name, default) in
                [(first, "<s>"), ("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>")]
            {
                vocab.push((named(name, default), 0.0));
            }
            vocab.extend(scored(from(3)));
            vocab.extend(class.languages.split(' ').map(|code| (code.to_owned(), 0.0)));
            vocab.push((named("mask_token", "<mask>"), 0.0));
        }
        PieceOrder::FairseqMerges => {
            let special = [("bos_token", "<s>"), ("pad_token", "<pad>"), ("eos_token", "</s>")];
            let special = special.into_iter().chain([("unk_token", "<unk>")]);
            let special: Vec<String> = special.map(|(name, default)| named(name, default)).collect();
            let after = class.languages.split(' ').map(str::to_owned).chain([named("mask_token", "<mask>")]);
            let model = bpe(&special, &pieces, &after.collect::<Vec<_>>())?;
            return Ok(with_map(&model, &charsmap));
        }
    }
    // What the class says counts; the crate asks for one.
    let unknown = vocab.len().saturating_sub(1).min(3);
    let model = json!({"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": false});
    Ok(with_map(&model, &charsmap))
}

fn with_map(model: &Value, charsmap: &[u8]) -> Vec<u8> {
    let map = base64::encode(charsmap);
    let map = (!charsmap.is_empty()).then(|| json!({"type": "Precompiled", "precompiled_charsmap": map}));
    json!({"version": "1.0", "normalizer": map, "model": model}).to_string().into_bytes()
}

/// A BPE model: the vocabulary between special tokens, and the merges that its order says.
fn bpe(before: &[String], pieces: &[Piece], after: &[String]) -> Result<Value> {
    let place: HashMap<&str, usize> =
        pieces.iter().enumerate().map(|(at, piece)| (&*piece.text, at)).collect();
    let mut merges: Vec<(usize, usize, usize, &str, &str)> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let characters = piece.text.chars().count();
        if characters > MAX_PIECE {
            return Err(Error::load(format!(
                "piece {at}: it may have at most {MAX_PIECE} characters, found {characters}"
            )));
        }
        let from = merges.len();
        for (index, (cut, _)) in piece.text.char_indices().enumerate().skip(1) {
            let (left, right) = piece.text.split_at(cut);
            if place.contains_key(left) && place.contains_key(right) {
                merges.push((at, index, characters - index, left, right));
            }
        }
        merges[from..].sort_by_key(|&(.., left, right)| (place[left], place[right]));
    }
    merges.sort_by_key(|&(at, left, right, ..)| (at, left, right));
    let merges: Vec<[&str; 2]> = merges.into_iter().map(|(.., left, right)| [left, right]).collect();
    let mut vocab = serde_json::Map::new();
    let texts = before.iter().map(String::as_str).chain(pieces.iter().map(|piece| &*piece.text));
    for text in texts.chain(after.iter().map(String::as_str)) {
        let next = vocab.len();
        vocab.entry(text).or_insert_with(|| next.into());
    }
    Ok(json!({"type": "BPE", "vocab": vocab, "merges": merges}))
}
