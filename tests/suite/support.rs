//! What tests of equality to the bit compare.

use rsgen::{GenerationOutput, TokenId};

/// Tokens and the bits of the logits of every row.
pub(crate) fn bits(output: &GenerationOutput) -> Vec<(Vec<TokenId>, Vec<u32>)> {
    let rows = output.rows.iter().zip(&output.sequences);
    rows.map(|(row, kept)| {
        let logits = kept.logits.as_ref().unwrap();
        (row.generated.token_ids.clone(), logits.iter().flatten().map(|logit| logit.to_bits()).collect())
    })
    .collect()
}
