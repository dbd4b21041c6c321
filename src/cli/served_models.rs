//! The models of `rsgen serve`: those that the arguments name, the adapters beside each, and which of them are loaded before
//! requests are answered.

use std::path::Path;

use super::args::LoadingArguments;
use super::catalogue::named_paths;
use super::failure::Failure;
use super::model::{self, ModelSource};
use super::serve::ServeArguments;
use super::terminal::Terminal;
use crate::engine::{Interrupt, started};
use crate::generator::{Machine, MemoryPlan};
use crate::serve::{
    LoadOnStartup, ServeOptions, ServedModel, check_loaded_on_startup, kv_cache_share, load_adapters,
    model_name,
};
use rsgen_core::{Error, Result, refuse_if};
use rsgen_kernels::ThreadPool;

/// A model of the arguments.
struct Named<'a> {
    name: Option<&'a str>,
    /// `None` is the bundled model.
    path: Option<&'a str>,
    /// The names and the folders of the adapters beside it.
    adapters: Vec<(String, String)>,
}

/// The models, of which the first or all are loaded.
pub(super) fn open(
    arguments: &ServeArguments,
    options: &ServeOptions,
    bundled: Option<&Path>,
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> std::result::Result<Vec<ServedModel>, Failure> {
    let ServeArguments { loading, assistant, load_on_startup, served_model_name, .. } = arguments;
    let named = named(arguments)?;
    let load_on_startup = LoadOnStartup::named(load_on_startup)
        .ok_or_else(|| Error::config("must be first, all or none").about("load_on_startup"))?;
    let is_several = named.len() > 1;
    refuse_if(
        is_several && served_model_name.is_some(),
        "served_model_name",
        || "names one model, but there are several; write NAME=PATH for each",
    )?;
    refuse_if(
        is_several && assistant.assistant.is_some(),
        "assistant",
        || "drafts for one model, but there are several; leave it out, or serve one",
    )?;
    let mut loading = loading.clone();
    loading.adapter = loading.adapter.filter(|given| !is_module(given));
    refuse_if(
        is_several && loading.adapter.is_some(),
        "adapter",
        || "must be NAME=PATH where there are several models, or MODEL:NAME=PATH; another one is merged into one model",
    )?;
    if is_several {
        let threads = Machine::choose(&loading.options())?.num_threads;
        loading.thread_pool = Some(ThreadPool::new(started(threads.value))?);
    }
    // The memory of all is known before the first takes its part.
    let plans = |loading: &LoadingArguments| {
        let plan = |Named { path, .. }: &Named<'_>| {
            let files = ModelSource::choose(*path, bundled)?.files()?;
            Ok((model_name(files.name()), MemoryPlan::of(&files, &loading.options())?))
        };
        named.iter().map(plan).collect::<std::result::Result<Vec<_>, Failure>>()
    };
    let is_planned = is_several || !load_on_startup.loads(0);
    let plans = if is_planned { plans(&loading)? } else { Vec::new() };
    if let Some(budget) = arguments.models_memory.filter(|_| is_several && loading.kv_cache_bytes.is_none()) {
        let plans: Vec<MemoryPlan> = plans.iter().map(|(_, plan)| *plan).collect();
        loading.kv_cache_bytes = Some(kv_cache_share(&plans, budget as u64, arguments.models_max));
    }
    let mut models = Vec::new();
    for (index, Named { name, path, adapters }) in named.iter().enumerate() {
        let open = model::opener(*path, &loading, Some(assistant), bundled)?;
        let beside = adapters.clone();
        let open = move |interrupted: &mut Interrupt<'_>| {
            let generator = open(interrupted)?;
            load_adapters(&generator, &beside, interrupted)?;
            Ok(generator)
        };
        let name = name.or(served_model_name.as_deref());
        let (name, bytes) = match plans.get(index) {
            Some((of_files, plan)) => {
                let cache = loading.kv_cache_bytes.unwrap_or(0) as u64;
                (name.unwrap_or(of_files).to_owned(), plan.weight_bytes + cache)
            }
            None => (name.unwrap_or_default().to_owned(), 0),
        };
        let adapters = adapters.iter().map(|(name, _)| name.clone()).collect();
        models.push(ServedModel::new(name, bytes, open).with_adapters(adapters));
    }
    if load_on_startup == LoadOnStartup::All {
        check_loaded_on_startup(&models, options)?;
    }
    for (index, (model, Named { path, adapters, .. })) in models.iter_mut().zip(&named).enumerate() {
        if load_on_startup.loads(index) {
            let generator = model::load(*path, &loading, Some(assistant), bundled, terminal)?;
            load_adapters(&generator, adapters, interrupted)?;
            *model = model.clone().with_loaded(generator);
        }
    }
    Ok(models)
}

/// The models that the arguments name, with their adapters.
fn named(arguments: &ServeArguments) -> Result<Vec<Named<'_>>> {
    let ServeArguments { model, lora_modules, loading, .. } = arguments;
    // A list of adapters takes what follows it, which may be the model.
    let (modules, rest): (Vec<String>, Vec<&String>) = if model.is_empty() {
        let (modules, rest): (Vec<&String>, _) = lora_modules.iter().partition(|given| given.contains('='));
        (modules.into_iter().cloned().collect(), rest)
    } else {
        (lora_modules.clone(), Vec::new())
    };
    let mut models: Vec<Named<'_>> = model
        .iter()
        .chain(rest)
        .map(|given| {
            let (name, path) = split(given);
            Named { name, path: Some(path), adapters: Vec::new() }
        })
        .collect();
    if models.is_empty() {
        models.push(Named { name: None, path: None, adapters: Vec::new() });
    }
    for (index, Named { name, .. }) in models.iter().enumerate() {
        let is_twice = name.is_some() && models[..index].iter().any(|other| other.name == *name);
        refuse_if(is_twice, "model", || {
            format!("has the name {:?} twice; give each its own", name.unwrap_or_default())
        })?;
    }
    let merged = loading.adapter.iter().filter(|given| is_module(given)).cloned();
    let modules: Vec<String> = modules.into_iter().chain(merged).collect();
    for (name, path) in named_paths("lora_modules", &modules, "--lora-modules support=path/to/adapter")? {
        let of = |model: &Named<'_>| {
            let own = model.name.and_then(|own| name.strip_prefix(own)?.strip_prefix(':'));
            own.filter(|own| !own.is_empty()).map(str::to_owned)
        };
        let found = models.iter().enumerate().find_map(|(index, model)| Some((index, of(model)?)));
        let (index, name) = found.unwrap_or_else(|| (0, name.to_owned()));
        models[index].adapters.push((name, path.to_owned()));
    }
    Ok(models)
}

/// The name and the path of a model. A path that exists may hold the sign.
fn split(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((name, path))
            if !name.is_empty()
                && !path.is_empty()
                && !name.contains(['/', '\\'])
                && !Path::new(given).exists() =>
        {
            (Some(name), path)
        }
        _ => (None, given),
    }
}

/// Whether `--adapter` names an adapter beside a model rather than one to merge.
fn is_module(given: &str) -> bool {
    split(given).0.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_have_a_name_before_its_path() {
        assert_eq!(split("small=path/to/small"), (Some("small"), "path/to/small"));
        assert_eq!(split("qwen3:4b=a=b"), (Some("qwen3:4b"), "a=b"));
        for path in ["path/to/a=b", "org/name", "=path", "name=", "name"] {
            assert_eq!(split(path), (None, path));
        }
    }
}
