//! The families of models, each a file, and the table of all.

mod apertus;
mod arcee;
mod bart;
mod bloom;
mod cohere;
mod cohere2;
mod cwm;
mod ernie4_5;
mod exaone4;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod glm;
mod glm4;
mod gpt2;
mod gpt_bigcode;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod granitemoeshared;
mod helium;
mod hunyuan_v1_dense;
mod llama;
mod m2m_100;
mod marian;
mod mbart;
mod ministral;
mod ministral3;
mod mistral;
mod mixtral;
mod mt5;
mod nemotron;
mod olmo;
mod olmo2;
mod olmo3;
mod olmoe;
mod opt;
mod pegasus;
mod phi;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod t5;
mod umt5;

use super::CausalLm;
use super::decoder::Decoder;
use super::loader::Loader;
use super::spec::{DecoderSpec, ExpertLayout};
use crate::weights::{FamilyConfig, ModelConfig, TensorNames};
use rsgen_core::error::{Error, Result};

/// A family: how its config.json is read, and what its decoder is built of.
struct Family {
    config: FamilyConfig,
    spec: fn(&ModelConfig) -> Result<DecoderSpec>,
}

/// The table: a line for each family.
const FAMILIES: &[Family] = &[
    apertus::APERTUS,
    arcee::ARCEE,
    bart::BART,
    bloom::BLOOM,
    cohere::COHERE,
    cohere2::COHERE2,
    cwm::CWM,
    ernie4_5::ERNIE4_5,
    exaone4::EXAONE4,
    falcon::FALCON,
    gemma::GEMMA,
    gemma2::GEMMA2,
    gemma3::GEMMA3,
    glm::GLM,
    glm4::GLM4,
    gpt2::GPT2,
    gpt_bigcode::GPT_BIGCODE,
    gpt_neo::GPT_NEO,
    gpt_neox::GPT_NEOX,
    gpt_oss::GPT_OSS,
    gptj::GPTJ,
    granite::GRANITE,
    granitemoe::GRANITE_MOE,
    granitemoehybrid::GRANITE_MOE_HYBRID,
    granitemoeshared::GRANITE_MOE_SHARED,
    helium::HELIUM,
    hunyuan_v1_dense::HUNYUAN_V1_DENSE,
    llama::LLAMA,
    m2m_100::M2M_100,
    marian::MARIAN,
    mbart::MBART,
    ministral::MINISTRAL,
    ministral3::MINISTRAL3,
    mistral::MISTRAL,
    mixtral::MIXTRAL,
    mt5::MT5,
    nemotron::NEMOTRON,
    olmo::OLMO,
    olmo2::OLMO2,
    olmo3::OLMO3,
    olmoe::OLMOE,
    opt::OPT,
    pegasus::PEGASUS,
    phi::PHI,
    phi3::PHI3,
    qwen2::QWEN2,
    qwen2_moe::QWEN2_MOE,
    qwen3::QWEN3,
    qwen3_moe::QWEN3_MOE,
    seed_oss::SEED_OSS,
    smollm3::SMOLLM3,
    stablelm::STABLELM,
    starcoder2::STARCODER2,
    t5::T5,
    umt5::UMT5,
];

/// The families that [`load`] supports, for [`ModelConfig::from_json`].
pub const SUPPORTED_ARCHITECTURES: &[FamilyConfig] = &{
    let mut configs = [FAMILIES[0].config; FAMILIES.len()];
    let mut index = 0;
    while index < configs.len() {
        configs[index] = FAMILIES[index].config;
        index += 1;
    }
    configs
};

/// Loads the model of a configuration; `loader` is the root scope of its tensors.
///
/// # Errors
/// When the architecture is unknown, when a field of its own is out of its range, or when a tensor is missing,
/// has another shape, or is damaged.
pub fn load(config: &ModelConfig, loader: &Loader<'_>) -> Result<Box<dyn CausalLm>> {
    Ok(Box::new(Decoder::load(config, &describe(config)?, loader)?))
}

/// Checks the fields that a family alone has, which [`load`] reads.
///
/// # Errors
/// When the architecture is unknown, or a field is out of its range.
pub fn check(config: &ModelConfig) -> Result<()> {
    describe(config).map(|_| ())
}

/// What the family calls the tensors outside its layers.
///
/// # Errors
/// When the architecture is unknown, or a field is out of its range.
pub fn tensor_names(config: &ModelConfig) -> Result<TensorNames> {
    Ok(describe(config)?.tensor_names())
}

/// Whether stacks of experts hold transposed matrices whose gates and ups take turns.
///
/// # Errors
/// When the architecture is unknown, or a field is out of its range.
pub(crate) fn experts_alternate(config: &ModelConfig) -> Result<bool> {
    let layout = describe(config)?.experts.map(|experts| experts.layout);
    Ok(matches!(layout, Some(ExpertLayout::Alternating(_))))
}

/// Whether transformers keeps the experts of this class in stacks of the family's own, which GGUF files do not have.
///
/// # Errors
/// When the architecture is unknown, or a field is out of its range.
pub fn has_stacked_experts(config: &ModelConfig) -> Result<bool> {
    let layout = describe(config)?.experts.map(|experts| experts.layout);
    Ok(matches!(layout, Some(ExpertLayout::Alternating(_) | ExpertLayout::Stacked(_))))
}

/// Checks that the text of another config.json describes the same model.
///
/// # Errors
/// `Load`, naming the part that differs.
pub(crate) fn same_model(config: &ModelConfig, other: &[u8]) -> Result<()> {
    let other = ModelConfig::from_json(other, SUPPORTED_ARCHITECTURES)?;
    let layers = |config: &ModelConfig| 0..config.num_hidden_layers;
    let parts = |config: &ModelConfig| -> Result<Vec<(&'static str, String)>> {
        let spec = describe(config)?;
        let rotary = spec.rotary.rounded();
        Ok(vec![
            ("the sizes", format!("{:?}", config.sizes())),
            ("hidden_act", config.hidden_act.clone()),
            (
                "the windows",
                format!("{:?}", layers(config).map(|at| config.window.of_layer(at)).collect::<Vec<_>>()),
            ),
            ("the rotary embedding", format!("{rotary:?}")),
            ("the norms", format!("{:?}, {:?}", spec.norm, spec.placement)),
            ("the positions", format!("{:?}", spec.positions)),
            ("attention", format!("{:?}", spec.attention)),
            ("the MLP", format!("{:?}", spec.mlp)),
            ("the experts", format!("{:?}", spec.experts)),
            ("the factors", format!("{:?}", spec.scalings)),
        ])
    };
    for ((part, expected), (_, found)) in parts(config)?.into_iter().zip(parts(&other)?) {
        if expected != found {
            // The first thing that differs.
            let mut pairs = expected.split(", ").zip(found.split(", "));
            let (expected, found) = pairs.find(|(one, other)| one != other).unwrap_or((&expected, &found));
            return Err(Error::load(format!(
                "config.json: {part} cannot be stated in a GGUF file of this architecture, which would say {found}, not \
                 {expected}; use the model as it is"
            )));
        }
    }
    Ok(())
}

fn describe(config: &ModelConfig) -> Result<DecoderSpec> {
    let known = FAMILIES.iter().find(|known| known.config.architecture == config.architecture);
    let known = known.ok_or_else(|| {
        let names: Vec<_> = SUPPORTED_ARCHITECTURES.iter().map(|family| family.architecture).collect();
        let (names, found) = (names.join(", "), &config.architecture);
        Error::load(format!("`architectures` must name one of {names}, got {found:?}"))
    })?;
    let spec = (known.spec)(config).and_then(|spec| spec.mlp.check(config).map(|()| spec));
    spec.map_err(|error| error.context("config.json"))
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod tests;
