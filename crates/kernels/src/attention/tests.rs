//! Attention against its naive twin, and the promises about bits.

use std::ops::Range;

use super::*;
use crate::{Bf16Panels, Bf16Products, EmulatedBf16Products, F32Panels, I8Panels, Isa, scalar};

/// The cache of one sequence in the block layout, and the plain rows it was made from.
struct Cache<F: KvProducts> {
    shape: AttentionShape,
    contexts: Vec<usize>,
    /// `[kv_head][token][head_dim]`
    plain_keys: Vec<f32>,
    plain_values: Vec<f32>,
    num_tokens: usize,
    /// The places of the tokens, where distances have numbers.
    places: Vec<usize>,
    /// What `shared_blocks` says of any two rows. All of them have the same blocks, whatever it says.
    shared_blocks: usize,
    /// `[block][kv_head]`, as [`KvStep`] says.
    keys: Vec<F::Step>,
    values: Vec<F::Step>,
}

fn number(i: usize, seed: usize) -> f32 {
    (((i * 2_654_435_761 + seed * 40_503) % 10_007) as f32 / 5003.5 - 1.0) * 2.0
}

/// Those of keys and of values.
fn steps_of_a_head<F: KvProducts>(dim: usize) -> (usize, usize) {
    let scales = F::Step::SCALE_STEPS;
    (dim.div_ceil(2) + scales, dim.div_ceil(BLOCK) * BLOCK / 2 + scales)
}

impl<F: KvProducts> Cache<F> {
    fn new(shape: AttentionShape, num_tokens: usize, contexts: &[usize]) -> Self {
        let (dim, heads) = (shape.head_dim, shape.num_kv_heads);
        let blocks = num_tokens.div_ceil(BLOCK);
        let (key_steps, value_steps) = steps_of_a_head::<F>(dim);
        let mut cache = Self {
            shape,
            contexts: contexts.to_vec(),
            plain_keys: vec![0.0; heads * num_tokens * dim],
            plain_values: vec![0.0; heads * num_tokens * dim],
            num_tokens,
            places: (0..num_tokens).map(|token| token + 3 * (token / 7) + token / 50 * 40).collect(),
            shared_blocks: usize::MAX,
            keys: vec![F::Step::default(); blocks * heads * key_steps],
            values: vec![F::Step::default(); blocks * heads * value_steps],
        };
        for head in 0..heads {
            for token in 0..num_tokens {
                let first = (head * num_tokens + token) * dim;
                let numbers = |seed| (0..dim).map(|d| number(first + d, seed)).collect::<Vec<_>>();
                cache.set(head, token, &numbers(1), &numbers(2));
                for d in 0..dim {
                    let (keys, values) = cache.at(head, token);
                    let key = F::Step::key(keys, token % BLOCK, d);
                    let value = F::Step::value(values, token % BLOCK, d);
                    (cache.plain_keys[first + d], cache.plain_values[first + d]) = (key, value);
                }
            }
        }
        cache
    }

    /// The steps of a head that a token's key and value are in.
    fn at(&mut self, head: usize, token: usize) -> (&mut [F::Step], &mut [F::Step]) {
        let head = token / BLOCK * self.shape.num_kv_heads + head;
        let (key_steps, value_steps) = steps_of_a_head::<F>(self.shape.head_dim);
        (
            &mut self.keys[head * key_steps..][..key_steps],
            &mut self.values[head * value_steps..][..value_steps],
        )
    }

    fn set(&mut self, head: usize, token: usize, key: &[f32], value: &[f32]) {
        let (keys, values) = self.at(head, token);
        F::Step::set_key(keys, token % BLOCK, key);
        F::Step::set_value(values, token % BLOCK, value);
    }

    /// Makes keys and values of some tokens no numbers.
    fn spoil(&mut self, tokens: Range<usize>) {
        let numbers = vec![f32::NAN; self.shape.head_dim];
        for head in 0..self.shape.num_kv_heads {
            for token in tokens.clone() {
                self.set(head, token, &numbers, &numbers);
            }
        }
    }

    fn queries(&self) -> Vec<f32> {
        (0..self.contexts.len() * self.shape.num_heads * self.shape.head_dim).map(|i| number(i, 3)).collect()
    }

    fn run(&self, isa: Isa, threads: usize) -> Vec<f32> {
        let queries = self.queries();
        let mut out = vec![f32::NAN; queries.len()];
        attention_in::<F>(
            &Workers::new(threads, isa).unwrap(),
            self.shape,
            Biases::of(self.shape).bias(self.shape),
            Queries { values: &queries, stride: self.shape.num_heads * self.shape.head_dim },
            self,
            &mut AttentionScratch::default(),
            &mut out,
        );
        out
    }

    /// A row has the blocks that it shares and its own.
    fn check(&self, row: usize, block: usize) {
        let has = block < self.shared_blocks || block * BLOCK < self.contexts[row];
        assert!(has, "block {block} of row {row}, which has {} tokens", self.contexts[row]);
    }

    fn expected(&self) -> Vec<f32> {
        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.shape;
        let biases = Biases::of(self.shape);
        let bias = biases.bias(self.shape);
        let queries = self.queries();
        let mut out = vec![0.0; queries.len()];
        for (i, (query, out)) in queries.chunks(head_dim).zip(out.chunks_mut(head_dim)).enumerate() {
            let (row, head) = (i / num_heads, i % num_heads);
            let first = head / (num_heads / num_kv_heads) * self.num_tokens * head_dim;
            let range = first..first + self.contexts[row] * head_dim;
            let (keys, values) = (&self.plain_keys[range.clone()], &self.plain_values[range]);
            let weights = scalar::attention_weights(query, keys, self.shape, bias, self.places(row), head);
            scalar::attention(&weights, values, out);
        }
        out
    }
}

impl<F: KvProducts> KvBlocks<F::Step> for Cache<F> {
    fn context_len(&self, row: usize) -> usize {
        self.contexts[row]
    }

    fn places(&self, row: usize) -> Places<'_> {
        let last = self.contexts[row] - 1;
        match self.shape.softcap {
            // As those of a decoder, of a source, and of a source with hidden tokens.
            Some(LAST) => Places { row: last, tokens: None },
            Some(WITHIN) => Places { row: last / 3, tokens: None },
            _ => Places { row: self.places[last / 2], tokens: Some(&self.places) },
        }
    }

    fn shared_blocks(&self, _row: usize, _other: usize) -> usize {
        self.shared_blocks
    }

    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[F::Step] {
        self.check(row, block);
        let (len, _) = steps_of_a_head::<F>(self.shape.head_dim);
        &self.keys[(block * self.shape.num_kv_heads + kv_head) * len..][..len]
    }

    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[F::Step] {
        self.check(row, block);
        let (_, len) = steps_of_a_head::<F>(self.shape.head_dim);
        &self.values[(block * self.shape.num_kv_heads + kv_head) * len..][..len]
    }
}

fn shapes() -> Vec<AttentionShape> {
    [(1, 1, 8), (4, 4, 32), (6, 3, 32), (8, 1, 64), (9, 3, 64), (3, 1, 80), (16, 1, 20), (2, 1, 33)]
        .into_iter()
        .map(|(num_heads, num_kv_heads, head_dim)| AttentionShape {
            num_heads,
            num_kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            softcap: None,
            window: None,
        })
        .collect()
}

/// The soft caps of shapes whose heads have numbers for distances, and nothing else; others are smaller.
const LAST: f32 = 10.0;
const WITHIN: f32 = 11.0;
const HIDDEN: f32 = 12.0;
const REACH: usize = 20;

/// What the heads of shapes with a soft cap add.
#[derive(Default)]
struct Biases {
    sinks: Option<Vec<f32>>,
    slopes: Option<Vec<f32>>,
    distances: Option<Vec<f32>>,
}

impl Biases {
    fn of(shape: AttentionShape) -> Self {
        let of = |count: usize, scale: f32| Some((0..count).map(|head| scale * number(head, 7)).collect());
        let heads = shape.num_heads;
        match shape.softcap {
            None => Self::default(),
            Some(cap) if cap < 1.0 => Self { sinks: of(heads, 2.0), ..Self::default() },
            Some(cap) if cap < LAST => {
                Self { sinks: of(heads, 3.0), slopes: of(heads, 0.05), distances: None }
            }
            Some(_) => Self { distances: of(heads * (2 * REACH + 1), 1.0), ..Self::default() },
        }
    }

    /// In shapes with a window, slopes are as Falcon has them.
    fn bias(&self, shape: AttentionShape) -> HeadBias<'_> {
        let rounded = shape.window.map(|_| 0.35);
        HeadBias {
            sinks: self.sinks.as_deref(),
            slopes: self.slopes.as_deref().map(|slopes| Slopes { slopes, rounded }),
            distances: self.distances.as_deref().map(|numbers| Distances { numbers, reach: REACH }),
        }
    }
}

const CONTEXTS: [usize; 11] = [1, 2, 31, 32, 33, 64, 255, 256, 257, 512, 600];

fn equal_bits(left: &[f32], right: &[f32]) -> bool {
    left.iter().zip(right).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// `tolerance` is that of the arithmetic.
fn attention_equals_its_twin<F: KvProducts>(tolerance: f32) {
    let windows = [1, 2, 31, 32, 33, 100, 256, 300].map(Some);
    let windowed = windows.map(|window| AttentionShape { window, ..shapes()[2] });
    let biased = [
        (0, 0.5, None),
        (2, 2.0, None),
        (2, 0.5, Some(40)),
        (4, 2.0, Some(300)),
        (6, 1.5, None),
        (1, LAST, None),
        (2, WITHIN, None),
        (4, HIDDEN, None),
        (2, LAST, Some(40)),
    ];
    let biased = biased.map(|(shape, softcap, window)| AttentionShape {
        softcap: Some(softcap),
        window,
        ..shapes()[shape]
    });
    for shape in shapes().into_iter().chain(windowed).chain(biased) {
        let cache = Cache::<F>::new(shape, 600, &CONTEXTS);
        let expected = cache.expected();
        let mut first: Option<Vec<f32>> = None;
        for isa in Isa::available() {
            for threads in [1, 3] {
                let actual = cache.run(isa, threads);
                for (a, b) in actual.iter().zip(&expected) {
                    assert!((a - b).abs() < tolerance, "{shape:?} {isa:?}: {a} {b}");
                }
                let first = first.get_or_insert_with(|| actual.clone());
                assert!(equal_bits(first, &actual), "{shape:?} {isa:?}");
            }
        }
    }
}

#[test]
fn attention_over_f32_equals_its_twin_and_itself_on_every_instruction_set() {
    attention_equals_its_twin::<F32Panels>(4e-6);
}

#[test]
fn attention_over_bf16_equals_its_twin_and_itself_on_every_instruction_set() {
    attention_equals_its_twin::<Bf16Panels>(4e-6);
}

#[test]
fn attention_over_i8_equals_its_twin_and_itself_on_every_instruction_set() {
    attention_equals_its_twin::<I8Panels>(4e-6);
}

#[test]
fn attention_in_bf16_is_near_its_twin_and_equals_itself_on_every_instruction_set() {
    // Queries and weights are rounded to 8 bits.
    attention_equals_its_twin::<Bf16Products>(0.1);
    attention_equals_its_twin::<EmulatedBf16Products>(0.1);
}

#[test]
fn attention_in_bf16_has_the_same_bits_with_and_without_an_instruction_for_it() {
    for shape in shapes() {
        let instruction = Cache::<Bf16Products>::new(shape, 600, &CONTEXTS);
        let emulated = Cache::<EmulatedBf16Products>::new(shape, 600, &CONTEXTS);
        let isa = Isa::select().unwrap();
        assert!(equal_bits(&instruction.run(isa, 2), &emulated.run(isa, 2)), "{shape:?}");
    }
}

/// With few tokens, numbers that need no rounding and equal weights, nothing is lost.
#[test]
fn attention_in_bf16_is_exact_where_nothing_is_rounded() {
    let shape = AttentionShape { scale: 0.0, ..shapes()[1] };
    let mut cache = Cache::<Bf16Products>::new(shape, 4, &[4]);
    for head in 0..4 {
        for token in 0..4 {
            let value: Vec<f32> = (0..32).map(|d| (token * 8 + d) as f32).collect();
            cache.set(head, token, &value, &value);
        }
    }
    let out = cache.run(Isa::select().unwrap(), 1);
    assert!(out.iter().enumerate().all(|(i, &value)| value == 12.0 + (i % 32) as f32), "{out:?}");
}

#[test]
fn rows_have_the_same_bits_alone_and_in_any_company() {
    let windows = [None, Some(3), Some(40), Some(300)];
    let shapes =
        shapes().into_iter().flat_map(|shape| windows.map(|window| AttentionShape { window, ..shape }));
    // Neighbours in a prompt, before and across the border of a span, beams, and rows that have nothing in
    // common. Of those that share blocks, the first may be the shortest.
    let contexts: Vec<usize> =
        (40..75).chain(250..262).chain([64, 70, 96]).chain([530; 9]).chain([7, 600, 1]).collect();
    for (i, shape) in shapes.enumerate() {
        let isa = Isa::available()[i % Isa::available().len()];
        same_bits_in_any_company(isa, Cache::<F32Panels>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<Bf16Products>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<EmulatedBf16Products>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<I8Panels>::new(shape, 600, &contexts));
    }
}

fn same_bits_in_any_company<F: KvProducts>(isa: Isa, mut cache: Cache<F>) {
    cache.shared_blocks = 0;
    let alone = cache.run(isa, 1);
    for shared in [1, 2, 9, 16, usize::MAX] {
        cache.shared_blocks = shared;
        assert!(equal_bits(&cache.run(isa, 2), &alone), "{:?} {isa:?} shared {shared}", cache.shape);
    }
}

#[test]
fn tiles_that_go_through_a_prompt_together_have_the_bits_of_single_rows() {
    for (i, window) in [None, Some(70), Some(300)].into_iter().enumerate() {
        let shape = AttentionShape { window, ..shapes()[4] };
        let isa = Isa::available()[i % Isa::available().len()];
        // The tiles of a group begin and end in different spans.
        let contexts: Vec<usize> = (200..560).collect();
        same_bits_in_any_company(isa, Cache::<F32Panels>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<Bf16Panels>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<EmulatedBf16Products>::new(shape, 600, &contexts));
        same_bits_in_any_company(isa, Cache::<I8Panels>::new(shape, 600, &contexts));
    }
}

#[test]
fn a_long_context_is_divided_among_threads_without_a_change_of_bits() {
    fn check<F: KvProducts>(tolerance: f32) {
        for window in [None, Some(1300), Some(700)] {
            let shape = AttentionShape { window, ..shapes()[2] };
            let (alone, rows) = ([1500], [1499, 1500, 3, 1200]);
            let cache = Cache::<F>::new(shape, 1500, &rows);
            let undivided = cache.run(Isa::select().unwrap(), 1);
            for (a, b) in undivided.iter().zip(&cache.expected()) {
                assert!((a - b).abs() < tolerance, "{a} {b}");
            }
            for isa in Isa::available() {
                // As many heads as threads, then fewer.
                for threads in [3, 4, 16] {
                    let divided = Cache::<F>::new(shape, 1500, &alone);
                    let width = shape.num_heads * shape.head_dim;
                    let queries = cache.queries();
                    let mut out = vec![f32::NAN; width];
                    let workers = Workers::new(threads, isa).unwrap();
                    let (first, scratch) = (&queries[width..], &mut AttentionScratch::default());
                    attention_in::<F>(
                        &workers,
                        shape,
                        HeadBias::default(),
                        Queries { values: first, stride: width },
                        &divided,
                        scratch,
                        &mut out,
                    );
                    assert!(equal_bits(&out, &undivided[width..2 * width]), "{isa:?} {threads} {window:?}");
                    assert!(!scratch.parts.is_empty(), "it was divided");
                }
            }
        }
    }
    check::<F32Panels>(4e-6);
    check::<Bf16Products>(0.1);
    check::<EmulatedBf16Products>(0.1);
    check::<I8Panels>(4e-6);
}

#[test]
fn what_lies_behind_the_context_does_not_matter() {
    fn check<F: KvProducts>(context: usize) {
        let mut cache = Cache::<F>::new(shapes()[2], 60, &[context]);
        let clean = cache.run(Isa::select().unwrap(), 1);
        cache.spoil(context..60);
        assert_eq!(cache.run(Isa::select().unwrap(), 1), clean);
    }
    for context in [1, 34, 35, 48] {
        check::<F32Panels>(context);
        check::<Bf16Panels>(context);
        check::<Bf16Products>(context);
        check::<I8Panels>(context);
    }
}

#[test]
fn a_window_that_holds_the_context_changes_no_bit() {
    let shape = shapes()[4];
    let run = |window| {
        let shape = AttentionShape { window, ..shape };
        Cache::<F32Panels>::new(shape, 600, &CONTEXTS).run(Isa::select().unwrap(), 1)
    };
    let whole = run(None);
    assert!(equal_bits(&run(Some(600)), &whole) && equal_bits(&run(Some(usize::MAX)), &whole));
    assert!(!equal_bits(&run(Some(599)), &whole), "one token less shows");
}

/// Not even times zero: a block before the window may belong to another sequence later.
#[test]
fn what_lies_before_the_window_does_not_matter() {
    fn check<F: KvProducts>(window: usize) {
        let shape = AttentionShape { window: Some(window), ..shapes()[2] };
        let mut cache = Cache::<F>::new(shape, 600, &[600]);
        let clean = cache.run(Isa::select().unwrap(), 1);
        cache.spoil(0..600 - window);
        assert!(clean.iter().all(|value| value.is_finite()));
        assert!(equal_bits(&cache.run(Isa::select().unwrap(), 1), &clean));
    }
    for window in [1, 5, 269, 270] {
        check::<F32Panels>(window);
        check::<Bf16Panels>(window);
        check::<Bf16Products>(window);
        check::<I8Panels>(window);
    }
}

/// Weights of formats that [`KvStep`] knows equal the formula, and sum to 1.
fn weights_equal_the_formula<F: KvProducts>(tolerance: f32) {
    let caps = [
        (None, None),
        (Some(1), None),
        (Some(40), None),
        (None, Some(0.5)),
        (Some(40), Some(2.0)),
        (None, Some(LAST)),
        (None, Some(WITHIN)),
        (None, Some(HIDDEN)),
    ];
    let variants =
        |shape: AttentionShape| caps.map(|(window, softcap)| AttentionShape { softcap, window, ..shape });
    for shape in shapes().into_iter().flat_map(variants) {
        let biases = Biases::of(shape);
        let bias = biases.bias(shape);
        let cache = Cache::<F>::new(shape, 75, &[1, 32, 33, 75]);
        let (queries, width) = (cache.queries(), shape.num_heads * shape.head_dim);
        for (row, &context) in cache.contexts.iter().enumerate() {
            let queries = &queries[row * width..][..width];
            let mut weights = vec![f32::NAN; shape.num_heads * context];
            let workers = Workers::new(2, Isa::fastest()).unwrap();
            weights::weights_of(&workers, shape, bias, queries, row, &cache, &mut weights);
            for (head, weights) in weights.chunks_exact(context).enumerate() {
                let kv_head = head / (shape.num_heads / shape.num_kv_heads);
                let query = &queries[head * shape.head_dim..][..shape.head_dim];
                let first = shape.window.map_or(0, |window| context.saturating_sub(window));
                assert!(weights[..first].iter().all(|&weight| weight == 0.0), "outside of the window");
                let keys = &cache.plain_keys[kv_head * cache.num_tokens * shape.head_dim..];
                let keys = &keys[..context * shape.head_dim];
                let expected = scalar::attention_weights(query, keys, shape, bias, cache.places(row), head);
                for (weight, expected) in weights[first..].iter().zip(&expected[first..]) {
                    assert!((weight - expected).abs() <= tolerance, "{weight} instead of {expected}");
                }
            }
        }
    }
}

#[test]
fn weights_are_those_that_values_are_multiplied_by() {
    weights_equal_the_formula::<F32Panels>(2e-6);
    weights_equal_the_formula::<Bf16Panels>(2e-6);
    weights_equal_the_formula::<I8Panels>(2e-6);
}
