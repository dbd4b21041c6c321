//! Gates times ups of products that are already there: what [`gated_matmul`](super::gated_matmul) does at once.

use super::{PANEL_ROWS, load_pair, store_padded};
use crate::activation::GatedActivation;
use crate::simd::{LANES, Simd, SimdOp};
use crate::threads::Workers;

/// The rows that a thread takes at a time.
const CHUNK_ROWS: usize = 4;

/// `out = act(gate) * up`, `[num_rows, width]`, of the products with a matrix whose outputs interleave 16 gates and 16
/// ups: the same bits as [`gated_matmul`](super::gated_matmul) gives.
///
/// # Panics
/// When the shapes do not fit.
pub fn gate_products(
    workers: &Workers,
    products: &[f32],
    activation: GatedActivation,
    width: usize,
    out: &mut [f32],
) {
    let row = 2 * width.next_multiple_of(LANES);
    assert_eq!(products.len() / row * width, out.len(), "a gate and an up for each output");
    workers.for_each_chunk(out, CHUNK_ROWS * width, |chunk, out| {
        let products = &products[chunk * CHUNK_ROWS * row..][..out.len() / width * row];
        workers.isa().run(Gate { products, activation, width, out });
    });
}

struct Gate<'a> {
    products: &'a [f32],
    activation: GatedActivation,
    width: usize,
    out: &'a mut [f32],
}

impl SimdOp for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let row = 2 * self.width.next_multiple_of(LANES);
        for (products, out) in self.products.chunks_exact(row).zip(self.out.chunks_exact_mut(self.width)) {
            for (panel, out) in products.chunks_exact(PANEL_ROWS).zip(out.chunks_mut(LANES)) {
                let [gate, up] = load_pair(s, panel);
                store_padded(s, self.activation.apply(s, gate, up), out);
            }
        }
    }
}
