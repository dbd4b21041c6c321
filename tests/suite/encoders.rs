//! Models with an encoder against transformers: tiny models whose weights are computed from their names, as
//! `tools/golden/encoder_goldens.py` does.

use std::fs;

use rsgen::types::{LayerSet, LayerShape, RowOutputs};
use rsgen::{DType, ErrorKind, Generator, GeneratorOptions, Tensor, TokenId, WeightType, pack};
use rsgen_kernels::Isa;
use rsgen_model::cache::{KvCapacity, KvDtype, KvStore, SequenceCache, SharedPool};
use rsgen_model::{
    EncodeBatch, EncodeOutput, Encoder, ForwardBatch, ForwardContext, ForwardOutput, Row, RowInput, Scratch,
    SourceRow, Timing,
};
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::families::{goldens_of, tensor, tensors, write};
use crate::golden_support::{Faults, PROMISED, bits, difference, integers, list, token_ids, unequal};

fn goldens() -> Vec<(String, Value)> {
    goldens_of("tests/golden/encoders")
}

fn open(golden: &Value, options: &GeneratorOptions) -> Generator {
    let config = golden["config"].to_string().into_bytes();
    Generator::from_tensors(config, tensors(golden), options).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    list(value).iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// A source, what hides its tokens, and what the decoder reads.
#[derive(Clone)]
struct Case {
    ids: Vec<TokenId>,
    mask: Vec<bool>,
    decoder_ids: Vec<TokenId>,
}

fn cases(golden: &Value) -> Vec<Case> {
    let case = |case: &Value| Case {
        ids: token_ids(&case["ids"]),
        mask: integers(&case["mask"]).into_iter().map(|shown| shown == 1).collect(),
        decoder_ids: token_ids(&case["decoder_ids"]),
    };
    list(&golden["sources"]).iter().map(case).collect()
}

impl Case {
    fn num_shown(&self) -> usize {
        self.mask.iter().filter(|shown| **shown).count()
    }

    fn rows(&self, encoder: &dyn Encoder, source: usize, outputs: RowOutputs) -> Vec<SourceRow> {
        let rows = self.ids.iter().zip(encoder.slots(&self.ids)).zip(&self.mask);
        let row = |((&id, slot), _)| SourceRow { input: RowInput::Token(id), slot, source, outputs };
        rows.filter(|(_, shown)| **shown).map(row).collect()
    }
}

/// The logits alone.
const LOGITS: [RowOutputs; 2] = [RowOutputs::NONE, RowOutputs::LOGITS];

/// The results of a pass of the encoder over all cases, and of one of the decoder.
struct Computed {
    encoded: EncodeOutput,
    decoded: ForwardOutput,
}

/// What a model gives for these cases together, with the outputs of every row.
fn compute(
    generator: &Generator,
    dtype: KvDtype,
    cases: &[Case],
    [of_encoder, of_decoder]: [RowOutputs; 2],
) -> Computed {
    let (model, workers) = (generator.engine().model(), generator.engine().workers());
    let encoder = model.encoder().unwrap();
    let capacity = KvCapacity::from_blocks(model.kv_layout(dtype).unwrap(), 200).unwrap();
    let (pool, mut store) = (SharedPool::new(capacity), KvStore::new(capacity));
    let sequence = |len: usize| {
        let mut sequence = SequenceCache::new(&pool);
        sequence.append(len).unwrap();
        sequence
    };
    let sources: Vec<_> = cases.iter().map(|case| sequence(case.num_shown())).collect();
    let sequences: Vec<_> = cases.iter().map(|case| sequence(case.decoder_ids.len())).collect();
    store.ensure(pool.num_blocks(), workers).unwrap();
    let (sources, tables): (Vec<_>, Vec<_>) =
        sources.iter().zip(&sequences).map(|(source, sequence)| (source.table(), sequence.table())).unzip();
    let (mut scratch, mut timing, mut never) = (Scratch::default(), Timing::default(), || false);
    let mut context =
        ForwardContext { workers, scratch: &mut scratch, timing: &mut timing, interrupted: &mut never };

    let rows: Vec<_> =
        cases.iter().enumerate().flat_map(|(source, case)| case.rows(encoder, source, of_encoder)).collect();
    let mut encoded = EncodeOutput::default();
    let batch = EncodeBatch { rows: &rows, tables: &sources, embeddings: &[] };
    encoder.encode(&batch, &mut store, &mut context, &mut encoded).unwrap();

    let rows_of = |(source, case): (usize, &Case)| {
        let len = case.decoder_ids.len();
        let row = |(position, id): (usize, TokenId)| Row {
            input: RowInput::Token(id),
            table: source,
            source,
            position,
            rope_seq_len: len,
            adapters: None,
            last_layer: None,
            outputs: of_decoder,
        };
        case.decoder_ids.clone().into_iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = cases.iter().enumerate().flat_map(rows_of).collect();
    let batch =
        ForwardBatch { rows: &rows, tables: &tables, sources: &sources, embeddings: &[], adapters: &[] };
    let mut decoded = ForwardOutput::default();
    model.forward(&batch, &mut store, &mut context, &mut decoded).unwrap();
    Computed { encoded, decoded }
}

#[test]
fn every_model_with_an_encoder_has_the_logits_of_transformers() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let generator = open(&golden, &GeneratorOptions::default());
        let vocab_size = generator.config().vocab_size;
        let all = cases(&golden);
        let logits = compute(&generator, KvDtype::F32, &all, LOGITS).decoded.logits;
        let mut first = 0;
        for (index, (case, expected)) in all.iter().zip(list(&golden["sources"])).enumerate() {
            for (position, expected) in
                integers(&expected["positions"]).into_iter().zip(list(&expected["logits"]))
            {
                let found = &logits[(first + position as usize) * vocab_size..][..vocab_size];
                let what = format!("{name}, source {index}, logits at {position}");
                faults.check(what, difference(found, &floats(expected), PROMISED));
            }
            first += case.decoder_ids.len();
        }
    }
    faults.report(10 * 20);
}

/// All states and weights of a side.
fn everything(shape: &LayerShape) -> RowOutputs {
    let layers = (0..=shape.num_layers()).fold(LayerSet::EMPTY, |set, layer| set.with(layer).unwrap());
    RowOutputs { hidden_states: layers, attentions: true, ..RowOutputs::NONE }
}

#[test]
fn states_and_attentions_of_both_sides_are_those_of_transformers() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let generator = open(&golden, &GeneratorOptions::default());
        let model = generator.engine().model();
        let shapes = [model.encoder().unwrap().layer_shape(), model.layer_shape()];
        let case = &cases(&golden)[2];
        let outputs = shapes.each_ref().map(everything);
        let Computed { encoded, decoded } =
            compute(&generator, KvDtype::F32, std::slice::from_ref(case), outputs);
        let expected =
            |field: &str| -> Vec<f32> { list(&golden["states"][field]).iter().flat_map(floats).collect() };
        for (what, found, count) in [
            ("encoder_hidden_states", &encoded.hidden_states, shapes[0].hidden_len()),
            ("decoder_hidden_states", &decoded.hidden_states, shapes[1].hidden_len()),
            // Those of the last layer.
            ("encoder_attentions", &encoded.attentions, shapes[0].num_heads * case.num_shown()),
            ("cross_attentions", &decoded.cross_attentions, shapes[1].num_heads * case.num_shown()),
            ("decoder_attentions", &decoded.attentions, shapes[1].num_heads * case.decoder_ids.len()),
        ] {
            let found = &found[found.len() - count..];
            faults.check(format!("{name}, {what}"), difference(found, &expected(what), PROMISED));
        }
    }
    faults.report(5 * 20);
}

#[test]
fn a_source_gives_the_same_bits_alone_and_in_any_company() {
    let mut faults = Faults::default();
    for (name, golden) in goldens() {
        let all = cases(&golden);
        for dtype in [KvDtype::F32, KvDtype::I8] {
            let alone = open(&golden, &GeneratorOptions::new().num_threads(1));
            let outputs = {
                let model = alone.engine().model();
                let [encoder, decoder] = [model.encoder().unwrap().layer_shape(), model.layer_shape()]
                    .map(|shape| everything(&shape));
                [encoder, RowOutputs { logits: true, ..decoder }]
            };
            let of = |generator: &Generator, cases: &[Case]| {
                let Computed { encoded, decoded } = compute(generator, dtype, cases, outputs);
                [encoded.hidden_states, encoded.attentions, decoded.logits, decoded.cross_attentions]
                    .map(|numbers| bits(&numbers))
            };
            let each: Vec<_> = all.iter().map(|case| of(&alone, std::slice::from_ref(case))).collect();
            let expected: [Vec<u32>; 4] =
                std::array::from_fn(|part| each.iter().flat_map(|case| case[part].clone()).collect());
            let mut check = |how: String, generator: &Generator| {
                for (found, expected) in of(generator, &all).iter().zip(&expected) {
                    faults.check(format!("{name}, {dtype:?}, {how}"), unequal(found, expected));
                }
            };
            check("together".to_owned(), &alone);
            for threads in [2, 3] {
                check(
                    format!("{threads} threads"),
                    &open(&golden, &GeneratorOptions::new().num_threads(threads)),
                );
            }
            for isa in Isa::available() {
                check(isa.name().to_owned(), &open(&golden, &GeneratorOptions::new().isa(isa)));
            }
        }
    }
    faults.report(4 * 2 * 4 * 20);
}

#[test]
fn models_in_fewer_bits_are_near_themselves_and_open_as_they_were_packed() {
    let mut faults = Faults::default();
    let folder = tempfile::tempdir().unwrap();
    for (name, golden) in goldens() {
        let all = cases(&golden)[..2].to_vec();
        let logits = |generator: &Generator| compute(generator, KvDtype::F32, &all, LOGITS).decoded.logits;
        let expected = logits(&open(&golden, &GeneratorOptions::default()));
        let size = (expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32).sqrt();
        let model = folder.path().join(&name);
        write(&model, &golden, &tensors(&golden));
        for (dtype, part) in
            [(WeightType::Float(DType::Bf16), 0.15), (WeightType::Int8, 0.3), (WeightType::Int4, 2.0)]
        {
            let found = logits(&open(&golden, &GeneratorOptions::new().dtype(dtype)));
            let far = found.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > part * size).count();
            let most = expected.len() / 20;
            faults.check(
                format!("{name}, {dtype}"),
                (far > most).then(|| format!("{far} of {} are far", found.len())),
            );
            if matches!(dtype, WeightType::Float(_)) {
                continue;
            }
            let out = folder.path().join(format!("{name}-{dtype}"));
            let opened = pack(model.to_str().unwrap(), &out, &GeneratorOptions::new().dtype(dtype))
                .and_then(|_| Generator::open(out.to_str().unwrap()));
            let fault = match opened {
                Ok(packed) => unequal(&bits(&logits(&packed)), &bits(&found)),
                Err(error) => Some(error.to_string()),
            };
            faults.check(format!("{name}, packed {dtype}"), fault);
        }
    }
    faults.report(5 * 20);
}

#[test]
fn adapters_change_the_matrices_of_both_sides_and_between_them_by_their_names() {
    const RANK: usize = 2;
    const MODULES: [(&str, &[&str]); 2] = [
        (
            "bart",
            &[
                "model.encoder.layers.0.self_attn.k_proj",
                "model.encoder.layers.2.fc1",
                "model.decoder.layers.0.encoder_attn.q_proj",
                "model.decoder.layers.1.encoder_attn.k_proj",
                "model.decoder.layers.1.encoder_attn.v_proj",
            ],
        ),
        (
            "t5",
            &[
                "encoder.block.0.layer.0.SelfAttention.v",
                "encoder.block.1.layer.1.DenseReluDense.wi",
                "decoder.block.0.layer.1.EncDecAttention.o",
                "decoder.block.1.layer.1.EncDecAttention.k",
            ],
        ),
    ];
    let mut faults = Faults::default();
    for (name, modules) in MODULES {
        let (_, golden) = goldens().into_iter().find(|(other, _)| other == name).unwrap();
        let (mut merged, mut adapter) = (tensors(&golden), Vec::new());
        for module in modules {
            let weight = merged.iter_mut().find(|tensor| tensor.name == format!("{module}.weight")).unwrap();
            let [outputs, inputs] = weight.shape[..] else { panic!("{module}") };
            let part = |part: &str, shape: [usize; 2]| {
                tensor(&format!("base_model.model.{module}.lora_{part}.weight"), &shape, false)
            };
            let (a, b) = (part("A", [RANK, inputs]), part("B", [outputs, RANK]));
            let numbers = |tensor: &Tensor| -> Vec<f32> {
                tensor.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            };
            let (mut sum, down, up) = (numbers(weight), numbers(&a), numbers(&b));
            for (index, sum) in sum.iter_mut().enumerate() {
                let (row, column) = (index / inputs, index % inputs);
                let product = (0..RANK).map(|rank| up[row * RANK + rank] * down[rank * inputs + column]);
                *sum += product.sum::<f32>();
            }
            weight.bytes = sum.into_iter().flat_map(f32::to_le_bytes).collect();
            adapter.extend([a, b]);
        }
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "peft_type": "LORA", "task_type": "SEQ_2_SEQ_LM", "r": RANK, "lora_alpha": RANK,
            "target_modules": modules, "base_model_name_or_path": name,
        });
        fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
        let view = |tensor: &Tensor| (tensor.name.clone(), tensor.shape.clone(), tensor.bytes.clone());
        let views: Vec<_> = adapter.iter().map(view).collect();
        let views = views.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).unwrap())
        });
        let path = folder.path().join("adapter_model.safetensors");
        fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
        let all = cases(&golden);
        let logits = |generator: &Generator| compute(generator, KvDtype::F32, &all, LOGITS).decoded.logits;
        let config = golden["config"].to_string().into_bytes();
        let expected = Generator::from_tensors(config, merged, &GeneratorOptions::default()).unwrap();
        let expected = logits(&expected);
        let options = GeneratorOptions::new().adapter(folder.path().to_str().unwrap().to_owned());
        let found = logits(&open(&golden, &options));
        faults.check(name, difference(&found, &expected, PROMISED));
        let without = difference(&logits(&open(&golden, &GeneratorOptions::default())), &expected, PROMISED);
        faults.check(name, without.is_none().then(|| "the adapter changes nothing".to_owned()));
    }
    faults.report(4);
}

#[test]
fn batches_that_do_not_fit_the_model_are_errors() {
    let (_, golden) = goldens().into_iter().find(|(name, _)| name == "bart").unwrap();
    let generator = open(&golden, &GeneratorOptions::default());
    let (model, workers) = (generator.engine().model(), generator.engine().workers());
    let encoder = model.encoder().unwrap();
    assert_eq!((encoder.max_source_len(), encoder.source_vocab_size()), (Some(300), 61));
    let capacity = KvCapacity::from_blocks(model.kv_layout(KvDtype::F32).unwrap(), 4).unwrap();
    let (pool, mut store) = (SharedPool::new(capacity), KvStore::new(capacity));
    let mut sequence = SequenceCache::new(&pool);
    sequence.append(2).unwrap();
    store.ensure(pool.num_blocks(), workers).unwrap();
    let row = |id: u32, slot: usize, source: usize| SourceRow {
        input: RowInput::Token(TokenId(id)),
        slot,
        source,
        outputs: RowOutputs::NONE,
    };
    let (mut scratch, mut timing) = (Scratch::default(), Timing::default());
    let mut encode = |rows: &[SourceRow], interrupted: bool| {
        let mut interrupted = || interrupted;
        let mut context = ForwardContext {
            workers,
            scratch: &mut scratch,
            timing: &mut timing,
            interrupted: &mut interrupted,
        };
        let batch = EncodeBatch { rows, tables: &[sequence.table()], embeddings: &[] };
        encoder.encode(&batch, &mut store, &mut context, &mut EncodeOutput::default())
    };
    for (rows, expected) in [
        (vec![row(5, 0, 0)], "1 rows of sources of 2 tokens"),
        (vec![row(5, 0, 0), row(5, 1, 1)], "the rows of a source are adjacent"),
        (vec![row(5, 0, 1), row(5, 1, 1)], "the rows of a source are adjacent"),
        (vec![row(5, 0, 0); 3], "the rows of a source are adjacent"),
        (vec![row(61, 0, 0), row(5, 1, 0)], "token 61 of a vocabulary of 61"),
        (vec![row(5, 0, 0), row(5, 300, 0)], "position 300 of a model with 300"),
    ] {
        let message = encode(&rows, false).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let rows = [row(5, 0, 0), row(6, 1, 0)];
    assert_eq!(encode(&rows, true).unwrap_err().kind(), ErrorKind::Cancelled);
    encode(&rows, false).unwrap();
    let row = Row {
        input: RowInput::Token(TokenId(2)),
        table: 0,
        source: 0,
        position: 0,
        rope_seq_len: 1,
        adapters: None,
        last_layer: None,
        outputs: RowOutputs::LOGITS,
    };
    let mut never = || false;
    let mut context =
        ForwardContext { workers, scratch: &mut scratch, timing: &mut timing, interrupted: &mut never };
    let batch = ForwardBatch {
        rows: &[row],
        tables: &[sequence.table()],
        sources: &[],
        embeddings: &[],
        adapters: &[],
    };
    let error = model.forward(&batch, &mut store, &mut context, &mut ForwardOutput::default()).unwrap_err();
    assert!(error.to_string().contains("has a source"), "{error}");
}
