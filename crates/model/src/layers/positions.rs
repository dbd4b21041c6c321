//! Embeddings of positions.

use super::Embedding;
use crate::batch::RowInput;
use crate::encoder_spec::PositionSpec;
use crate::loader::Loader;
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

const BASE: f64 = 10_000.0;

/// The most rows that are computed ahead.
const MOST_AHEAD: usize = 1024;

/// The rows that are added to embeddings.
#[derive(Debug)]
pub(crate) struct Positions {
    table: Embedding,
    /// The row of position 0.
    offset: usize,
    /// The positions that the table has.
    len: usize,
    /// Those that there are.
    limit: usize,
    /// What computes those beyond the table.
    waves: Option<Waves>,
}

/// Rows that are computed.
#[derive(Debug)]
enum Waves {
    /// The sines of even elements, then the cosines of odd ones.
    Split,
    Fairseq {
        frequencies: Vec<f32>,
        /// It has no position.
        pad: TokenId,
    },
}

impl Positions {
    /// Loads or computes the table of the stack of this scope.
    pub(crate) fn load(loader: &Loader<'_>, spec: PositionSpec, config: &ModelConfig) -> Result<Self> {
        let (width, num_positions) = (config.hidden_size, config.max_position_embeddings);
        let stored = |name: &str, offset: usize| {
            let table = Embedding::load(&loader.child(name), num_positions + offset, width)?;
            Ok(Self { table, offset, len: num_positions, limit: num_positions, waves: None })
        };
        match spec {
            PositionSpec::Learned { name, offset } => stored(name, offset),
            PositionSpec::Sinusoids(name) if loader.child(name).contains("weight") => stored(name, 0),
            PositionSpec::Sinusoids(_) => Ok(Self::computed(Waves::Split, width, num_positions)),
            PositionSpec::SkippingPad(pad) => {
                Ok(Self::computed(Waves::fairseq(width, pad), width, usize::MAX))
            }
        }
    }

    fn computed(waves: Waves, width: usize, limit: usize) -> Self {
        let len = limit.min(MOST_AHEAD);
        let mut values = vec![0.0; len * width];
        values.chunks_exact_mut(width).enumerate().for_each(|(position, out)| waves.row(position, out));
        Self { table: Embedding::of(&values), offset: 0, len, limit, waves: Some(waves) }
    }

    /// The positions that there are; `usize::MAX` without an end.
    pub(crate) fn num_positions(&self) -> usize {
        self.limit
    }

    /// The positions of tokens.
    pub(crate) fn of_tokens(&self, ids: &[TokenId]) -> Vec<usize> {
        let Some(Waves::Fairseq { pad, .. }) = self.waves else { return (0..ids.len()).collect() };
        let mut next = 0;
        let position = |id: &TokenId| {
            next += usize::from(*id != pad);
            next.max(1) - 1
        };
        ids.iter().map(position).collect()
    }

    /// Adds the row of a position to `out`, `[hidden_size]`.
    pub(crate) fn add(&self, position: usize, input: RowInput, out: &mut [f32]) {
        match &self.waves {
            Some(Waves::Fairseq { pad, .. }) if input == RowInput::Token(*pad) => {}
            Some(waves) if position >= self.len => {
                let mut row = vec![0.0; out.len()];
                waves.row(position, &mut row);
                out.iter_mut().zip(row).for_each(|(out, value)| *out += value);
            }
            _ => self.table.add(position + self.offset, out),
        }
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes()
    }
}

impl Waves {
    fn fairseq(width: usize, pad: TokenId) -> Self {
        let half = width / 2;
        let step = (-BASE.ln() / (half as f64 - 1.0)) as f32;
        let frequency = |pair: usize| f64::from(pair as f32 * step).exp() as f32;
        Self::Fairseq { frequencies: (0..half).map(frequency).collect(), pad }
    }

    /// Writes the row of a position: in double precision, or in float32, as transformers computes it.
    fn row(&self, position: usize, out: &mut [f32]) {
        let width = out.len();
        match self {
            Self::Split => {
                let angle =
                    |element: usize| position as f64 / BASE.powf((2 * (element / 2)) as f64 / width as f64);
                let (sines, cosines) = out.split_at_mut(width.div_ceil(2));
                for (pair, out) in sines.iter_mut().enumerate() {
                    *out = angle(2 * pair).sin() as f32;
                }
                for (pair, out) in cosines.iter_mut().enumerate() {
                    *out = angle(2 * pair + 1).cos() as f32;
                }
            }
            // An odd width ends in 0.
            Self::Fairseq { frequencies, pad } => {
                let place = (position + pad.index() + 1) as f32;
                let half = frequencies.len();
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (sin, cos) = f64::from(place * frequency).sin_cos();
                    (out[pair], out[half + pair]) = (sin as f32, cos as f32);
                }
                out[2 * half..].fill(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(positions: &Positions, position: usize, id: u32, width: usize) -> Vec<f32> {
        let mut out = vec![10.0; width];
        positions.add(position, RowInput::Token(TokenId(id)), &mut out);
        out
    }

    #[test]
    fn pad_tokens_have_no_position_and_are_skipped() {
        let positions = Positions::computed(Waves::fairseq(4, TokenId(1)), 4, usize::MAX);
        let ids = [1, 1, 7, 1, 8, 9, 1].map(TokenId);
        assert_eq!(positions.of_tokens(&ids), [0, 0, 0, 0, 1, 2, 2]);
        assert_eq!(row(&positions, 3, 1, 4), [10.0; 4]);
        let expected = |place: f32| {
            [place.sin(), (place * 1e-4).sin(), place.cos(), (place * 1e-4).cos()].map(|value| 10.0 + value)
        };
        // In the table, and beyond it.
        for (position, place) in [(0, 2.0), (1, 3.0), (1023, 1025.0), (1024, 1026.0), (9000, 9002.0)] {
            for (found, expected) in row(&positions, position, 7, 4).iter().zip(expected(place)) {
                assert!((found - expected).abs() < 2e-6, "{position}: {found} {expected}");
            }
        }
    }

    #[test]
    fn halves_of_odd_widths_differ() {
        let positions = Positions::computed(Waves::Split, 5, 1 << 30);
        assert_eq!((positions.num_positions(), positions.bytes()), (1 << 30, 4 * 5 * MOST_AHEAD));
        for position in [3, 5000] {
            let place = position as f64;
            let angles = [place, place / 10_000_f64.powf(0.4), place / 10_000_f64.powf(0.8)];
            let expected =
                [angles[0].sin(), angles[1].sin(), angles[2].sin(), angles[0].cos(), angles[1].cos()];
            assert_eq!(row(&positions, position, 7, 5), expected.map(|value| 10.0 + value as f32));
        }
    }
}
