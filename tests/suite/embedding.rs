//! Guarantees to programs that embed generators: they are handles that threads share, and are independent of each
//! other. `tests/last_handle.rs` checks that they leave nothing behind.

use std::sync::Arc;

use rsgen::generator::KvDtype;
use rsgen::{
    DType, ErrorKind, GenerationConfig, Generator, GeneratorOptions, ThreadPool, TokenStream, WeightType,
};
use rsgen_kernels::Isa;

use crate::support::bits;

const PROMPT: &str = "Once upon a time";

fn config() -> GenerationConfig {
    GenerationConfig::new().do_sample(true).seed(5).max_new_tokens(30).output_logits(true)
}

#[test]
fn handles_go_from_thread_to_thread() {
    fn is_shared<T: Send + Sync + Clone + 'static>() {}
    fn is_sent<T: Send + 'static>() {}
    is_shared::<Generator>();
    is_shared::<ThreadPool>();
    is_sent::<TokenStream>();
    is_sent::<GeneratorOptions>();
    is_sent::<rsgen::Error>();
}

#[test]
fn a_clone_is_a_handle_of_the_same_model() {
    let generator = Generator::bundled().unwrap();
    let clone = generator.clone();
    assert!(Arc::ptr_eq(generator.engine(), clone.engine()));
    // Its cache is the same as well, so that a limit holds for all clones together.
    let mut stream = clone.stream(PROMPT, &config()).unwrap();
    let _ = stream.next_token(&mut || false).unwrap();
    let stats = generator.engine().pool().stats();
    assert!(stats.available_blocks < stats.max_blocks);
    drop(clone);
    assert_eq!(bits(&stream.into_output().unwrap()), bits(&generator.generate(PROMPT, &config()).unwrap()));
}

#[test]
fn generators_with_different_options_live_side_by_side() {
    let isas = Isa::available();
    let options = |num_threads, isa: Isa, kv_dtype, dtype: WeightType, kv_cache_bytes| {
        GeneratorOptions::new()
            .num_threads(num_threads)
            .isa(isa)
            .kv_dtype(kv_dtype)
            .dtype(dtype)
            .kv_cache_bytes(kv_cache_bytes)
    };
    let all = [
        options(1, isas[0], KvDtype::F32, DType::F32.into(), 64 << 20),
        options(3, isas[isas.len() - 1], KvDtype::Bf16, DType::F16.into(), 4 << 20),
        options(2, isas[isas.len() / 2], KvDtype::F32, DType::Bf16.into(), 1 << 20),
    ];
    let open = |options| Generator::bundled_with(options).unwrap();
    // Each alone, the others not even loaded.
    let alone: Vec<_> =
        all.iter().map(|options| bits(&open(options).generate(PROMPT, &config()).unwrap())).collect();
    assert_ne!(alone[0], alone[1], "float16 weights and a bfloat16 cache make a difference");

    // Together: their streams in turns, token by token.
    let generators: Vec<Generator> = all.iter().map(open).collect();
    for (generator, options) in generators.iter().zip(&all) {
        let workers = generator.engine().workers();
        assert_eq!(Some(workers.num_threads()), options.num_threads);
        assert_eq!(Some(workers.isa().name()), options.isa.map(Isa::name));
    }
    let mut streams: Vec<TokenStream> =
        generators.iter().map(|generator| generator.stream(PROMPT, &config()).unwrap()).collect();
    while streams.iter_mut().filter_map(Iterator::next).map(Result::unwrap).count() > 0 {}
    for (stream, expected) in streams.iter().zip(&alone) {
        assert_eq!(&bits(stream.output().unwrap()), expected);
    }

    // And on a thread each, while the cache of the last is full.
    let [first, second, third] = &generators[..] else { unreachable!() };
    let _full = third.engine().pool().reserve(third.engine().pool().stats().available_blocks).unwrap();
    assert_eq!(third.generate(PROMPT, &config()).unwrap_err().kind(), ErrorKind::Capacity);
    std::thread::scope(|scope| {
        for (generator, expected) in [first, second].into_iter().zip(&alone) {
            scope.spawn(move || {
                for _ in 0..3 {
                    assert_eq!(&bits(&generator.generate(PROMPT, &config()).unwrap()), expected);
                }
            });
        }
    });
}

#[test]
fn the_end_of_one_generator_is_nothing_to_another() {
    let survivor = Generator::bundled().unwrap();
    let expected = bits(&survivor.generate(PROMPT, &config()).unwrap());
    let mut stream = survivor.stream(PROMPT, &config()).unwrap();
    stream.next().unwrap().unwrap();
    let other = Generator::bundled().unwrap();
    other.stream(PROMPT, &config()).unwrap().next().unwrap().unwrap();
    drop(other);
    assert_eq!(bits(&stream.into_output().unwrap()), expected);
}
