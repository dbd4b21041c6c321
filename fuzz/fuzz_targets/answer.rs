//! See `rsgen_fuzz::answer`.
#![no_main]

// Without libFuzzer's own hook, so that a panic that the library catches is none.
libfuzzer_sys::fuzz_target!(init: drop(std::panic::take_hook()), |data: &[u8]| rsgen_fuzz::answer(data));
