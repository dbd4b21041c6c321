//! The config.json of a llama-like decoder, and of its encoder, as transformers 4 and 5 write it.
//!
//! Absent fields have the defaults of the model's family. Each field has a range, so that sizes computed from
//! it cannot overflow. The whole object is kept for fields of one family. Generation defaults of old files are
//! not read here.

use serde_json::{Map, Value};

use super::family::FamilyConfig;
use super::fields::Fields;
use super::quantized;
use super::rope::{MAX_POSITIONS, RopeKind, RopeParameters, RopeRule};
use super::source::MAX_TEXT_BYTES;
use super::window::SlidingWindow;
use super::wrapper;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::{read_object, shown};
use rsgen_core::types::TokenId;
use rsgen_kernels::tensor::DType;

const MAX_LAYERS: usize = 1024;
const MAX_HIDDEN: usize = 1 << 16;
const MAX_INTERMEDIATE: usize = 1 << 20;
const MAX_HEADS: usize = 1 << 12;
const MAX_HEAD_DIM: usize = 1 << 12;
const MAX_VOCAB: usize = 1 << 22;
/// The longest sequence of a dynamic RoPE, in tokens.
const MAX_STRETCHED: usize = 1 << 20;

/// The shape of a model: sizes, switches, position embedding and special tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The supported class of the model, such as `LlamaForCausalLM`.
    pub architecture: String,
    /// Transformers' short name of the family, such as `llama`; empty when the file has none.
    pub model_type: String,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// The context that the model was made for.
    pub max_position_embeddings: usize,
    /// The activation of the MLP, by its name in transformers.
    pub hidden_act: String,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Whether the head shares the weights of the embedding, unless the checkpoint has two different
    /// matrices.
    pub tie_word_embeddings: bool,
    /// Whether q, k and v have biases; the family says whether o then has one, too.
    pub attention_bias: bool,
    /// Whether gate, up and down have biases.
    pub mlp_bias: bool,
    /// Which layers see a window of the last tokens only.
    pub window: SlidingWindow,
    /// The rotary position embedding, if there is one.
    pub rope: Option<RopeParameters>,
    /// That of layers with a window, where it is another one.
    pub local_rope: Option<RopeParameters>,
    /// The token that begins a text.
    pub bos_token_id: Option<TokenId>,
    /// The tokens that end a text; may be empty.
    pub eos_token_ids: Vec<TokenId>,
    /// The token that fills up shorter rows.
    pub pad_token_id: Option<TokenId>,
    /// The type that the weights say they are stored in; each tensor has its own.
    pub dtype: Option<DType>,
    /// The encoder, with its own sizes; `None` without one.
    pub encoder: Option<Box<ModelConfig>>,
    /// The whole file.
    pub raw: Map<String, Value>,
    /// The fields of the decoder: those of the file, by llama's names where the family has its own, and the
    /// defaults of others.
    complete: Map<String, Value>,
}

impl ModelConfig {
    /// Reads the text of a config.json; `supported` are the families to accept.
    ///
    /// # Errors
    /// `Load`, naming the field, its rule and the value, when the file is damaged, a field is out of its
    /// range, or the model needs something that is not supported.
    pub fn from_json(text: &[u8], supported: &[FamilyConfig]) -> Result<Self> {
        let raw = read_object("config.json", text, MAX_TEXT_BYTES)?;
        Self::read(&raw, supported).context(|| "config.json")
    }

    /// The most tokens of a sequence: `max_position_embeddings`, or more with dynamic RoPE and yarn.
    pub fn context_len(&self) -> usize {
        let stretched = match self.rope.as_ref().map(|rope| &rope.kind) {
            Some(RopeKind::Dynamic { .. }) => MAX_STRETCHED,
            // Files name the context before or after stretching.
            Some(RopeKind::Yarn { factor, original_max_position_embeddings, .. }) => {
                ((*original_max_position_embeddings as f64 * factor) as usize).min(MAX_POSITIONS)
            }
            _ => 0,
        };
        self.max_position_embeddings.max(stretched)
    }

    /// All its fields, for those of one family.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields::new(&self.complete, "")
    }

    /// All sizes, and what is added in norms.
    pub(crate) fn sizes(&self) -> ([usize; 8], f32) {
        let sizes = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.num_hidden_layers,
            self.num_attention_heads,
            self.num_key_value_heads,
            self.head_dim,
            self.max_position_embeddings,
        ];
        (sizes, self.rms_norm_eps as f32)
    }

    /// What of the file decides the numbers of the model, beside the fields of one family.
    #[cfg(test)]
    pub(crate) fn understood(&self) -> Self {
        let encoder = self.encoder.as_ref().map(|encoder| Box::new(encoder.understood()));
        Self { raw: Map::new(), complete: Map::new(), encoder, ..self.clone() }
    }

    fn read(file: &Map<String, Value>, supported: &[FamilyConfig]) -> Result<Self> {
        let text = wrapper::text_config(file)?;
        let (raw, file) = (file, text.as_ref().unwrap_or(file));
        let model_type = Fields::new(file, "").text("model_type")?.unwrap_or_default().to_owned();
        let family = family(Fields::new(file, ""), &model_type, supported)?;
        quantized::check(raw)?;
        let complete = family.complete(file);
        let encoder = family.complete_encoder(file, &complete);
        let mut config = Self::of_fields(family, &model_type, raw, file, complete)?;
        if let Some(complete) = encoder {
            // The file is kept once.
            let encoder = Self::of_fields(family, &model_type, &Map::new(), file, complete);
            config.encoder = Some(Box::new(encoder.context(|| "the encoder")?));
        }
        Ok(config)
    }

    fn of_fields(
        family: &FamilyConfig,
        model_type: &str,
        raw: &Map<String, Value>,
        file: &Map<String, Value>,
        complete: Map<String, Value>,
    ) -> Result<Self> {
        let fields = Fields::new(&complete, "");
        let integer = |name, most| {
            let missing = || fields.wrong(name, "given");
            fields.integer(name, 1..=most)?.ok_or_else(missing)
        };
        let hidden_size = integer("hidden_size", MAX_HIDDEN)?;
        let num_hidden_layers = integer("num_hidden_layers", MAX_LAYERS)?;
        let num_attention_heads = integer("num_attention_heads", MAX_HEADS)?;
        let num_key_value_heads = num_key_value_heads(fields, file, num_attention_heads)?;
        let rotates = !matches!(family.rope, RopeRule::None);
        let head_dim = head_dim(fields, hidden_size, num_attention_heads, rotates)?;
        let max_position_embeddings = integer("max_position_embeddings", MAX_POSITIONS)?;
        let window = SlidingWindow::read(fields, family.window, num_hidden_layers)?;
        let [rope, local_rope] =
            RopeParameters::read(&complete, family.rope, max_position_embeddings, head_dim)?;
        Ok(Self {
            architecture: family.architecture.to_owned(),
            model_type: model_type.to_owned(),
            vocab_size: integer("vocab_size", MAX_VOCAB)?,
            hidden_size,
            intermediate_size: fields
                .integer("intermediate_size", 1..=MAX_INTERMEDIATE)?
                .unwrap_or(4 * hidden_size),
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            max_position_embeddings,
            hidden_act: fields.text("hidden_act")?.unwrap_or_default().to_owned(),
            rms_norm_eps: fields.positive("rms_norm_eps", 1.0)?.unwrap_or(1e-6),
            tie_word_embeddings: fields.is_set("tie_word_embeddings")?,
            attention_bias: family.attention_bias.read(fields, "attention_bias")?,
            mlp_bias: family.mlp_bias.read(fields, "mlp_bias")?,
            window,
            rope,
            local_rope,
            bos_token_id: token_ids(fields, "bos_token_id")?.first().copied(),
            eos_token_ids: token_ids(fields, "eos_token_id")?,
            pad_token_id: token_ids(fields, "pad_token_id")?.first().copied(),
            dtype: dtype(fields),
            encoder: None,
            raw: raw.clone(),
            complete,
        })
    }
}

/// The family of the first of `architectures`, or of `model_type` where there are none. The two must not
/// contradict each other: transformers goes by the latter.
fn family<'a>(
    fields: Fields<'_>,
    model_type: &str,
    supported: &'a [FamilyConfig],
) -> Result<&'a FamilyConfig> {
    let unsupported = |found: &str| unsupported(found, model_type, supported);
    let named = match fields.get("architectures") {
        None => None,
        Some(Value::Array(names)) => names.first(),
        Some(_) => return Err(fields.wrong("architectures", "a list of class names")),
    };
    let Some(named) = named else {
        // Configurations that were never saved with a model name only the family.
        let found = supported.iter().find(|family| family.model_type == model_type);
        return found.ok_or_else(|| unsupported(model_type));
    };
    let Some(named) = named.as_str() else {
        return Err(fields.wrong("architectures", "a list of class names"));
    };
    let found = supported.iter().find(|family| family.architecture == named || family.is_base(named));
    let found = found.ok_or_else(|| unsupported(named))?;
    let flat = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    // A part of a larger model is called `family_part`.
    let part = model_type.strip_prefix(found.model_type).is_some_and(|rest| rest.starts_with('_'));
    if model_type.is_empty() || part || flat(model_type) == flat(found.model_type) {
        return Ok(found);
    }
    Err(fields.wrong("model_type", &format!("the family of {named}, {:?}", found.model_type)))
}

#[cold]
fn unsupported(found: &str, model_type: &str, supported: &[FamilyConfig]) -> Error {
    // The names of all would fill a screen.
    const MOST_NAMED: usize = 6;
    let count = supported.len();
    let known: Vec<_> = supported.iter().map(|family| family.architecture).collect();
    let known = match known.get(..MOST_NAMED) {
        None => known.join(", "),
        Some(some) => format!("{count} families, among them {}: docs/models.md lists them", some.join(", ")),
    };
    let found = shown(&found.into());
    let reason = wrapper::why_unsupported(model_type).map(|reason| format!(": {reason}")).unwrap_or_default();
    Error::load(format!("architectures: {found} is not supported{reason}; supported are {known}"))
}

fn num_key_value_heads(fields: Fields<'_>, file: &Map<String, Value>, heads: usize) -> Result<usize> {
    const NAME: &str = "num_key_value_heads";
    let kv_heads = fields.integer(NAME, 1..=heads)?.unwrap_or(heads);
    if heads.is_multiple_of(kv_heads) {
        return Ok(kv_heads);
    }
    let given = if file.contains_key(NAME) {
        String::new()
    } else {
        format!(", or given: without it there are {kv_heads}")
    };
    Err(fields.wrong(NAME, &format!("a divisor of num_attention_heads ({heads}){given}")))
}

fn head_dim(fields: Fields<'_>, hidden_size: usize, heads: usize, rotates: bool) -> Result<usize> {
    let head_dim = match fields.integer("head_dim", 1..=MAX_HEAD_DIM)? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            return Err(
                fields.wrong("num_attention_heads", &format!("a divisor of hidden_size ({hidden_size})"))
            );
        }
    };
    if rotates && head_dim % 2 == 1 || head_dim > MAX_HEAD_DIM {
        let rule =
            format!("an even number from 2 to {MAX_HEAD_DIM}, and hidden_size / num_attention_heads too");
        return Err(fields.wrong("head_dim", &rule));
    }
    Ok(head_dim)
}

/// A token id, a list of them, or nothing; -1 is how old files write nothing, and null is nothing.
fn token_ids(fields: Fields<'_>, name: &str) -> Result<Vec<TokenId>> {
    let Some(value) = fields.get(name) else { return Ok(Vec::new()) };
    let listed = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let wanted = listed.iter().filter(|value| value.as_i64() != Some(-1));
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId);
    wanted.map(|value| id(value).ok_or_else(|| fields.wrong(name, "a token id or a list of them"))).collect()
}

fn dtype(fields: Fields<'_>) -> Option<DType> {
    let name = fields.get("dtype").or_else(|| fields.get("torch_dtype"))?.as_str()?;
    let name = name.strip_prefix("torch.").unwrap_or(name);
    [DType::F32, DType::Bf16, DType::F16].into_iter().find(|dtype| dtype.name() == name)
}

#[cfg(test)]
mod tests;
