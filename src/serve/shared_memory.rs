//! The memory that several models have in common: how much of it the KV cache of each may take, and what may be loaded at once.

use super::options::ServeOptions;
use super::served::ServedModel;
use crate::generator::MemoryPlan;
use rsgen_core::error::Result;
use rsgen_core::refuse_if;

/// The tokens that each cache holds at the least.
const LEAST_TOKENS: u64 = 512;

/// The bytes of the KV cache of each model, so that the loaded models stay within a budget: an equal part of what the weights
/// leave, of as many of the largest models as fit in that way, or as may be loaded at a time.
pub fn kv_cache_share(plans: &[MemoryPlan], budget: u64, models_max: Option<usize>) -> usize {
    let least = plans.iter().map(least_cache).max().unwrap_or_default();
    let weights = plans.iter().map(|plan| plan.weight_bytes).collect();
    usize::try_from(share(weights, least, budget, models_max)).unwrap_or(usize::MAX)
}

/// Refuses to load more models at the start than may be loaded at a time.
///
/// # Errors
/// `Config` when there are more than `models_max`, or when they take more than `models_memory`.
pub fn check_loaded_on_startup(models: &[ServedModel], options: &ServeOptions) -> Result<()> {
    let (count, bytes) = (models.len(), models.iter().map(ServedModel::bytes).sum::<u64>());
    let rule =
        |what: String| format!("must be at least {what} that are loaded on startup; or load the first alone");
    refuse_if(options.models_max.is_some_and(|most| most < count), "models_max", || {
        rule(format!("{count}, the number of models"))
    })?;
    refuse_if(options.models_memory.is_some_and(|most| most < bytes), "models_memory", || {
        rule(format!("the {bytes} bytes of the models"))
    })
}

/// The bytes of a cache that is just large enough.
fn least_cache(plan: &MemoryPlan) -> u64 {
    let tokens = plan.kv_cache_tokens.max(1) as u64;
    (plan.kv_cache_bytes.value as u64).div_ceil(tokens) * LEAST_TOKENS
}

fn share(mut weights: Vec<u64>, least: u64, budget: u64, models_max: Option<usize>) -> u64 {
    weights.sort_unstable_by(|one, other| other.cmp(one));
    let (mut share, mut taken) = (0, 0u64);
    for (count, weight) in (1..=models_max.unwrap_or(usize::MAX)).zip(weights) {
        taken = taken.saturating_add(weight);
        let each = budget.saturating_sub(taken) / count as u64;
        if count > 1 && each < least {
            break;
        }
        share = each;
    }
    share.max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caches_share_what_the_weights_leave() {
        for (weights, budget, models_max, expected) in [
            (vec![3, 3], 8, None, 1),
            (vec![3, 3, 3], 8, None, 1),
            (vec![3, 3], 8, Some(1), 5),
            (vec![1, 7], 8, None, 1),
            (vec![1, 7], 9, None, 2),
            (vec![1, 7], 10, None, 1),
            (vec![2, 2, 2, 2], 20, None, 3),
            (vec![9], 8, None, 1),
        ] {
            let found = share(weights.clone(), 1, budget, models_max);
            assert_eq!(found, expected, "{weights:?} {budget} {models_max:?}");
            let largest = weights.iter().max().unwrap();
            assert!(largest + found <= budget || *largest > budget, "{weights:?}");
        }
    }
}
