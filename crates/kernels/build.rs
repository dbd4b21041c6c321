//! Tells the crate what no built-in condition does: whether it is optimized, and whether it needs code for AVX-512.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimized, without_avx512)");
    if var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimized");
    }
    // A quarter of the kernels' code, which a build for this machine alone never runs.
    let is_for_here = var("PROFILE").is_ok_and(|profile| profile == "debug") && var("HOST") == var("TARGET");
    if is_for_here && !has_avx512() {
        println!("cargo::rustc-cfg=without_avx512");
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    true
}
