//! Attention against its naive twin, and the promises about bits.

use super::*;
use crate::kernels::{Isa, scalar};

/// The cache of one sequence in the block layout, and the plain rows it was made from.
struct Cache<E> {
    shape: AttentionShape,
    contexts: Vec<usize>,
    /// `[kv_head][token][head_dim]`
    plain_keys: Vec<f32>,
    plain_values: Vec<f32>,
    num_tokens: usize,
    /// What `shared_blocks` says of any two rows. All of them have the same blocks, whatever it says.
    shared_blocks: usize,
    /// `[block][kv_head][head_dim][32]`
    keys: Vec<E>,
    /// `[block][kv_head][planes][32][32]`
    values: Vec<E>,
}

fn number(i: usize, seed: usize) -> f32 {
    (((i * 2_654_435_761 + seed * 40_503) % 10_007) as f32 / 5003.5 - 1.0) * 2.0
}

impl<E: KvElement> Cache<E> {
    fn new(
        shape: AttentionShape,
        num_tokens: usize,
        contexts: &[usize],
        convert: impl Fn(f32) -> (E, f32),
    ) -> Self {
        let (dim, heads) = (shape.head_dim, shape.num_kv_heads);
        let planes = dim.div_ceil(BLOCK);
        let blocks = num_tokens.div_ceil(BLOCK);
        let zero = convert(0.0).0;
        let mut cache = Self {
            shape,
            contexts: contexts.to_vec(),
            plain_keys: vec![0.0; heads * num_tokens * dim],
            plain_values: vec![0.0; heads * num_tokens * dim],
            num_tokens,
            shared_blocks: usize::MAX,
            keys: vec![zero; blocks * heads * dim * BLOCK],
            values: vec![zero; blocks * heads * planes * BLOCK * BLOCK],
        };
        for head in 0..heads {
            for token in 0..num_tokens {
                let (block, slot) = (token / BLOCK, token % BLOCK);
                for d in 0..dim {
                    let i = (head * num_tokens + token) * dim + d;
                    let (key, value) = (convert(number(i, 1)), convert(number(i, 2)));
                    (cache.plain_keys[i], cache.plain_values[i]) = (key.1, value.1);
                    cache.keys[((block * heads + head) * dim + d) * BLOCK + slot] = key.0;
                    let plane = ((block * heads + head) * planes + d / BLOCK) * BLOCK + slot;
                    cache.values[plane * BLOCK + d % BLOCK] = value.0;
                }
            }
        }
        cache
    }

    fn queries(&self) -> Vec<f32> {
        (0..self.contexts.len() * self.shape.num_heads * self.shape.head_dim).map(|i| number(i, 3)).collect()
    }

    fn run(&self, isa: Isa, threads: usize) -> Vec<f32> {
        let queries = self.queries();
        let mut out = vec![f32::NAN; queries.len()];
        attention(
            &Workers::new(threads, isa).unwrap(),
            self.shape,
            &queries,
            self.shape.num_heads * self.shape.head_dim,
            self,
            &mut AttentionScratch::default(),
            &mut out,
        );
        out
    }

    fn expected(&self) -> Vec<f32> {
        let AttentionShape { num_heads, num_kv_heads, head_dim, scale, window } = self.shape;
        let queries = self.queries();
        let mut out = vec![0.0; queries.len()];
        for (i, (query, out)) in queries.chunks(head_dim).zip(out.chunks_mut(head_dim)).enumerate() {
            let (row, head) = (i / num_heads, i % num_heads);
            let first = head / (num_heads / num_kv_heads) * self.num_tokens * head_dim;
            let range = first..first + self.contexts[row] * head_dim;
            let (keys, values) = (&self.plain_keys[range.clone()], &self.plain_values[range]);
            scalar::attention(query, keys, values, scale, window, out);
        }
        out
    }
}

impl<E: KvElement> KvBlocks<E> for Cache<E> {
    fn context_len(&self, row: usize) -> usize {
        self.contexts[row]
    }

    fn shared_blocks(&self, _row: usize, _other: usize) -> usize {
        self.shared_blocks
    }

    fn keys(&self, _row: usize, block: usize, kv_head: usize) -> &[E] {
        let len = self.shape.head_dim * BLOCK;
        &self.keys[(block * self.shape.num_kv_heads + kv_head) * len..][..len]
    }

    fn values(&self, _row: usize, block: usize, kv_head: usize) -> &[E] {
        let len = self.shape.head_dim.div_ceil(BLOCK) * BLOCK * BLOCK;
        &self.values[(block * self.shape.num_kv_heads + kv_head) * len..][..len]
    }
}

fn shapes() -> Vec<AttentionShape> {
    [(1, 1, 8), (4, 4, 32), (6, 3, 32), (8, 1, 64), (9, 3, 64), (3, 1, 80), (16, 1, 20)]
        .into_iter()
        .map(|(num_heads, num_kv_heads, head_dim)| AttentionShape {
            num_heads,
            num_kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: None,
        })
        .collect()
}

const CONTEXTS: [usize; 11] = [1, 2, 31, 32, 33, 64, 255, 256, 257, 512, 600];

fn equal_bits(left: &[f32], right: &[f32]) -> bool {
    left.iter().zip(right).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn attention_equals_its_twin<E: KvElement>(convert: impl Fn(f32) -> (E, f32) + Copy) {
    let windows = [1, 2, 31, 32, 33, 100, 256, 300].map(Some);
    let windowed = windows.map(|window| AttentionShape { window, ..shapes()[2] });
    for shape in shapes().into_iter().chain(windowed) {
        let cache = Cache::new(shape, 600, &CONTEXTS, convert);
        let expected = cache.expected();
        let mut first: Option<Vec<f32>> = None;
        for isa in Isa::available() {
            for threads in [1, 3] {
                let actual = cache.run(isa, threads);
                for (a, b) in actual.iter().zip(&expected) {
                    assert!((a - b).abs() < 4e-6, "{shape:?} {isa:?}: {a} {b}");
                }
                let first = first.get_or_insert_with(|| actual.clone());
                assert!(equal_bits(first, &actual), "{shape:?} {isa:?}");
            }
        }
    }
}

#[test]
fn attention_over_f32_equals_its_twin_and_itself_on_every_instruction_set() {
    attention_equals_its_twin(|value| (value, value));
}

#[test]
fn attention_over_bf16_equals_its_twin_and_itself_on_every_instruction_set() {
    attention_equals_its_twin(|value| (bf16::from_f32(value), bf16::from_f32(value).to_f32()));
}

#[test]
fn rows_have_the_same_bits_alone_and_in_any_company() {
    let windows = [None, Some(3), Some(40), Some(300)];
    let shapes =
        shapes().into_iter().flat_map(|shape| windows.map(|window| AttentionShape { window, ..shape }));
    // Neighbours in a prompt, before and across the border of a span, beams, and rows that have nothing in common.
    let contexts: Vec<usize> = (40..75).chain(250..262).chain([530; 9]).chain([7, 600, 1]).collect();
    for (i, shape) in shapes.enumerate() {
        let mut cache = Cache::new(shape, 600, &contexts, |value| (value, value));
        cache.shared_blocks = 0;
        let isa = Isa::available()[i % Isa::available().len()];
        let alone = cache.run(isa, 1);
        for shared in [1, 2, 9, 16, usize::MAX] {
            cache.shared_blocks = shared;
            assert!(equal_bits(&cache.run(isa, 2), &alone), "{shape:?} {isa:?} shared {shared}");
        }
    }
}

#[test]
fn what_lies_behind_the_context_does_not_matter() {
    let shape = shapes()[2];
    let mut cache = Cache::new(shape, 40, &[35], |value| (value, value));
    let clean = cache.run(Isa::select().unwrap(), 1);
    for (i, value) in cache.values.iter_mut().enumerate() {
        if i / (shape.num_kv_heads * BLOCK * BLOCK) == 1 && i / BLOCK % BLOCK >= 3 {
            *value = f32::NAN;
        }
    }
    for (i, key) in cache.keys.iter_mut().enumerate() {
        if i / (shape.num_kv_heads * shape.head_dim * BLOCK) == 1 && i % BLOCK >= 3 {
            *key = f32::NAN;
        }
    }
    assert_eq!(cache.run(Isa::select().unwrap(), 1), clean);
}

#[test]
fn a_window_that_holds_the_context_changes_no_bit() {
    let shape = shapes()[4];
    let run = |window| {
        let shape = AttentionShape { window, ..shape };
        Cache::new(shape, 600, &CONTEXTS, |value| (value, value)).run(Isa::select().unwrap(), 1)
    };
    let whole = run(None);
    assert!(equal_bits(&run(Some(600)), &whole) && equal_bits(&run(Some(usize::MAX)), &whole));
    assert!(!equal_bits(&run(Some(599)), &whole), "one token less shows");
}

/// Not even times zero: a block before the window may belong to somebody else one day.
#[test]
fn what_lies_before_the_window_does_not_matter() {
    let (context, window) = (600, 270);
    let shape = AttentionShape { window: Some(window), ..shapes()[2] };
    let mut cache = Cache::new(shape, context, &[context], |value| (value, value));
    let clean = cache.run(Isa::select().unwrap(), 1);
    let first = context - window;
    let key_block = shape.num_kv_heads * shape.head_dim * BLOCK;
    for (i, key) in cache.keys.iter_mut().enumerate() {
        if i / key_block * BLOCK + i % BLOCK < first {
            *key = f32::NAN;
        }
    }
    let value_block = shape.num_kv_heads * BLOCK * BLOCK;
    for (i, value) in cache.values.iter_mut().enumerate() {
        if i / value_block * BLOCK + i / BLOCK % BLOCK < first {
            *value = f32::NAN;
        }
    }
    assert!(clean.iter().all(|value| value.is_finite()));
    assert!(equal_bits(&cache.run(Isa::select().unwrap(), 1), &clean));
}
