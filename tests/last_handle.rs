//! The last handle of a generator takes its memory and its threads with it. One test, because it counts what the whole
//! process has.
#![cfg(all(feature = "bundled", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rsgen::{DType, GenerationConfig, Generator, GeneratorOptions, WeightType};

const PROMPT: &str = "Once upon a time";
const ROUNDS: usize = 12;

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Each as number and name.
fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks
        .map(|task| format!("{} {}", task.display(), std::fs::read_to_string(task.join("comm")).unwrap()))
        .collect()
}

#[test]
fn the_last_handle_takes_memory_and_threads_with_it() {
    let options = GeneratorOptions::new().dtype(WeightType::from(DType::F32)).num_threads(4);
    let config = GenerationConfig::new().max_new_tokens(100);
    let (before, mut resident) = (threads(), Vec::new());
    for _ in 0..ROUNDS {
        let generator = Generator::bundled_with(&options).unwrap();
        let clone = generator.clone();
        generator.generate(PROMPT, &config).unwrap();
        let during = threads();
        // The calling thread is the fourth. Nothing else has started any, such as a global pool.
        let started: Vec<_> = during.difference(&before).collect();
        assert!(started.len() == 3 && started.iter().all(|thread| thread.contains("rsgen-")), "{started:?}");

        drop(generator);
        assert_eq!(threads(), during, "a clone is left");
        let mut stream = clone.stream(PROMPT, &config).unwrap();
        stream.next().unwrap().unwrap();
        let engine = Arc::downgrade(clone.engine());
        drop(clone);
        assert_eq!(threads(), during, "a stream is left");
        drop(stream);
        // A thread that was waited for may be listed for another moment.
        let begin = Instant::now();
        while threads() != before {
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", threads());
            std::thread::yield_now();
        }
        assert!(engine.upgrade().is_none());
        resident.push(resident_bytes());
    }
    // An allocator keeps some memory for the next, but not that of eleven models.
    let weights = Generator::bundled_with(&options).unwrap().engine().model().weight_bytes();
    assert!(resident[ROUNDS - 1] < resident[0] + 4 * weights, "{resident:?}, {weights} for a model");
}
