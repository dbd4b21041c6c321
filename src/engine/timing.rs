//! `RSGEN_TIMING`: logs a per-stage profile of each call, compared with the roofline of the machine.

use std::fmt::{self, Write as _};
use std::time::Duration;

use rsgen_core::{Error, Result};
use rsgen_kernels::{Limits, Workers};
use rsgen_model::weights::available_memory;
use rsgen_model::{PassKind, PassTimes, StageTime, Timing};

/// The environment variable that switches it on.
const VARIABLE: &str = "RSGEN_TIMING";
/// The log target of the reports, at level `info`.
pub const TIMING_TARGET: &str = "rsgen::timing";
/// The bytes read to measure the bandwidth: more than fits into the CPU caches.
const READ_BYTES: usize = 256 << 20;

/// Whether calls log a profile: `wanted`, or the value of `RSGEN_TIMING`; off if neither is set.
///
/// # Errors
/// When the variable is neither on nor off.
pub fn is_timed(wanted: Option<bool>) -> Result<bool> {
    wanted.map_or_else(|| is_on(&std::env::var(VARIABLE).unwrap_or_default()), Ok)
}

/// `value` is that of the variable, empty when it is not set.
fn is_on(value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Error::config(format!("must be 1 or 0, got {value:?}; unset it to measure nothing"))
            .about(VARIABLE)),
    }
}

/// The peak rates of the threads; see [`Limits::measure`].
pub fn limits(workers: &Workers) -> Limits {
    let some = available_memory().and_then(|memory| usize::try_from(memory / 4).ok());
    Limits::measure(workers, some.map_or(READ_BYTES, |some| some.min(READ_BYTES)))
}

/// Logs the profile of a call, compared with the peak rates of its threads.
pub(super) fn report(timing: &Timing, limits: &Limits, workers: &Workers) {
    let kinds = [
        ("encoder", PassKind::Encoder),
        ("prompt", PassKind::Prompt),
        ("steps", PassKind::Step),
        ("drafts", PassKind::Draft),
    ];
    let kinds = kinds.map(|(name, kind)| (name, timing.times(kind)));
    if kinds.iter().all(|(_, times)| times.is_none()) {
        return;
    }
    let mut text = format!("{} threads, {}: {limits}", workers.num_threads(), workers.isa().name());
    for (name, times) in kinds {
        if let Some(times) = times {
            let _ = write!(text, "\n{}", Table { name, times, limits });
        }
    }
    log::info!(target: TIMING_TARGET, "{text}");
}

/// The times of passes of one kind, a line per stage.
struct Table<'a> {
    name: &'a str,
    times: &'a PassTimes,
    limits: &'a Limits,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, times, limits } = self;
        let total = times.total();
        let PassTimes { passes, rows, .. } = times;
        let mean = milliseconds(total) / *passes as f64;
        writeln!(
            f,
            "{name}: passes {passes}, rows {rows}, {:.2} ms, {mean:.3} ms a pass",
            milliseconds(total)
        )?;
        write!(
            f,
            "  {:<10} {:>7} {:>10} {:>6} {:>7} {:>8} {:>8}",
            "stage", "count", "ms", "share", "GB/s", "GFLOP/s", "of limit"
        )?;
        for (stage, time) in times.stages() {
            let StageTime { count, elapsed, work } = time;
            let share = ratio(*elapsed, total);
            write!(f, "\n  {:<10} {count:>7} {:>10.3} {share:>5.1}%", stage.name(), milliseconds(*elapsed))?;
            let flops = work.f32_flops + work.bf16_flops + work.int8_ops;
            if work.bytes > 0 || flops > 0 {
                let rate = |done: u64| done as f64 / elapsed.as_nanos().max(1) as f64;
                let of_limit = ratio(limits.least_time(work), *elapsed);
                write!(f, " {:>7.1} {:>8.1} {of_limit:>7.0}%", rate(work.bytes), rate(flops))?;
            }
        }
        Ok(())
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// In per cent.
fn ratio(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::ErrorKind;
    use rsgen_kernels::{Isa, Work};
    use rsgen_model::Stage;

    #[test]
    fn the_argument_takes_precedence_over_the_variable_and_a_wrong_value_is_named() {
        assert!(is_timed(Some(true)).unwrap() && !is_timed(Some(false)).unwrap());
        for (value, expected) in [("", false), ("0", false), ("Off", false), ("1", true), (" yes ", true)] {
            assert_eq!(is_on(value).unwrap(), expected, "{value:?}");
        }
        let error = is_on("very").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("`RSGEN_TIMING` must be 1 or 0, got \"very\""), "{error}");
    }

    #[test]
    fn a_table_has_a_line_for_each_stage_that_was_run() {
        let limits = limits(&Workers::new(1, Isa::select().unwrap()).unwrap());
        let mut times = PassTimes { passes: 2, rows: 10, ..PassTimes::default() };
        let ms = Duration::from_millis;
        let time = |elapsed, work| StageTime { count: 4, elapsed, work };
        // A tenth of what the machine could read in that time.
        let bytes = (limits.read_gb_per_second * 1e6 * 0.1 * 30.0) as u64;
        times.stages[Stage::Qkv as usize] =
            time(ms(30), Work { bytes, f32_flops: 60_000, ..Work::default() });
        times.stages[Stage::Embedding as usize] = time(ms(10), Work::default());
        let text = Table { name: "steps", times: &times, limits: &limits }.to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[0].join(" "), "steps: passes 2, rows 10, 40.00 ms, 20.000 ms a pass");
        assert_eq!(lines[2], ["embedding", "4", "10.000", "25.0%"]);
        assert_eq!(lines[3][..4], ["qkv", "4", "30.000", "75.0%"]);
        assert_eq!((lines[3][5], lines[3][6]), ("0.0", "10%"), "{text}");
    }
}
