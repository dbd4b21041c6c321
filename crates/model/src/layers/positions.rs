//! Embeddings of positions.

use super::Embedding;
use crate::batch::RowInput;
use crate::encoder_spec::PositionSpec;
use crate::loader::Loader;
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_core::types::TokenId;

const BASE: f64 = 10_000.0;

/// The rows that are added to embeddings.
#[derive(Debug)]
pub(crate) struct Positions {
    table: Embedding,
    /// The row of position 0.
    offset: usize,
    len: usize,
    endless: Option<Endless>,
}

/// Positions without end: those beyond the table are computed.
#[derive(Debug)]
struct Endless {
    frequencies: Vec<f32>,
    /// It has no position.
    pad: TokenId,
}

impl Positions {
    /// Loads or computes the table of the stack of this scope.
    pub(crate) fn load(loader: &Loader<'_>, spec: PositionSpec, config: &ModelConfig) -> Result<Self> {
        let (width, num_positions) = (config.hidden_size, config.max_position_embeddings);
        let table = |name: &str, rows| Embedding::load(&loader.child(name), rows, width);
        let computed = |row: &dyn Fn(usize, &mut [f32])| {
            let mut values = vec![0.0; num_positions * width];
            values.chunks_exact_mut(width).enumerate().for_each(|(position, out)| row(position, out));
            Embedding::of(&values)
        };
        Ok(match spec {
            PositionSpec::Learned { name, offset } => Self {
                table: table(name, num_positions + offset)?,
                offset,
                len: num_positions,
                endless: None,
            },
            PositionSpec::Sinusoids(name) => {
                let is_stored = loader.child(name).contains("weight");
                let table = if is_stored { table(name, num_positions)? } else { computed(&split_waves) };
                Self { table, offset: 0, len: num_positions, endless: None }
            }
            PositionSpec::SkippingPad(pad) => {
                let endless = Endless::new(width, pad);
                let table = computed(&|position, out| endless.row(position, out));
                Self { table, offset: 0, len: num_positions, endless: Some(endless) }
            }
        })
    }

    /// The positions that there are.
    pub(crate) fn num_positions(&self) -> usize {
        if self.endless.is_some() { usize::MAX } else { self.len }
    }

    /// The positions of tokens.
    pub(crate) fn of_tokens(&self, ids: &[TokenId]) -> Vec<usize> {
        let Some(Endless { pad, .. }) = self.endless else { return (0..ids.len()).collect() };
        let mut next = 0;
        let position = |id: &TokenId| {
            next += usize::from(*id != pad);
            next.max(1) - 1
        };
        ids.iter().map(position).collect()
    }

    /// Adds the row of a position to `out`, `[hidden_size]`.
    pub(crate) fn add(&self, position: usize, input: RowInput, out: &mut [f32]) {
        match &self.endless {
            Some(endless) if input == RowInput::Token(endless.pad) => {}
            Some(endless) if position >= self.len => {
                let mut row = vec![0.0; out.len()];
                endless.row(position, &mut row);
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

/// The sines of even elements, then the cosines of odd ones, computed in double precision.
fn split_waves(position: usize, out: &mut [f32]) {
    let width = out.len();
    let angle = |element: usize| position as f64 / BASE.powf((2 * (element / 2)) as f64 / width as f64);
    let (sines, cosines) = out.split_at_mut(width.div_ceil(2));
    for (pair, out) in sines.iter_mut().enumerate() {
        *out = angle(2 * pair).sin() as f32;
    }
    for (pair, out) in cosines.iter_mut().enumerate() {
        *out = angle(2 * pair + 1).cos() as f32;
    }
}

impl Endless {
    fn new(width: usize, pad: TokenId) -> Self {
        let half = width / 2;
        let step = (-BASE.ln() / (half as f64 - 1.0)) as f32;
        let frequency = |pair: usize| f64::from(pair as f32 * step).exp() as f32;
        Self { frequencies: (0..half).map(frequency).collect(), pad }
    }

    /// Sines, cosines, and 0 where the width is odd; the numbers are float32, as in transformers.
    fn row(&self, position: usize, out: &mut [f32]) {
        let place = (position + self.pad.index() + 1) as f32;
        let half = self.frequencies.len();
        for (pair, frequency) in self.frequencies.iter().enumerate() {
            let (sin, cos) = f64::from(place * frequency).sin_cos();
            (out[pair], out[half + pair]) = (sin as f32, cos as f32);
        }
        out[2 * half..].fill(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pad_tokens_have_no_position_and_are_skipped() {
        let endless = Endless::new(4, TokenId(1));
        let mut values = vec![0.0; 8];
        values.chunks_exact_mut(4).enumerate().for_each(|(position, out)| endless.row(position, out));
        let positions =
            Positions { table: Embedding::of(&values), offset: 0, len: 2, endless: Some(endless) };
        let ids = [1, 1, 7, 1, 8, 9, 1].map(TokenId);
        assert_eq!(positions.of_tokens(&ids), [0, 0, 0, 0, 1, 2, 2]);
        let row = |position: usize, id: u32| {
            let mut out = vec![10.0; 4];
            positions.add(position, RowInput::Token(TokenId(id)), &mut out);
            out
        };
        assert_eq!(row(3, 1), [10.0; 4]);
        let expected = |place: f32| {
            [place.sin(), (place * 1e-4).sin(), place.cos(), (place * 1e-4).cos()].map(|value| 10.0 + value)
        };
        // In the table, and beyond it.
        for (position, place) in [(0, 2.0), (1, 3.0), (2, 4.0), (90, 92.0)] {
            for (found, expected) in row(position, 7).iter().zip(expected(place)) {
                assert!((found - expected).abs() < 2e-6, "{position}: {found} {expected}");
            }
        }
    }

    #[test]
    fn halves_of_odd_widths_differ() {
        let mut row = [0.0; 5];
        split_waves(3, &mut row);
        let angles = [3.0, 3.0 / 10_000_f64.powf(0.4), 3.0 / 10_000_f64.powf(0.8)];
        let expected = [angles[0].sin(), angles[1].sin(), angles[2].sin(), angles[0].cos(), angles[1].cos()];
        assert_eq!(row, expected.map(|value| value as f32));
    }
}
