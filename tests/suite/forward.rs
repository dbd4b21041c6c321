//! The outputs of a row of a forward pass: logits, hidden states, the logits of inner layers, an early exit;
//! embeddings as inputs; and which matrices of a checkpoint are embedding and head.

use rsgen::types::{LayerSet, RowOutputs};
use rsgen::{ErrorKind, Generator, TokenId};
use rsgen_model::cache::{KvCapacity, KvDtype, KvStore, SequenceCache, SharedPool};
use rsgen_model::{ForwardBatch, ForwardContext, ForwardOutput, Row, RowInput, Scratch, Timing};

use crate::support::{Tensors, with_tensors};

const TOKENS: [u32; 7] = [0, 300, 512, 77, 1999, 5, 640];

/// The rows of one sequence, changed by `change`.
fn rows(change: impl Fn(usize, &mut Row)) -> Vec<Row> {
    let tokens = TOKENS.iter().enumerate();
    tokens
        .map(|(position, &token)| {
            let mut row = Row {
                input: RowInput::Token(TokenId(token)),
                table: 0,
                source: 0,
                position,
                rope_seq_len: TOKENS.len(),
                adapters: None,
                last_layer: None,
                outputs: RowOutputs::LOGITS,
            };
            change(position, &mut row);
            row
        })
        .collect()
}

fn forward(generator: &Generator, rows: &[Row], embeddings: &[f32]) -> rsgen::Result<ForwardOutput> {
    let model = generator.engine().model();
    let capacity = KvCapacity::from_blocks(model.kv_layout(KvDtype::F32)?, 2)?;
    let (pool, mut store) = (SharedPool::new(capacity), KvStore::new(capacity));
    let mut sequence = SequenceCache::new(&pool);
    sequence.append(rows.len())?;
    store.ensure(pool.num_blocks(), generator.engine().workers())?;
    let mut out = ForwardOutput::default();
    let (mut scratch, mut timing, mut never) = (Scratch::default(), Timing::default(), || false);
    let mut context = ForwardContext {
        workers: generator.engine().workers(),
        scratch: &mut scratch,
        timing: &mut timing,
        interrupted: &mut never,
    };
    let batch = ForwardBatch { rows, tables: &[sequence.table()], sources: &[], embeddings, adapters: &[] };
    model.forward(&batch, &mut store, &mut context, &mut out).map(|()| out)
}

fn layers(of: &[usize]) -> LayerSet {
    of.iter().fold(LayerSet::EMPTY, |set, &layer| set.with(layer).unwrap())
}

#[test]
fn a_checkpoint_decides_whether_its_head_is_the_embedding_as_in_transformers() {
    const TIED: &str = "tests/golden/models/tied";
    const EMBEDDING: &str = "model.embed_tokens.weight";
    const HEAD: &str = "lm_head.weight";
    let open = |change: &dyn Fn(&mut Tensors)| {
        let folder = with_tensors(TIED, |tensors| change(tensors));
        Generator::open(folder.path().to_str().unwrap()).unwrap()
    };
    let facts = |generator: &Generator| {
        let ids = (3..20).map(TokenId).collect();
        (generator.engine().model().weight_bytes(), generator.forward(&[ids]).unwrap())
    };
    let tied = open(&|_| {});
    let copied = open(&|tensors| {
        tensors.insert(HEAD.to_owned(), tensors[EMBEDDING].clone());
    });
    let head_alone = open(&|tensors| {
        let embedding = tensors.remove(EMBEDDING).unwrap();
        tensors.insert(HEAD.to_owned(), embedding);
    });
    for equal in [&copied, &head_alone] {
        assert_eq!(facts(equal), facts(&tied), "one matrix, whatever its name, and no copy");
        assert_eq!(equal.warnings(), [""; 0]);
    }
    let two = open(&|tensors| {
        let (dtype, shape, mut bytes) = tensors[EMBEDDING].clone();
        bytes.rotate_left(4);
        tensors.insert(HEAD.to_owned(), (dtype, shape, bytes));
    });
    let ((bytes, logits), (tied_bytes, tied_logits)) = (facts(&two), facts(&tied));
    assert!(bytes > tied_bytes && logits != tied_logits);
    let [warning] = two.warnings() else { panic!("{:?}", two.warnings()) };
    assert!(warning.starts_with("`tie_word_embeddings` is true, but"), "{warning}");
}

#[test]
fn the_logits_of_the_last_layer_are_the_logits() {
    let generator = Generator::bundled().unwrap();
    let model = generator.engine().model();
    let (num_layers, vocab_size) = (model.num_layers(), model.vocab_size());
    let plain = forward(&generator, &rows(|_, _| {}), &[]).unwrap();
    let all = rows(|_, row| row.outputs.layer_logits = layers(&[2, num_layers]));
    let out = forward(&generator, &all, &[]).unwrap();
    assert_eq!(out.logits, plain.logits);
    for (row, logits) in plain.logits.chunks(vocab_size).enumerate() {
        let inner = &out.layer_logits[2 * row * vocab_size..2 * (row + 1) * vocab_size];
        assert_eq!(&inner[vocab_size..], logits);
        assert_ne!(&inner[..vocab_size], logits);
    }
}

#[test]
fn rows_deliver_what_they_ask_for_in_their_order() {
    let generator = Generator::bundled().unwrap();
    let width = generator.engine().model().hidden_size();
    let every = rows(|_, row| row.outputs.hidden_states = layers(&[0, 1, 3, 6]));
    let every = forward(&generator, &every, &[]).unwrap();
    // Row 1 wants layers 1 and 6, row 4 wants layer 3, the others nothing.
    let some = rows(|position, row| {
        row.outputs = RowOutputs::NONE;
        row.outputs.hidden_states = match position {
            1 => layers(&[1, 6]),
            4 => layers(&[3]),
            _ => LayerSet::EMPTY,
        };
    });
    let some = forward(&generator, &some, &[]).unwrap();
    let state = |row: usize, rank: usize| &every.hidden_states[(4 * row + rank) * width..][..width];
    let expected = [state(1, 1), state(1, 3), state(4, 2)].concat();
    assert_eq!(some.hidden_states, expected);
    assert!(some.logits.is_empty());
}

#[test]
fn a_row_that_ends_early_gives_the_normed_logits_of_its_layer_and_disturbs_no_other() {
    let generator = Generator::bundled().unwrap();
    let vocab_size = generator.engine().model().vocab_size();
    let plain = forward(&generator, &rows(|_, _| {}), &[]).unwrap();
    // The last row ends after four layers: no later row needs its keys and values.
    let early = rows(|position, row| row.last_layer = (position + 1 == TOKENS.len()).then_some(4));
    let early = forward(&generator, &early, &[]).unwrap();
    let last = (TOKENS.len() - 1) * vocab_size;
    assert_eq!(early.logits[..last], plain.logits[..last]);
    assert_ne!(early.logits[last..], plain.logits[last..]);
    // The final norm is applied there, unlike for the logits of an inner layer.
    let inner = forward(&generator, &rows(|_, row| row.outputs.layer_logits = layers(&[4])), &[]).unwrap();
    assert_ne!(early.logits[last..], inner.layer_logits[last..]);
    let all_early = forward(&generator, &rows(|_, row| row.last_layer = Some(4)), &[]).unwrap();
    assert_eq!(all_early.logits[last..], early.logits[last..]);
}

#[test]
fn the_embedding_of_a_token_gives_what_the_token_gives() {
    let generator = Generator::bundled().unwrap();
    let width = generator.engine().model().hidden_size();
    let plain = forward(&generator, &rows(|_, row| row.outputs.hidden_states = layers(&[0])), &[]).unwrap();
    let embeddings = &plain.hidden_states;
    assert_eq!(embeddings.len(), TOKENS.len() * width);
    let embedded = rows(|position, row| row.input = RowInput::Embedding(position));
    assert_eq!(forward(&generator, &embedded, embeddings).unwrap().logits, plain.logits);
    let error = forward(&generator, &embedded, &embeddings[width..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}
