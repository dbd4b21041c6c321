//! Generators on a given pool: shared with each other, busy with other work, and used from inside.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use rsgen::{ErrorKind, GenerationConfig, Generator, GeneratorOptions, ThreadPool};

use crate::support::bits;

const PROMPTS: [&str; 4] = ["Once upon a time", "One day, a little fox", "Near the lake", "A"];
/// A timeout far longer than anything here takes.
const NEVER: Duration = Duration::from_secs(60);

fn config() -> GenerationConfig {
    GenerationConfig::new().do_sample(true).seed(3).max_new_tokens(40).output_logits(true)
}

fn rayon_pool(num_threads: usize) -> Arc<rayon::ThreadPool> {
    Arc::new(rayon::ThreadPoolBuilder::new().num_threads(num_threads).build().unwrap())
}

fn on(pool: impl Into<ThreadPool>) -> Generator {
    let pool: ThreadPool = pool.into();
    let options = GeneratorOptions::new().thread_pool(pool);
    Generator::bundled_with(&options).unwrap()
}

fn generate(generator: &Generator, prompt: &str) -> Vec<(Vec<rsgen::TokenId>, Vec<u32>)> {
    bits(&generator.generate(prompt, &config()).unwrap())
}

fn expected() -> Vec<Vec<(Vec<rsgen::TokenId>, Vec<u32>)>> {
    let alone = on(ThreadPool::new(1).unwrap());
    PROMPTS.iter().map(|prompt| generate(&alone, prompt)).collect()
}

#[test]
fn the_pool_decides_the_number_of_threads() {
    let pool = ThreadPool::new(3).unwrap();
    assert_eq!(on(pool.clone()).engine().workers().num_threads(), 3);
    assert_eq!(on(rayon_pool(3)).engine().workers().num_threads(), 3);
    let options = GeneratorOptions::new().thread_pool(pool).num_threads(2);
    let error = Generator::bundled_with(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`num_threads`"), "{error}");
}

#[test]
fn generators_that_share_a_pool_at_the_same_time_each_give_what_they_give_alone() {
    let expected = expected();
    for pool in [ThreadPool::new(2).unwrap(), ThreadPool::new(4).unwrap(), rayon_pool(3).into()] {
        let generators: Vec<Generator> = PROMPTS.iter().map(|_| on(pool.clone())).collect();
        std::thread::scope(|scope| {
            for ((generator, prompt), expected) in generators.iter().zip(PROMPTS).zip(&expected) {
                scope.spawn(move || {
                    for _ in 0..3 {
                        assert_eq!(&generate(generator, prompt), expected, "{prompt}");
                    }
                });
            }
        });
    }
}

#[test]
fn while_all_threads_of_the_pool_are_busy_calls_go_on_alone_with_the_same_bits() {
    let expected = expected();
    let pool = rayon_pool(3);
    let generator = on(Arc::clone(&pool));
    let gives_what_is_expected = |generator: &Generator| {
        for (prompt, expected) in PROMPTS.iter().zip(&expected) {
            assert_eq!(&generate(generator, prompt), expected, "{prompt}");
        }
    };
    gives_what_is_expected(&generator);
    // A job on each thread waits until the calls are done: calls that needed a free thread would hang.
    let (begin, end) = (Arc::new(Barrier::new(4)), Arc::new(Barrier::new(4)));
    for _ in 0..3 {
        let (begin, end) = (Arc::clone(&begin), Arc::clone(&end));
        pool.spawn(move || {
            begin.wait();
            end.wait();
        });
    }
    begin.wait();
    gives_what_is_expected(&generator);
    gives_what_is_expected(&on(Arc::clone(&pool)));
    end.wait();
    gives_what_is_expected(&generator);
}

#[test]
fn a_generator_can_be_used_from_inside_its_own_pool() {
    let expected = expected();
    for num_threads in [1, 2, 4] {
        let pool = rayon_pool(num_threads);
        let generator = on(Arc::clone(&pool));
        assert_eq!(pool.install(|| generate(&generator, PROMPTS[0])), expected[0]);

        // More calls at once than there are threads, some of them on a second model.
        let other = on(Arc::clone(&pool));
        let (done, answers) = mpsc::channel();
        for round in 0..3 {
            for index in 0..PROMPTS.len() {
                let generator = if round == 1 { other.clone() } else { generator.clone() };
                let done = done.clone();
                pool.spawn(move || done.send((index, generate(&generator, PROMPTS[index]))).unwrap());
            }
        }
        for _ in 0..3 * PROMPTS.len() {
            let (index, answer) = answers.recv_timeout(NEVER).unwrap();
            assert_eq!(answer, expected[index], "{num_threads} threads");
        }
    }
}
