//! The activation rows of a matrix multiplication, regrouped into tiles so that a tile's values for one step of
//! inputs lie side by side.

use crate::kernels::isa::Isa;
use crate::kernels::simd::{Simd, SimdOp};
use crate::kernels::threads::Workers;

/// Activation rows, packed for the instruction set: `[tile][step][input of the step][row of the tile]`.
///
/// Reusable: [`PackedRows::pack`] keeps the memory of the last use.
#[derive(Default)]
pub struct PackedRows {
    values: Vec<f32>,
    num_rows: usize,
    num_inputs: usize,
    tile_rows: usize,
}

impl PackedRows {
    /// Packs `x`, `[num_rows, num_inputs]`.
    pub fn pack(&mut self, workers: &Workers, x: &[f32], num_inputs: usize) {
        let num_rows = x.len() / num_inputs;
        assert_eq!(num_rows * num_inputs, x.len(), "whole rows");
        let tile_rows = tile_rows(workers.isa());
        (self.num_rows, self.num_inputs, self.tile_rows) = (num_rows, num_inputs, tile_rows);
        let padded = num_inputs.next_multiple_of(2);
        self.values.resize(num_rows * padded, 0.0);
        let pack_tile = |tile: usize, out: &mut [f32]| {
            let first = tile * tile_rows;
            let rows = tile_rows.min(num_rows - first);
            for r in 0..rows {
                let row = &x[(first + r) * num_inputs..(first + r + 1) * num_inputs];
                for (k, &value) in row.iter().enumerate() {
                    out[k * rows + r] = value;
                }
                for k in num_inputs..padded {
                    out[k * rows + r] = 0.0;
                }
            }
        };
        let tile_len = tile_rows * padded;
        if num_rows <= tile_rows {
            pack_tile(0, &mut self.values);
        } else {
            workers.for_each_chunk(&mut self.values, tile_len, pack_tile);
        }
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// The values of each row.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    /// The tiles: the index of the first row, the number of rows, and the values `[2 * steps][rows]`.
    #[inline(always)]
    pub(super) fn tiles(&self) -> impl Iterator<Item = (usize, usize, &[f32])> {
        let padded = self.num_inputs.next_multiple_of(2);
        (0..self.num_rows).step_by(self.tile_rows.max(1)).map(move |first| {
            let rows = self.tile_rows.min(self.num_rows - first);
            (first, rows, &self.values[first * padded..(first + rows) * padded])
        })
    }
}

/// The most rows of a tile.
fn tile_rows(isa: Isa) -> usize {
    struct TileRows;
    impl SimdOp for TileRows {
        type Output = usize;
        #[inline(always)]
        fn eval<S: Simd>(self, _: S) -> usize {
            S::WIDE_TILE_ROWS.max(S::HALF_TILE_ROWS)
        }
    }
    isa.run(TileRows)
}
