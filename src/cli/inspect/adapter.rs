//! The description of a LoRA adapter, in place of that of a model.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::numbers::{bytes, count};
use crate::cli::terminal::Terminal;
use rsgen_core::escape;
use rsgen_model::weights::{Adapter, ModelFiles};

/// All fields, in the order of the output.
#[derive(Serialize)]
pub(super) struct AdapterDescription {
    /// The path or id that the user gave.
    adapter: String,
    peft_type: &'static str,
    supported: bool,
    /// The first obstacle to merging it.
    unsupported_because: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

#[derive(Serialize)]
struct Facts {
    base_model_name_or_path: Option<String>,
    r: usize,
    lora_alpha: f64,
    use_rslora: bool,
    /// The last parts of the names of the modules that it changes.
    target_modules: Vec<String>,
    modules_to_save: Vec<String>,
    parameters: u64,
    bytes_on_disk: u64,
}

impl AdapterDescription {
    pub(super) fn of(files: &ModelFiles) -> Self {
        let opened = Adapter::of_files(files);
        let unsupported_because = opened.as_ref().err().map(ToString::to_string);
        Self {
            adapter: files.name().to_owned(),
            peft_type: "LORA",
            supported: opened.is_ok(),
            unsupported_because,
            facts: opened.map(|adapter| Facts::of(&adapter)).ok(),
        }
    }

    /// What it is, in a line.
    pub(super) fn summary(&self) -> String {
        let name = escape::name(&self.adapter);
        match (&self.facts, &self.unsupported_because) {
            (Some(facts), None) => {
                let changed: Vec<&str> =
                    facts.target_modules.iter().chain(&facts.modules_to_save).map(String::as_str).collect();
                let size = bytes(facts.bytes_on_disk);
                format!("{name}: rank {}, changes {}; {size}", facts.r, changed.join(", "))
            }
            (_, reason) => format!("{name}: no: {}", reason.as_deref().unwrap_or_default()),
        }
    }

    /// The description for people.
    pub(super) fn page(&self, terminal: &Terminal) -> String {
        let mut page = String::new();
        let mut line = |name: &str, value: &str| terminal.add_line(&mut page, name, value);
        line("adapter", &self.adapter);
        line("kind", "LoRA, of PEFT");
        match &self.unsupported_because {
            None => line("supported", "yes: open its base model with --adapter"),
            Some(reason) => line("supported", &format!("no: {reason}")),
        }
        let Some(facts) = &self.facts else { return page };
        line("base model", facts.base_model_name_or_path.as_deref().unwrap_or("unknown"));
        line("rank", &facts.r.to_string());
        let root = if facts.use_rslora { ", by the root of the rank" } else { "" };
        line("alpha", &format!("{}{root}", facts.lora_alpha));
        line("changes", &facts.target_modules.join(", "));
        if !facts.modules_to_save.is_empty() {
            line("replaces", &facts.modules_to_save.join(", "));
        }
        line("parameters", &count(facts.parameters));
        line("on disk", &bytes(facts.bytes_on_disk));
        page
    }
}

impl Facts {
    fn of(adapter: &Adapter) -> Self {
        let config = adapter.config();
        // The file may name its modules by an expression.
        let changed = adapter.tensor_names().filter_map(|name| {
            let end = name.find(".lora_")?;
            Some(name[..end].rsplit('.').next().unwrap_or_default().to_owned())
        });
        Self {
            base_model_name_or_path: config.base_model.clone(),
            r: config.r,
            lora_alpha: config.lora_alpha,
            use_rslora: config.use_rslora,
            target_modules: changed.collect::<BTreeSet<_>>().into_iter().collect(),
            modules_to_save: config.modules_to_save.clone(),
            parameters: adapter.num_elements(),
            bytes_on_disk: adapter.data_len(),
        }
    }
}
