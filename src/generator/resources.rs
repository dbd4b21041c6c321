//! The resources of a model: threads, instruction set, and memory for weights and KV cache, each with its
//! reason.
//!
//! They are chosen before any weight is read, so that a model that does not fit fails at once, and reports
//! need not load one.

use std::fmt;

use super::GeneratorOptions;
use super::precision::Precision;
use crate::engine::{self, CacheReason, ThreadsReason, default_kv_cache_bytes, kv_cache_bytes, num_threads};
use rsgen_core::{Choice, Error, Result, message};
use rsgen_kernels::tensor::WeightType;
use rsgen_kernels::{Isa, IsaReason, Limits, ThreadPool, Workers};
use rsgen_model::cache::{KvCapacity, KvLayout};
use rsgen_model::weights::{MemoryLimit, ModelConfig, Weights, memory_limit};

/// The resources of the machine that models use.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The number of threads.
    pub num_threads: Choice<usize, ThreadsReason>,
    /// The instruction set of the kernels.
    pub isa: Choice<Isa, IsaReason>,
    /// The bytes that may still be allocated; `None` where the system does not report them.
    pub memory: Option<Choice<u64, MemoryLimit>>,
}

/// How the memory is divided between a model's weights and its KV cache.
#[derive(Debug, Clone, Copy)]
pub struct MemoryPlan {
    /// The bytes of the weights once they are packed.
    pub weight_bytes: u64,
    /// The bytes that are left besides the weights; `None` where the system does not report them.
    pub left: Option<u64>,
    /// The most bytes of the KV cache.
    pub kv_cache_bytes: Choice<usize, CacheReason>,
    /// The tokens that fit into the KV cache, all sequences together.
    pub kv_cache_tokens: usize,
}

impl Machine {
    /// The threads to compute on: the given ones, or new ones.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub(super) fn thread_pool(&self, options: &GeneratorOptions) -> Result<ThreadPool> {
        options
            .thread_pool
            .clone()
            .map_or_else(|| ThreadPool::new(engine::started(self.num_threads.value)), Ok)
    }

    /// The resources of models opened with these options.
    ///
    /// # Errors
    /// When both a number of threads and a pool are given, or when `RSGEN_NUM_THREADS` or `RSGEN_ISA` cannot
    /// be used; see [`num_threads`] and [`Isa::choose`].
    pub fn choose(options: &GeneratorOptions) -> Result<Self> {
        let threads = match (&options.thread_pool, options.num_threads) {
            (None, wanted) => num_threads(wanted)?,
            (Some(pool), None) => Choice::new(pool.num_threads(), ThreadsReason::Pool),
            (Some(pool), Some(wanted)) => {
                return Err(Error::config(format!(
                    "must be unset beside a `thread_pool`, which has {} threads, got {wanted}; leave one of \
                 them out",
                    pool.num_threads()
                ))
                .about("num_threads"));
            }
        };
        Ok(Self { num_threads: threads, isa: Isa::choose(options.isa)?, memory: memory_limit() })
    }

    /// Measures the peak rates of these threads.
    ///
    /// # Errors
    /// When the operating system refuses the threads.
    pub fn limits(&self) -> Result<Limits> {
        Ok(engine::limits(&Workers::new(engine::started(self.num_threads.value), self.isa.value)?))
    }

    /// Warns of more threads than cores.
    pub fn warning(&self) -> Option<String> {
        engine::oversubscription(self.num_threads)
    }

    /// The default size of the KV cache, in bytes, for a very small model.
    pub fn default_kv_cache_bytes(&self) -> Choice<usize, CacheReason> {
        default_kv_cache_bytes(self.memory.as_ref().map(|memory| memory.value))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { num_threads, isa, memory } = self;
        write!(f, "threads: {} ({}), ", num_threads.value, num_threads.reason)?;
        write!(f, "instruction set: {} ({}), ", isa.value.name(), isa.reason)?;
        match memory {
            Some(memory) => write!(f, "memory: {} bytes ({})", memory.value, memory.reason),
            None => f.write_str("memory: unknown"),
        }
    }
}

impl MemoryPlan {
    /// The plan for a model.
    ///
    /// # Errors
    /// `Capacity` when the weights do not fit, or when the KV cache has no room or no block.
    pub(super) fn new(
        name: &str,
        config: &ModelConfig,
        weights: &Weights,
        options: &GeneratorOptions,
        precision: Precision,
        machine: &Machine,
    ) -> Result<Self> {
        // Packed weights take as much memory as in the file, unless they are rounded.
        let rounded = precision.weights.filter(|_| !precision.is_packed);
        let weight_bytes = rounded.map_or(weights.kept_len(), |dtype| {
            dtype.bytes_of(weights.num_elements()) + unrounded(dtype, config)
        });
        let available = machine.memory.as_ref();
        if let Some(available) = available.filter(|available| weight_bytes > available.value) {
            return Err(Error::capacity(message!(
                ("{name} needs {weight_bytes} bytes of memory for its weights, but {} are available ({}); free \
                  memory, or set ", available.value, available.reason)
                {dtype} " to a smaller type"
            )));
        }
        let left = available.map(|available| available.value - weight_bytes);
        let kv_cache_bytes = kv_cache_bytes(options.kv_cache_bytes, left)?;
        let (layers, heads) = (config.num_hidden_layers, config.num_key_value_heads);
        let layout = KvLayout::new(layers, heads, config.head_dim, precision.kv)?;
        let kv_cache_tokens = KvCapacity::from_bytes(layout, kv_cache_bytes.value)?.max_tokens();
        Ok(Self { weight_bytes, left, kv_cache_bytes, kv_cache_tokens })
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weight_bytes, kv_cache_bytes, kv_cache_tokens, .. } = self;
        write!(
            f,
            "weights: {weight_bytes} bytes, KV cache: up to {} bytes for {kv_cache_tokens} tokens ({})",
            kv_cache_bytes.value, kv_cache_bytes.reason
        )
    }
}

/// The extra bytes of the head and of an untied embedding, which have more bits than the other quantized
/// weights.
fn unrounded(dtype: WeightType, config: &ModelConfig) -> u64 {
    let weights = config.vocab_size as u64 * config.hidden_size as u64;
    let head = dtype.of_head().bytes_of(weights) - dtype.bytes_of(weights);
    let keeps_embedding = dtype.float().is_none() && !config.tie_word_embeddings;
    let embedding = if keeps_embedding { weights.saturating_mul(2) - dtype.bytes_of(weights) } else { 0 };
    head + embedding
}
