//! Metrics in Prometheus' text format, under the names that vLLM's dashboards know with another prefix.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::models::{Entry, Status};
use super::places::Place;
use super::state::ServerState;
use crate::engine::GenerationOutput;
use rsgen_core::types::FinishReason;
use rsgen_model::cache::PoolStats;

/// The buckets of the histograms of requests and of tokens, in seconds.
const REQUEST: &[f64] = &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const TOKEN: &[f64] = &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many requests wait.
    QueueFull,
    /// The prompts that wait have too many tokens.
    QueueTokens,
    /// It waited too long.
    QueueTimeout,
    /// The request limit of its key is reached.
    KeyLimit,
    /// The KV cache has no room.
    Capacity,
    /// The server is about to stop.
    Draining,
    /// The bodies of requests take all memory that is for them.
    Bodies,
}

impl Refused {
    const NAMES: [&str; 7] =
        ["queue_full", "queue_tokens", "queue_timeout", "key_limit", "capacity", "draining", "bodies"];
}

/// Why a running request ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The client left.
    Client,
    /// The client read nothing for too long.
    SlowReader,
    /// The server stopped.
    Shutdown,
}

impl Cancelled {
    const NAMES: [&str; 3] = ["client", "slow_reader", "shutdown"];

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The counters of a server. A request has no model yet while it waits for its turn.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    refused: [AtomicU64; Refused::NAMES.len()],
    cancelled: [AtomicU64; Cancelled::NAMES.len()],
    pub(super) internal_errors: AtomicU64,
    queue_time: Histogram<{ REQUEST.len() }>,
}

/// The counters of a model, which go on when it is unloaded and loaded again.
#[derive(Debug, Default)]
pub(super) struct ModelMetrics {
    finished: [AtomicU64; FinishReason::ALL.len()],
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    pub(super) numeric_errors: AtomicU64,
    drafts: AtomicU64,
    draft_tokens: AtomicU64,
    accepted_tokens: AtomicU64,
    time_to_first_token: Histogram<{ REQUEST.len() }>,
    inter_token_latency: Histogram<{ TOKEN.len() }>,
    e2e_request_latency: Histogram<{ REQUEST.len() }>,
    encoder_time: Histogram<{ REQUEST.len() }>,
    prefill_time: Histogram<{ REQUEST.len() }>,
    decode_time: Histogram<{ REQUEST.len() }>,
}

/// A histogram of durations: a count for each bucket, and the sum.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    /// The count of each bucket; not cumulative.
    counts: [AtomicU64; N],
    above: AtomicU64,
    microseconds: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::default());
        Self { counts, above: AtomicU64::default(), microseconds: AtomicU64::default() }
    }
}

impl<const N: usize> Histogram<N> {
    /// Adds a duration. `bounds` are those of its kind.
    fn add(&self, bounds: &[f64], duration: Duration) {
        let bound = bounds.iter().position(|&bound| duration.as_secs_f64() <= bound);
        let count = bound.and_then(|index| self.counts.get(index)).unwrap_or(&self.above);
        count.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }

    /// Writes its lines; `model` is the label of its model, which may be empty.
    fn write(&self, text: &mut String, name: &str, model: &str, bounds: &[f64]) {
        let bucket = |bound: &dyn std::fmt::Display| labels(&[model, &format!("le=\"{bound}\"")]);
        let mut sum = 0;
        for (count, bound) in self.counts.iter().zip(bounds) {
            sum += count.load(Ordering::Relaxed);
            line(text, format_args!("{name}_bucket{} {sum}", bucket(bound)));
        }
        sum += self.above.load(Ordering::Relaxed);
        line(text, format_args!("{name}_bucket{} {sum}", bucket(&"+Inf")));
        let (seconds, model) = (self.microseconds.load(Ordering::Relaxed) as f64 / 1e6, labels(&[model]));
        line(text, format_args!("{name}_sum{model} {seconds}"));
        line(text, format_args!("{name}_count{model} {sum}"));
    }
}

impl Metrics {
    pub(super) fn refused(&self, why: Refused) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cancelled(&self, why: Cancelled) {
        self.cancelled[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A request has got its slot.
    pub(super) fn admitted(&self, waited: Duration) {
        self.queue_time.add(REQUEST, waited);
    }
}

impl ModelMetrics {
    /// A token has come, the first of its request or a later one.
    pub(super) fn token(&self, is_first: bool, waited: Duration) {
        if is_first {
            self.time_to_first_token.add(REQUEST, waited);
        } else {
            self.inter_token_latency.add(TOKEN, waited);
        }
    }

    /// A call has ended, streamed or not.
    pub(super) fn finished(&self, place: &Place, output: &GenerationOutput) {
        place.finished(output);
        let count = |counter: &AtomicU64, number: u64| {
            counter.fetch_add(number, Ordering::Relaxed);
        };
        for row in &output.rows {
            let reason = FinishReason::ALL.iter().position(|&reason| reason == row.generated.finish_reason);
            count(&self.finished[reason.unwrap_or_default()], 1);
        }
        count(&self.prompt_tokens, output.usage.prompt_tokens as u64);
        count(&self.generation_tokens, output.usage.generated_tokens as u64);
        if let Some(stats) = &output.draft_stats {
            count(&self.drafts, stats.rounds);
            count(&self.draft_tokens, stats.drafted);
            count(&self.accepted_tokens, stats.accepted);
        }
        let timings = output.timings;
        self.e2e_request_latency.add(REQUEST, place.arrived().elapsed());
        if !timings.encoder.is_zero() {
            self.encoder_time.add(REQUEST, timings.encoder);
        }
        self.prefill_time.add(REQUEST, timings.prefill());
        self.decode_time.add(REQUEST, timings.total.saturating_sub(timings.first_token));
    }
}

/// The metrics of a server with these models.
pub(super) fn text(state: &ServerState, models: &[(&Entry, Status)]) -> String {
    let mut text = String::new();
    let (metrics, places) = (&state.metrics, &state.places);
    for (name, value, help) in [
        ("rsgen_requests_running", places.num_running(), "Requests that run"),
        ("rsgen_requests_waiting", places.num_waiting(), "Requests that wait for their turn"),
    ] {
        head(&mut text, name, "gauge", help);
        line(&mut text, format_args!("{name} {value}"));
    }
    let name = "rsgen_internal_errors_total";
    head(&mut text, name, "counter", "Requests that a defect of rsgen ended");
    line(&mut text, format_args!("{name} {}", count(&metrics.internal_errors)));
    for (name, help, label, values, counters) in [
        (
            "rsgen_admission_rejections_total",
            "Refused requests",
            "reason",
            &Refused::NAMES[..],
            &metrics.refused[..],
        ),
        (
            "rsgen_cancelled_total",
            "Requests that ended early",
            "cause",
            &Cancelled::NAMES,
            &metrics.cancelled,
        ),
    ] {
        head(&mut text, name, "counter", help);
        for (value, counter) in values.iter().zip(counters) {
            line(&mut text, format_args!("{name}{{{label}=\"{value}\"}} {}", count(counter)));
        }
    }
    let name = "rsgen_request_queue_time_seconds";
    head(&mut text, name, "histogram", "Before a request had its turn");
    metrics.queue_time.write(&mut text, name, "", REQUEST);
    // What there is of every model has no label where there is but one.
    let is_labelled = models.len() > 1;
    let with_names = |is_labelled: bool| -> Vec<(String, &Entry, &Status)> {
        let label = |entry: &Entry| if is_labelled { of_model(&entry.name) } else { String::new() };
        models.iter().map(|(entry, status)| (label(entry), *entry, status)).collect()
    };
    let all = with_names(is_labelled);
    write_numbers(&mut text, &OF_CACHE, &all);
    write_counters(&mut text, &all);
    write_numbers(&mut text, &OF_LOADS, &with_names(true));
    text
}

/// A model with its label, which may be empty.
type Labelled<'a> = (String, &'a Entry, &'a Status);

/// A metric of a model: its name, kind and help, and the number of one in its state.
type OfModel = (&'static str, &'static str, &'static str, fn(&Entry, &Status) -> Option<f64>);

const OF_CACHE: [OfModel; 3] = [
    (
        "rsgen_kv_cache_usage_ratio",
        "gauge",
        "The part of the KV cache's blocks in use, 0 to 1",
        |_, status| {
            blocks(status).map(|now| 1.0 - now.available_blocks as f64 / now.max_blocks.max(1) as f64)
        },
    ),
    (
        "rsgen_prefix_cache_queries_total",
        "counter",
        "Tokens that were looked up among the cached prompts",
        |_, status| blocks(status).map(|now| now.prefix_cache_queries as f64),
    ),
    ("rsgen_prefix_cache_hits_total", "counter", "Those that were found", |_, status| {
        blocks(status).map(|now| now.prefix_cache_hits as f64)
    }),
];

const OF_LOADS: [OfModel; 4] = [
    ("rsgen_model_loaded", "gauge", "Whether the model is loaded", |_, status| {
        Some(f64::from(u8::from(status.app().is_some())))
    }),
    ("rsgen_model_loads_total", "counter", "Loads for requests", |entry, _| Some(count(&entry.loads))),
    ("rsgen_model_load_failures_total", "counter", "Loads that failed", |entry, _| {
        Some(count(&entry.failures))
    }),
    ("rsgen_model_unloads_total", "counter", "How often the model was unloaded", |entry, _| {
        Some(count(&entry.unloads))
    }),
];

fn blocks(status: &Status) -> Option<PoolStats> {
    status.app().map(|app| app.generator.engine().pool().stats())
}

fn write_numbers(text: &mut String, metrics: &[OfModel], models: &[Labelled<'_>]) {
    for (name, kind, help, number) in metrics {
        head(text, name, kind, help);
        for (label, entry, status) in models {
            if let Some(number) = number(entry, status) {
                line(text, format_args!("{name}{} {number}", labels(&[label])));
            }
        }
    }
}

/// A counter of a model, its name and its help.
type Counter = (&'static str, fn(&ModelMetrics) -> &AtomicU64, &'static str);
/// A histogram of a model in the same form.
type OfRequests = (&'static str, fn(&ModelMetrics) -> &Histogram<{ REQUEST.len() }>, &'static str);

const COUNTERS: [Counter; 6] = [
    ("rsgen_prompt_tokens_total", |metrics| &metrics.prompt_tokens, "Prompt tokens of finished requests"),
    (
        "rsgen_generation_tokens_total",
        |metrics| &metrics.generation_tokens,
        "Generated tokens of finished requests",
    ),
    ("rsgen_spec_drafts_total", |metrics| &metrics.drafts, "Rounds of assisted decoding"),
    ("rsgen_spec_draft_tokens_total", |metrics| &metrics.draft_tokens, "Drafted tokens"),
    (
        "rsgen_spec_accepted_tokens_total",
        |metrics| &metrics.accepted_tokens,
        "Drafted tokens that were accepted",
    ),
    ("rsgen_numeric_errors_total", |metrics| &metrics.numeric_errors, "Requests that left the real numbers"),
];

const HISTOGRAMS: [OfRequests; 5] = [
    (
        "rsgen_time_to_first_token_seconds",
        |metrics| &metrics.time_to_first_token,
        "To the first token of a stream",
    ),
    ("rsgen_e2e_request_latency_seconds", |metrics| &metrics.e2e_request_latency, "Whole requests"),
    ("rsgen_request_encoder_time_seconds", |metrics| &metrics.encoder_time, "In passes of the encoder"),
    (
        "rsgen_request_prefill_time_seconds",
        |metrics| &metrics.prefill_time,
        "Up to the first token, without passes of the encoder",
    ),
    ("rsgen_request_decode_time_seconds", |metrics| &metrics.decode_time, "After the first token"),
];

fn write_counters(text: &mut String, models: &[Labelled<'_>]) {
    for (name, counter, help) in COUNTERS {
        head(text, name, "counter", help);
        for (label, entry, _) in models {
            line(text, format_args!("{name}{} {}", labels(&[label]), count(counter(&entry.metrics))));
        }
    }
    let name = "rsgen_request_success_total";
    head(text, name, "counter", "Finished rows");
    for (label, entry, _) in models {
        for (reason, counter) in FinishReason::ALL.iter().zip(&entry.metrics.finished) {
            let reason = format!("finish_reason=\"{}\"", reason.as_str());
            line(text, format_args!("{name}{} {}", labels(&[label, &reason]), count(counter)));
        }
    }
    let name = "rsgen_inter_token_latency_seconds";
    head(text, name, "histogram", "Between two tokens of a stream");
    for (label, entry, _) in models {
        entry.metrics.inter_token_latency.write(text, name, label, TOKEN);
    }
    for (name, histogram, help) in HISTOGRAMS {
        head(text, name, "histogram", help);
        for (label, entry, _) in models {
            histogram(&entry.metrics).write(text, name, label, REQUEST);
        }
    }
}

/// The label of a model.
fn of_model(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("model_name=\"{name}\"")
}

/// Labels behind the name of a metric, without those that are empty.
fn labels(labels: &[&str]) -> String {
    let labels: Vec<&str> = labels.iter().copied().filter(|label| !label.is_empty()).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn count(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_are_cumulative() {
        let histogram = Histogram::<{ REQUEST.len() }>::default();
        for milliseconds in [1, 10, 11, 2_000, 1_000_000] {
            histogram.add(REQUEST, Duration::from_millis(milliseconds));
        }
        let mut text = String::new();
        histogram.write(&mut text, "x", "", REQUEST);
        histogram.write(&mut text, "y", &of_model("a\"b"), REQUEST);
        for expected in [
            "y_bucket{model_name=\"a\\\"b\",le=\"3\"} 4\n",
            "y_count{model_name=\"a\\\"b\"} 5\n",
            "x_bucket{le=\"0.01\"} 2\n",
            "x_bucket{le=\"3\"} 4\n",
            "x_bucket{le=\"+Inf\"} 5\n",
            "x_count 5\n",
            "x_sum 1002.022\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
