//! [`GenerationEvent`]: everything that a request tells about itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Timings, Usage};
use rsgen_core::{FinishReason, TokenId};
use rsgen_generation::TrieEntry;
pub use rsgen_generation::search::details::{Alternative, BeamNode, Beams, Draft, DraftedToken, TokenText};

/// An event with its number and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// The number of the event, from 0 without a gap.
    pub seq: u64,
    /// Microseconds since the start of its request.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: GenerationEvent,
}

/// Something that happened in a request.
///
/// In JSON each is an object whose `type` is the name of the variant: `start`, `prompt`, `token`, `beam`,
/// `draft` or `finish`. A request begins with `start` and one `prompt` for each prompt, and ends with
/// `finish`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GenerationEvent {
    /// The request begins.
    Start(Start),
    /// A prompt, as the model sees it.
    Prompt(Prompt),
    /// A row got a token.
    Token(Token),
    /// The beams of a prompt made a step.
    Beam(Beams),
    /// A draft was checked.
    Draft(Draft),
    /// The request ended.
    Finish(Finish),
}

/// The beginning of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The model: its folder, or the name of the bundled one.
    pub model: String,
    /// The name of the search, such as `beam_search`.
    pub strategy: String,
    /// The fields of the call, merged over those of the model.
    pub parameters: Map<String, Value>,
    /// The seed of sampling.
    pub seed: Option<u64>,
    /// The first row of the request in the output; others follow it.
    pub first_row: usize,
    /// The number of rows of the output.
    pub num_rows: usize,
    /// What else whoever sends the event says about the request, such as its `id` in a server.
    #[serde(flatten)]
    pub request: Map<String, Value>,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The index of the prompt.
    pub prompt: usize,
    /// Its tokens, padding left out.
    pub ids: Vec<TokenId>,
    /// The text that each token adds; empty strings for a model without a tokenizer.
    pub texts: Vec<String>,
}

/// A token of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// The row of the output.
    pub row: usize,
    /// Its place in the row, from 0.
    pub pos: usize,
    /// The token.
    pub id: TokenId,
    /// The text that it adds; the texts of a row, joined, are its text.
    pub text: String,
    /// Its log-probability under the model's own logits, in nats; `None` when that is not a finite number.
    pub logprob: Option<f32>,
    /// The logarithm of its probability after all processors; `None` in beam searches.
    pub logprob_final: Option<f32>,
    /// Its rank in the model's own distribution, 1 for the most probable; `None` in beam searches.
    pub rank: Option<usize>,
    /// The entropy of the model's own distribution, in nats; `None` in beam searches.
    pub entropy: Option<f32>,
    /// The alternatives, the most probable first, and the token itself; empty in beam searches.
    pub top: Vec<Alternative>,
    /// Why the row ends with this token, if it does.
    pub finish_reason: Option<FinishReason>,
}

/// The end of a request, also of one that was cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// The rows of the output.
    pub rows: Vec<FinishedRow>,
    /// Token counts.
    pub usage: Usage,
    /// Where the time went.
    pub timings: Seconds,
}

/// A row of the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRow {
    /// The index of the row.
    pub row: usize,
    /// The prompt that it continues.
    pub prompt: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// With beams its score, which results are ordered by.
    pub score: Option<f32>,
    /// With beams the numbers of its nodes.
    pub path: Vec<u32>,
    /// The entry of the catalogue that it is, with `allowed_sequences`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<TrieEntry>,
}

/// Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// From the start to the first token.
    pub first_token: f64,
    /// From the start to the end.
    pub total: f64,
    /// What encoder passes took of it.
    #[serde(default)]
    pub encoder: f64,
}

impl From<Timings> for Seconds {
    fn from(timings: Timings) -> Self {
        let [first_token, total, encoder] =
            [timings.first_token, timings.total, timings.encoder].map(|time| time.as_secs_f64());
        Self { first_token, total, encoder }
    }
}

impl GenerationEvent {
    /// Moves the event of one request into a list: its rows, prompts, nodes and beams come after those of
    /// other requests.
    pub(super) fn shift(&mut self, by: &Shift) {
        match self {
            Self::Start(start) => start.first_row += by.rows,
            Self::Prompt(prompt) => prompt.prompt += by.prompts,
            Self::Token(token) => token.row += by.rows,
            Self::Draft(draft) => draft.row += by.rows,
            Self::Beam(beams) => {
                beams.prompt += by.prompts;
                beams.frontier.iter_mut().for_each(|n| *n += by.nodes);
                for node in &mut beams.nodes {
                    node.n += by.nodes;
                    node.beam += by.beams;
                    node.parent.iter_mut().for_each(|parent| *parent += by.nodes);
                }
            }
            Self::Finish(finish) => {
                for row in &mut finish.rows {
                    row.row += by.rows;
                    row.prompt += by.prompts;
                    row.path.iter_mut().for_each(|n| *n += by.nodes);
                }
            }
        }
    }
}

/// How many rows, prompts, nodes and beams other requests have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shift {
    pub(super) rows: usize,
    pub(super) prompts: usize,
    pub(super) nodes: u32,
    pub(super) beams: u32,
}
