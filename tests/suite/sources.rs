//! Sources in the engine: encoded whole and once, within the memory of the cache, with the same result whatever
//! else runs. The model only writes its tokens to the cache and reads them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rsgen::engine::{Engine, EngineOptions, Estimate, GenerationOutput, run};
use rsgen::types::LayerShape;
use rsgen::{Error, ErrorKind, GenerationConfig, Result, TokenId};
use rsgen_generation::{EncoderContext, GenerationPlan, PlanContext, PromptBatch};
use rsgen_kernels::{Isa, KvStep, Workers};
use rsgen_model::cache::{BlockTable, KeyRotation, KvDtype, KvLayout, KvStore, KvView};
use rsgen_model::weights::Factors;
use rsgen_model::{
    CausalLm, EncodeBatch, EncodeOutput, Encoder, ForwardBatch, ForwardContext, ForwardOutput, LoadedAdapter,
    RowInput,
};

const VOCAB: usize = 23;

/// What the passes of the model were.
#[derive(Default)]
struct Seen {
    /// The rows of each pass of the encoder.
    passes: Mutex<Vec<usize>>,
    sources: AtomicUsize,
    /// The milliseconds that a pass of the encoder takes at least.
    pause: AtomicU64,
}

/// The logits of a row are numbers made of its source, its token and its position.
struct Remembering(Arc<Seen>);

fn write(kv: &mut KvStore, table: &BlockTable, position: usize, value: u32) {
    kv.write(0, table.slot(position), &[value as f32], &[0.0]);
}

fn read(kv: &KvStore, table: &BlockTable, position: usize) -> u32 {
    let KvView::F32(blocks) = kv.blocks(0) else { panic!("the cache is in float32") };
    let (block, slot) = table.slot(position);
    blocks.keys(block, 0)[0].get(slot, 0) as u32
}

fn token(input: RowInput) -> u32 {
    match input {
        RowInput::Token(token) => token.0,
        RowInput::Embedding(_) => panic!("all inputs are tokens"),
    }
}

impl CausalLm for Remembering {
    fn kv_layout(&self, dtype: KvDtype) -> Result<KvLayout> {
        KvLayout::new(1, 1, 1, dtype)
    }
    fn vocab_size(&self) -> usize {
        VOCAB
    }
    fn hidden_size(&self) -> usize {
        1
    }
    fn num_layers(&self) -> usize {
        1
    }
    fn layer_shape(&self) -> LayerShape {
        LayerShape::new(1, 1, vec![None])
    }
    fn adapter(
        &self,
        _workers: &Workers,
        _factors: BTreeMap<String, Factors>,
        _interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LoadedAdapter> {
        Err(Error::internal("it has no layers"))
    }
    fn embed(&self, _tokens: &[TokenId], _out: &mut [f32]) {}
    fn weight_bytes(&self) -> usize {
        0
    }
    fn matrix_bytes(&self) -> usize {
        0
    }
    fn can_shift(&self) -> bool {
        false
    }
    fn rotation_back(&self, _positions: usize) -> Vec<KeyRotation> {
        Vec::new()
    }
    fn forward(
        &self,
        batch: &ForwardBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        context.check()?;
        out.clear();
        for row in batch.rows {
            write(kv, batch.tables[row.table], row.position, token(row.input));
            let source = batch.sources[row.source];
            let values = (0..source.len()).map(|position| read(kv, source, position));
            let mixed = values.fold(7 * token(row.input) + row.position as u32, |mixed, value| {
                mixed.wrapping_mul(31).wrapping_add(value)
            });
            let logit = |id: usize| (mixed.wrapping_mul(2 * id as u32 + 1) >> 20) as f32 / 300.0;
            if row.outputs.logits {
                out.logits.extend((0..VOCAB).map(logit));
            }
        }
        Ok(())
    }
    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }
}

impl Encoder for Remembering {
    fn max_source_len(&self) -> Option<usize> {
        None
    }
    fn source_vocab_size(&self) -> usize {
        VOCAB
    }
    fn layer_shape(&self) -> LayerShape {
        CausalLm::layer_shape(self)
    }
    fn embed(&self, _tokens: &[TokenId], _out: &mut [f32]) {}
    fn encode(
        &self,
        batch: &EncodeBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        _out: &mut EncodeOutput,
    ) -> Result<()> {
        for (index, table) in batch.tables.iter().enumerate() {
            let rows: Vec<_> = batch.rows.iter().filter(|row| row.source == index).collect();
            assert_eq!(rows.len(), table.len(), "a source is whole");
            for (position, row) in rows.iter().enumerate() {
                write(kv, table, position, 1000 + 50 * row.slot as u32 + token(row.input));
            }
        }
        context.check()?;
        std::thread::sleep(Duration::from_millis(self.0.pause.load(Ordering::Relaxed)));
        self.0.passes.lock().unwrap().push(batch.rows.len());
        self.0.sources.fetch_add(batch.tables.len(), Ordering::Relaxed);
        Ok(())
    }
}

fn engine(blocks: usize) -> (Arc<Engine>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let layout = KvLayout::new(1, 1, 1, KvDtype::F32).unwrap();
    let options = EngineOptions {
        kv_dtype: KvDtype::F32,
        kv_cache_bytes: blocks * layout.bytes_per_block(),
        prefix_caching: true,
        is_timed: false,
    };
    let workers = Workers::new(1, Isa::fastest()).unwrap();
    (Arc::new(Engine::new(Box::new(Remembering(Arc::clone(&seen))), workers, options).unwrap()), seen)
}

/// A source of `len` tokens; different numbers give different ones.
fn source(number: u32, len: u32) -> PromptBatch {
    PromptBatch::single((0..len).map(|at| TokenId((number * 5 + at * at) % VOCAB as u32)).collect()).unwrap()
}

fn plan(config: &GenerationConfig, source: PromptBatch) -> GenerationPlan {
    let mut context = PlanContext::new(VOCAB, 200);
    context.encoder = Some(EncoderContext {
        max_source_len: None,
        vocab_size: VOCAB,
        has_positions: true,
        position_pad: None,
    });
    GenerationPlan::new(config, source, &context).unwrap()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().decoder_start_token_id(0).max_new_tokens(40).num_beams(3).num_return_sequences(3)
}

fn outputs(engine: &Arc<Engine>, plans: Vec<GenerationPlan>) -> Vec<GenerationOutput> {
    ran(engine, plans, false).unwrap()
}

fn ran(
    engine: &Arc<Engine>,
    plans: Vec<GenerationPlan>,
    is_interrupted: bool,
) -> Result<Vec<GenerationOutput>> {
    let memory = plans.iter().map(|plan| Estimate::of(engine, None, plan));
    let memory = memory.fold(Estimate::default(), Estimate::and);
    let (mut plans, mut interrupted) = (plans.into_iter().map(Ok), || is_interrupted);
    let (outputs, result) = run(engine, None, None, memory, &mut plans, &mut interrupted, &mut |_, _| Ok(()));
    result.map(|()| outputs.into_iter().flatten().collect())
}

fn tokens(output: &GenerationOutput) -> Vec<Vec<TokenId>> {
    output.rows.iter().map(|row| row.generated.token_ids.clone()).collect()
}

fn is_free(engine: &Engine) -> bool {
    let stats = engine.pool().stats();
    stats.available_blocks == stats.max_blocks
}

#[test]
fn beams_and_returned_sequences_share_a_source_that_is_encoded_once() {
    let (engine, seen) = engine(64);
    let sampled =
        GenerationConfig::new().decoder_start_token_id(0).do_sample(true).seed(3).max_new_tokens(30);
    for (number, config) in (1..).zip(&[config(), sampled.num_return_sequences(4)]) {
        outputs(&engine, vec![plan(config, source(number, 70))]);
        assert_eq!(seen.sources.load(Ordering::Relaxed), number as usize);
        assert!(is_free(&engine));
    }
}

#[test]
fn requests_with_the_same_source_encode_it_once() {
    let (engine, seen) = engine(200);
    let plans = || (0..6).map(|_| plan(&config(), source(4, 70))).chain([plan(&config(), source(5, 70))]);
    let together: Vec<_> = outputs(&engine, plans().collect()).iter().map(tokens).collect();
    assert_eq!(seen.sources.load(Ordering::Relaxed), 2);
    // It is there for later requests, too, as long as nobody needs the blocks.
    let later = outputs(&engine, plans().collect());
    assert_eq!(seen.sources.load(Ordering::Relaxed), 2);
    assert!(later.iter().all(|output| output.usage.cached_prompt_tokens == 70));
    assert_eq!(later.iter().map(tokens).collect::<Vec<_>>(), together);
    // Padding moves the slots, so it is another source.
    let ids = source(4, 70).rows()[0].input_ids.clone();
    let padded = PromptBatch::with_mask(
        vec![std::iter::once(TokenId(0)).chain(ids).collect()],
        vec![std::iter::once(false).chain([true; 70]).collect()],
    );
    outputs(&engine, vec![plan(&config(), padded.unwrap())]);
    assert_eq!(seen.sources.load(Ordering::Relaxed), 3);
    assert!(is_free(&engine));
}

#[test]
fn sources_are_packed_into_passes_and_never_split() {
    let (engine, seen) = engine(400);
    let lens = [600, 30, 40, 100, 90, 80, 257, 1];
    let plans = lens.iter().zip(0..).map(|(&len, number)| plan(&config(), source(number, len)));
    outputs(&engine, plans.collect());
    let passes = seen.passes.lock().unwrap();
    assert_eq!(passes.iter().sum::<usize>(), lens.iter().sum::<u32>() as usize);
    assert_eq!(passes.iter().filter(|&&rows| rows > 256).copied().collect::<Vec<_>>(), [600, 257]);
    assert!(passes.len() < lens.len(), "{passes:?}");
}

#[test]
fn a_source_gives_the_same_alone_among_others_and_after_preemption() {
    let long = config().max_new_tokens(120);
    let plans = || (0..9).map(|number| plan(&long, source(number, 20 + 31 * number)));
    let (roomy, _) = engine(1000);
    let alone: Vec<_> = plans().map(|plan| tokens(&outputs(&roomy, vec![plan])[0])).collect();
    let together: Vec<_> = outputs(&roomy, plans().collect()).iter().map(tokens).collect();
    assert_eq!(together, alone);
    let (narrow, seen) = engine(32);
    let in_turns: Vec<_> = outputs(&narrow, plans().collect()).iter().map(tokens).collect();
    assert_eq!(in_turns, alone);
    assert!(narrow.preemptions() > 0 && seen.sources.load(Ordering::Relaxed) > 9);
    assert!(is_free(&narrow) && is_free(&roomy));
}

#[test]
fn the_time_of_a_pass_of_the_encoder_is_no_prefill_and_shared_by_tokens() {
    let (engine, seen) = engine(400);
    seen.pause.store(60, Ordering::Relaxed);
    let plans = || (0..3).map(|number| plan(&config(), source(number, [100, 50, 50][number as usize])));
    let timings: Vec<_> = outputs(&engine, plans().collect()).iter().map(|output| output.timings).collect();
    assert_eq!(*seen.passes.lock().unwrap(), [200]);
    let [first, second, third] = timings[..] else { panic!("{timings:?}") };
    assert!(first.encoder + second.encoder + third.encoder >= Duration::from_millis(60), "{timings:?}");
    assert_eq!(second.encoder, third.encoder);
    assert!(first.encoder.abs_diff(2 * second.encoder) < Duration::from_micros(1), "{timings:?}");
    for timing in timings {
        assert_eq!(timing.prefill() + timing.encoder, timing.first_token);
        assert!(timing.first_token >= Duration::from_millis(60) && timing.first_token <= timing.total);
    }
    // What is there already takes no time.
    for output in outputs(&engine, plans().collect()) {
        assert_eq!(
            (output.timings.encoder, output.timings.prefill()),
            (Duration::ZERO, output.timings.first_token)
        );
    }
}

#[test]
fn a_batch_has_a_source_for_each_prompt() {
    let (engine, _) = engine(100);
    let rows = |number: u32| (0..33).map(|at| TokenId((number * 7 + at) % VOCAB as u32)).collect::<Vec<_>>();
    let batch = PromptBatch::with_mask((0..3).map(rows).collect(), vec![vec![true; 33]; 3]).unwrap();
    let together = tokens(&outputs(&engine, vec![plan(&config(), batch)])[0]);
    let alone = (0..3).flat_map(|number| {
        let one = PromptBatch::single(rows(number)).unwrap();
        tokens(&outputs(&engine, vec![plan(&config(), one)])[0])
    });
    assert_eq!(together, alone.collect::<Vec<_>>());
}

#[test]
fn an_interrupt_while_a_source_is_encoded_leaves_nothing_behind() {
    let (other, _) = engine(64);
    let expected = tokens(&outputs(&other, vec![plan(&config(), source(2, 90))])[0]);
    let (engine, seen) = engine(64);
    let plans = vec![plan(&config(), source(2, 90))];
    let error = ran(&engine, plans, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(is_free(&engine) && seen.sources.load(Ordering::Relaxed) == 0);
    assert_eq!(tokens(&outputs(&engine, vec![plan(&config(), source(2, 90))])[0]), expected);
}

#[test]
fn a_source_that_can_never_fit_is_refused_before_anything_is_computed() {
    let (engine, seen) = engine(8);
    let plans = vec![plan(&config(), source(0, 300))];
    let error = ran(&engine, plans, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("kv_cache_bytes"), "{error}");
    assert_eq!(seen.sources.load(Ordering::Relaxed), 0);
}
