//! Grouped-query self-attention over the KV cache.

use half::bf16;

use super::linear::Linear;
use super::rotary::RotaryEmbedding;
use crate::cache::{KvStore, KvView, TypedKv};
use crate::error::Result;
use crate::kernels::{AttentionShape, KvBlocks, KvElement, Workers, attention, rotate_half};
use crate::model::context::{ForwardContext, Scratch, sized};
use crate::model::loader::Loader;
use crate::model::rows::ActiveRows;

/// Four projections, the first three stacked, and the shape of the heads.
#[derive(Debug)]
pub(in crate::model) struct Attention {
    qkv: Linear,
    output: Linear,
    shape: AttentionShape,
}

impl Attention {
    /// Loads `q_proj`, `k_proj`, `v_proj` and `o_proj`.
    pub(in crate::model) fn load(
        loader: &Loader<'_>,
        hidden_size: usize,
        shape: AttentionShape,
        has_bias: bool,
    ) -> Result<Self> {
        let (queries, keys) = (shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim);
        let qkv = [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)];
        Ok(Self {
            qkv: Linear::load(loader, &qkv, hidden_size, has_bias)?,
            output: Linear::load(loader, &[("o_proj", hidden_size)], queries, has_bias)?,
            shape,
        })
    }

    /// Writes keys and values of the rows in `scratch.normed` to the cache; leaves the queries in `scratch.qkv`.
    pub(in crate::model) fn project(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let hidden_size = self.output.num_outputs();
        scratch.packed.pack(workers, &scratch.normed, hidden_size);
        let width = self.qkv.num_outputs();
        let qkv = sized(&mut scratch.qkv, rows.len() * width);
        self.qkv.forward(workers, &scratch.packed, false, qkv);

        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.shape;
        let (keys_at, values_at) = (num_heads * head_dim, (num_heads + num_kv_heads) * head_dim);
        let angles = RotaryEmbedding::row_len(head_dim);
        for (place, (row, qkv)) in rows.iter().zip(qkv.chunks_exact_mut(width)).enumerate() {
            let range = place * angles..(place + 1) * angles;
            // Queries and keys lie side by side, so all their heads are turned in one go.
            rotate_half(
                workers.isa(),
                &mut qkv[..values_at],
                &scratch.cos[range.clone()],
                &scratch.sin[range],
            );
            let slot = rows.batch().tables[row.table].slot(row.position);
            kv.write(layer, slot, &qkv[keys_at..values_at], &qkv[values_at..]);
        }
        context.check()
    }

    /// Adds attention's result for the rows whose queries are in `scratch.qkv` to `scratch.hidden`.
    pub(in crate::model) fn attend(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let workers = context.workers;
        match kv.blocks(layer) {
            KvView::F32(view) => self.attend_to(&RowBlocks { rows, view }, workers, context.scratch),
            KvView::Bf16(view) => self.attend_to(&RowBlocks::<bf16> { rows, view }, workers, context.scratch),
        }
        context.check()?;
        let scratch = &mut *context.scratch;
        scratch.packed.pack(workers, &scratch.attended, self.shape.num_heads * self.shape.head_dim);
        self.output.forward(workers, &scratch.packed, true, &mut scratch.hidden);
        context.check()
    }

    fn attend_to<E: KvElement>(&self, blocks: &RowBlocks<'_, E>, workers: &Workers, scratch: &mut Scratch) {
        let out =
            sized(&mut scratch.attended, blocks.rows.len() * self.shape.num_heads * self.shape.head_dim);
        attention(workers, self.shape, &scratch.qkv, self.qkv.num_outputs(), blocks, out);
    }

    /// The elements of a row of `scratch.qkv`.
    pub(in crate::model) fn qkv_width(&self) -> usize {
        self.qkv.num_outputs()
    }

    /// The memory it takes, in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.qkv.bytes() + self.output.bytes()
    }
}

/// One layer's cache as the rows see it.
struct RowBlocks<'a, E> {
    rows: &'a ActiveRows<'a>,
    view: TypedKv<'a, E>,
}

impl<E: KvElement> KvBlocks<E> for RowBlocks<'_, E> {
    fn context_len(&self, row: usize) -> usize {
        self.rows.row(row).position + 1
    }

    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[E] {
        self.view.keys(self.rows.batch().tables[self.rows.row(row).table].blocks()[block], kv_head)
    }

    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[E] {
        self.view.values(self.rows.batch().tables[self.rows.row(row).table].blocks()[block], kv_head)
    }
}
