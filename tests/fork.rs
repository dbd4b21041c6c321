//! A process that is forked from one with a model: errors instead of hangs, and a model of its own.
#![cfg(all(unix, feature = "bundled"))]
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "there is no fork without it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rsgen::{ErrorKind, GenerationConfig, Generator, GeneratorOptions, TokenId};

const PROMPT: &str = "Once upon a time";

fn open() -> Generator {
    Generator::bundled_with(&GeneratorOptions::new().num_threads(2)).unwrap()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(8)
}

/// Runs `child` in a forked process, and says whether it returned true before ten seconds were over.
fn in_fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `child`, which takes no lock that another thread of this process may hold (that is what is
    // tested), and ends without running anything that was registered here.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork failed");
    if process == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: `status` is a valid place, and the process is a child of this one.
    while unsafe { libc::waitpid(process, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(10) {
            // SAFETY: the process is a child of this one that has not been waited for.
            unsafe { libc::kill(process, libc::SIGKILL) };
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Whether everything that computes is refused, dropping is possible, and a new generator gives the same text.
fn is_refused_and_reopens(generator: Generator, expected: &str) -> bool {
    let is_fork = |kind: Option<ErrorKind>| kind == Some(ErrorKind::Fork);
    let ids = vec![TokenId(5); 3];
    let refused = is_fork(generator.generate(PROMPT, &config()).err().map(|error| error.kind()))
        && is_fork(generator.stream(PROMPT, &config()).err().map(|error| error.kind()))
        && is_fork(generator.score(PROMPT).err().map(|error| error.kind()))
        && is_fork(generator.forward(&[ids]).err().map(|error| error.kind()));
    // Nothing that computes, so nothing to refuse.
    let _ = (generator.engine().pool().stats(), generator.tokenizer().unwrap().encode(PROMPT, true).unwrap());
    drop(generator);
    refused && open().generate(PROMPT, &config()).unwrap().text() == expected
}

#[test]
fn a_forked_process_gets_errors_and_can_open_a_model_of_its_own() {
    let generator = open();
    let expected = generator.generate(PROMPT, &config()).unwrap().text().to_owned();
    assert!(in_fork(|| is_refused_and_reopens(generator.clone(), &expected)));
    let mut stream = generator.stream(PROMPT, &config()).unwrap();
    stream.next().unwrap().unwrap();
    assert!(in_fork(|| {
        let error = stream.next().unwrap().unwrap_err();
        let again = stream.next().unwrap().unwrap_err();
        stream.close();
        [error, again].iter().all(|error| error.kind() == ErrorKind::Fork) && stream.output().is_some()
    }));
    assert_eq!(stream.count(), 7, "the parent's stream goes on");
}

#[test]
fn a_fork_in_the_middle_of_other_threads_work_hangs_nothing() {
    let generator = open();
    let expected = generator.generate(PROMPT, &config()).unwrap().text().to_owned();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (generator, done) = (generator.clone(), &done);
            scope.spawn(move || {
                let config = config().do_sample(true).seed(seed).num_return_sequences(3);
                while !done.load(Ordering::Relaxed) {
                    generator.generate(PROMPT, &config).unwrap();
                    drop(generator.stream(PROMPT, &config).unwrap().nth(2));
                }
            });
        }
        let failed = (0..20).find(|_| !in_fork(|| is_refused_and_reopens(generator.clone(), &expected)));
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the fork that hung or failed");
    });
}
