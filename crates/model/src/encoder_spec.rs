//! What models with an encoder have beside the parts of a decoder.

use crate::spec::DecoderSpec;
use rsgen_core::types::TokenId;

/// The encoder of a model, and what it shares with the decoder.
#[derive(Debug)]
pub(crate) struct EncoderSpec {
    /// Its layers; where its tensors are, and what its input is.
    pub(crate) stack: DecoderSpec,
    /// The scope of encoder and decoder; may be empty.
    pub(crate) base: &'static str,
    /// Whether both have the embedding `shared`, below the base, unless the checkpoint has others for them.
    pub(crate) is_shared: bool,
    /// The biases of the head, `[1, vocab_size]`, which a checkpoint may have.
    pub(crate) head_bias: Option<&'static str>,
}

/// The attention of a decoder layer to the source: that of the layer, without what depends on positions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrossSpec {
    /// The scope in the layer.
    pub(crate) scope: &'static str,
    /// Its norm, placed as that of the other attention.
    pub(crate) norm: &'static str,
}

/// What embeddings of positions there are, which are added to those of tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PositionSpec {
    /// A learned table.
    Learned {
        /// Its name, below the base.
        name: &'static str,
        /// The row of position 0.
        offset: usize,
    },
    /// Sines, then cosines (Vaswani et al., arXiv:1706.03762), unless the checkpoint has a table of this name.
    Sinusoids(&'static str),
    /// The same as fairseq counts them: they have no end, begin after the pad token's id, and skip pad tokens.
    SkippingPad(TokenId),
}

/// Numbers that heads add to scores by the distance of tokens, in buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistanceSpec {
    /// The table in the scope of attention, `[buckets, heads]`.
    pub(crate) name: &'static str,
    pub(crate) buckets: usize,
    /// The distance from which all are in the last bucket.
    pub(crate) reach: usize,
    /// Whether half of the buckets are for later tokens.
    pub(crate) is_bidirectional: bool,
    /// Whether each layer has a table; else all have the first one's.
    pub(crate) each_layer: bool,
}

impl DistanceSpec {
    /// The bucket of a token that is so many places after the row.
    pub(crate) fn bucket(&self, distance: isize) -> usize {
        let (buckets, first) = match (self.is_bidirectional, distance > 0) {
            (true, is_later) => (self.buckets / 2, if is_later { self.buckets / 2 } else { 0 }),
            (false, true) => return 0,
            (false, false) => (self.buckets, 0),
        };
        let (distance, exact) = (distance.unsigned_abs(), buckets / 2);
        if distance < exact {
            return first + distance;
        }
        let [far, reach] = [distance, self.reach].map(|distance| (distance as f64 / exact as f64).ln());
        let beyond = (far / reach * (buckets - exact) as f64) as usize;
        first + (exact + beyond).min(buckets - 1)
    }

    /// The numbers of each head and distance, `[heads, 2 * reach + 1]`, of a table.
    pub(crate) fn numbers(&self, table: &[f32]) -> Vec<f32> {
        let (heads, reach) = (table.len() / self.buckets, self.reach as isize);
        let of_head =
            |head| (-reach..=reach).map(move |distance| table[self.bucket(distance) * heads + head]);
        (0..heads).flat_map(of_head).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_fall_into_exact_buckets_and_then_into_wider_ones() {
        let spec = |is_bidirectional| DistanceSpec {
            name: "",
            buckets: 32,
            reach: 128,
            is_bidirectional,
            each_layer: false,
        };
        let decoder =
            [0, -1, -15, -16, -18, -19, -20, -21, -112, -113, -128, -5000].map(|d| spec(false).bucket(d));
        assert_eq!(decoder, [0, 1, 15, 16, 16, 17, 17, 18, 30, 31, 31, 31]);
        assert_eq!(spec(false).bucket(7), 0);
        let encoder = [0, -7, -8, -11, -12, -90, -91, 1, 7, 8, 16, 91, 4000].map(|d| spec(true).bucket(d));
        assert_eq!(encoder, [0, 7, 8, 8, 9, 14, 15, 17, 23, 24, 26, 31, 31]);
    }
}
