//! The tokenizer of a model folder: its tokenizer.json if there is one, else its SentencePiece tokenizer.model.

use crate::error::Result;
use crate::text::Tokenizer;
use crate::weights::ModelFiles;

/// The tokenizer, if the model comes with one.
///
/// # Errors
/// `Load` when its files are damaged or of a kind that is not supported.
pub(crate) fn open_tokenizer(files: &ModelFiles) -> Result<Option<Tokenizer>> {
    let (config, special) = (files.tokenizer_config()?, files.special_tokens_map()?);
    let (config, special) = (config.as_deref(), special.as_deref());
    if let Some(tokenizer) = files.tokenizer()? {
        return Tokenizer::from_bytes(&tokenizer, config, special).map(Some);
    }
    let Some(model) = files.tokenizer_model()? else { return Ok(None) };
    Tokenizer::from_sentencepiece(&model, config, special, files.added_tokens()?.as_deref()).map(Some)
}
