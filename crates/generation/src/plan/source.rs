//! The sources of a request to an encoder-decoder model, and the decoder's prompts: transformers' rules for
//! `decoder_start_token_id`, `decoder_input_ids` and `decoder_attention_mask`.

use std::sync::Arc;

use rsgen_core::{Error, Message, Result, TokenId, message, refuse_if};

use super::super::config::{Compat, GenerationConfig, OneOrMany};
use super::super::mode::GenerationMode;
use super::super::prompt::{PromptBatch, PromptRow};
use super::super::source::Source;
use super::PlanContext;
use super::tokens::SpecialTokens;

/// The encoder of the model that a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderContext {
    /// The longest source, in tokens; `None` without a limit.
    pub max_source_len: Option<usize>,
    /// The ids of a source are below this.
    pub vocab_size: usize,
    /// Whether what a decoder token means depends on its position, and not only on distances.
    pub has_positions: bool,
    /// The token that the positions leave out, of a text that is computed at once.
    pub position_pad: Option<TokenId>,
}

impl EncoderContext {
    /// The source of a row that the encoder can read. `hidden_size` is that of embeddings.
    ///
    /// # Errors
    /// `Input` with the `name` of the source when it holds foreign ids or is too long; `Capacity`.
    pub fn source(&self, name: &str, row: &PromptRow, hidden_size: usize) -> Result<Source> {
        let real = row.tokens();
        if let Some(position) = real.iter().position(|id| id.index() >= self.vocab_size) {
            return Err(Error::input(format!(
                "{name} holds the id {} (token {position}), but the encoder's vocabulary has the ids 0 to {}; was it \
                 made by another tokenizer?",
                real[position],
                self.vocab_size - 1
            )));
        }
        if let Some(embeddings) = &row.embeddings
            && embeddings.hidden_size() != hidden_size
        {
            return Err(Error::input(format!(
                "must have embeddings of {hidden_size} numbers, the size of the model's, but they have {}; `embed` of \
                 the generator gives those of tokens",
                embeddings.hidden_size()
            ))
            .about("inputs_embeds"));
        }
        // Padding takes positions, too.
        let len = row.mask.iter().rposition(|&real| real).map_or(0, |last| last + 1);
        match self.max_source_len.filter(|&most| len > most) {
            None => Source::new(row),
            Some(most) => Err(Error::input(format!(
                "{name} has {len} tokens, but the encoder reads at most {most} (max_position_embeddings); shorten it, or \
                 give it in parts"
            ))),
        }
    }
}

/// Takes the sources of a request out of its prompts, which are the decoder's from then on. Without an encoder
/// there are none.
pub(super) fn resolve(
    prompts: &mut PromptBatch,
    fields: &GenerationConfig,
    mode: GenerationMode,
    tokens: &SpecialTokens,
    context: &PlanContext,
) -> Result<Vec<Arc<Source>>> {
    let Some(encoder) = &context.encoder else {
        refuse_if(context.decoder_prompts.is_some(), "decoder_input_ids", || {
            "goes with models that have an encoder, which this one has not; leave it out, or give the ids as the \
             prompt"
        })?;
        return Ok(Vec::new());
    };
    check_fields(fields, mode)?;
    check_draft(mode, context)?;
    // transformers 5 infers no padding in sources; 4.x did.
    if fields.compat == Some(Compat::V4_49) {
        prompts.infer_mask(tokens.pad, &tokens.eos)?;
    }
    let rows = prompts.rows().iter().enumerate();
    let count = prompts.rows().len();
    let sources = rows.map(|(index, row)| {
        let made = source(index, count, row, encoder, fields, context);
        made.map_err(|error| if count == 1 { error } else { error.concerning_prompt(index) })
    });
    let sources: Vec<Arc<Source>> = sources.collect::<Result<_>>()?;
    *prompts = decoder_prompts(sources.len(), fields, encoder, context)?;
    Ok(sources)
}

/// A source that the encoder can read.
fn source(
    index: usize,
    count: usize,
    row: &PromptRow,
    encoder: &EncoderContext,
    fields: &GenerationConfig,
    context: &PlanContext,
) -> Result<Arc<Source>> {
    let name = if count == 1 { "the source".to_owned() } else { format!("source {index}") };
    let source = encoder.source(&name, row, context.embedding_size)?;
    let penalizes = fields.encoder_repetition_penalty.is_some_and(|penalty| penalty != 1.0);
    if penalizes && let Some(id) = source.input_ids().iter().find(|id| id.index() >= context.vocab_size) {
        return Err(Error::input(message!(
            ("{name} holds the id {id}, which is not in the decoder's vocabulary, 0 to {}; leave out ",
             context.vocab_size - 1)
            {encoder_repetition_penalty}
        )));
    }
    Ok(Arc::new(source))
}

/// The prompts of the decoder: those of the call, each after a start token unless one begins with it; the
/// start tokens alone if the call gives none.
fn decoder_prompts(
    count: usize,
    fields: &GenerationConfig,
    encoder: &EncoderContext,
    context: &PlanContext,
) -> Result<PromptBatch> {
    let starts = start_tokens(count, fields, context)?;
    let Some(given) = &context.decoder_prompts else {
        return PromptBatch::with_mask(
            starts.iter().map(|&start| vec![start]).collect(),
            vec![vec![true]; count],
        );
    };
    refuse_if(given.rows().len() != count, "decoder_input_ids", || {
        format!("must have a row for each of the {count} prompts, but has {}", given.rows().len())
    })?;
    let begins = given.rows().iter().zip(&starts).any(|(row, start)| row.input_ids.first() == Some(start));
    let (mut rows, mut masks) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (row, &start) in given.rows().iter().zip(&starts) {
        let start = (!begins).then_some(start);
        rows.push(start.into_iter().chain(row.input_ids.iter().copied()).collect::<Vec<_>>());
        masks.push(start.map(|_| true).into_iter().chain(row.mask.iter().copied()).collect::<Vec<_>>());
    }
    // A token after padding has another position in transformers than alone.
    let is_masked = |mask: &Vec<bool>| mask.contains(&false);
    let is_inner = |mask: &Vec<bool>| mask.iter().skip_while(|&&real| !real).any(|&real| !real);
    let refused =
        if encoder.has_positions { masks.iter().any(is_masked) } else { masks.iter().any(is_inner) };
    refuse_if(refused, "decoder_attention_mask", || {
        if encoder.has_positions {
            "must be 1 everywhere with this model, whose tokens have positions; give the decoder prompts as a list, \
             without padding"
        } else {
            "must be 0 only before the first real token of a row; pad on the left"
        }
    })?;
    let is_inner_pad = |row: &Vec<TokenId>| {
        let pad = |id: &TokenId| Some(*id) == encoder.position_pad;
        row.iter().rposition(|id| !pad(id)).is_some_and(|last| row[..last].iter().any(pad))
    };
    refuse_if(rows.iter().any(is_inner_pad), "decoder_input_ids", || {
        message!(
            "must not hold " {pad_token_id} " before other tokens with this model, whose positions leave it out; leave \
             out the padding"
        )
    })?;
    PromptBatch::with_mask(rows, masks)
}

/// The token that each prompt of the decoder begins with.
fn start_tokens(count: usize, fields: &GenerationConfig, context: &PlanContext) -> Result<Vec<TokenId>> {
    const FIELD: &str = "decoder_start_token_id";
    let starts = match (&fields.decoder_start_token_id, fields.bos_token_id) {
        (&Some(OneOrMany::One(start)), _) | (None, Some(start)) => vec![start; count],
        (Some(OneOrMany::Many(starts)), _) => {
            let all = count * context.num_requests;
            refuse_if(starts.len() != all, FIELD, || {
                format!("must be one id or a list of one for each prompt ({all}), but holds {}", starts.len())
            })?;
            starts.iter().skip(context.first_prompt).take(count).copied().collect()
        }
        (None, None) => {
            return Err(Error::config(message!(
                "or " {bos_token_id} " must be set for a model with an encoder, and its files set neither; set the token \
                 that the decoder begins with, often that of " {pad_token_id}
            ))
            .about(FIELD));
        }
    };
    match starts.iter().find(|start| start.index() >= context.vocab_size) {
        None => Ok(starts),
        Some(start) => Err(Error::config(format!(
            "must be an id of the model's vocabulary, 0 to {}, but is {start}",
            context.vocab_size - 1
        ))
        .about(FIELD)),
    }
}

/// Refuses what has no meaning with an encoder.
fn check_fields(fields: &GenerationConfig, mode: GenerationMode) -> Result<()> {
    let refuse = |is_set: bool, field: &'static str, why: &'static str| {
        refuse_if(is_set, field, || format!("{why}; leave it out"))
    };
    refuse(
        fields.guidance_scale.is_some_and(|scale| scale != 1.0),
        "guidance_scale",
        "is not possible with an encoder-decoder model: its second prompt would be another source",
    )?;
    refuse(
        fields.token_healing == Some(true),
        "token_healing",
        "is not possible with an encoder-decoder model, whose new text does not continue the prompt",
    )?;
    refuse(
        fields.has_sinks(),
        if fields.attention_sinks.is_some() { "attention_sinks" } else { "window" },
        "is not possible with an encoder-decoder model",
    )?;
    refuse(
        fields.assistant_early_exit.is_some(),
        "assistant_early_exit",
        "is not possible with an encoder-decoder model",
    )?;
    refuse(mode == GenerationMode::Dola, "dola_layers", "is for decoder-only models, as in transformers")
}

/// Refuses an assistant that cannot read the source.
fn check_draft(mode: GenerationMode, context: &PlanContext) -> Result<()> {
    let Some(draft) = context.draft.as_ref().filter(|_| mode == GenerationMode::AssistedDecoding) else {
        return Ok(());
    };
    refuse_if(
        draft.encoder.is_none(),
        "assistant_model",
        || "must have an encoder as the model has, but is a decoder alone; give a smaller model of the same kind",
    )?;
    refuse_if(
        draft.vocabulary_map.is_some(),
        "assistant_model",
        || "must have the model's tokenizer when the model has an encoder; give a smaller model of the same kind",
    )
}

/// Warns of fields of the call that only an encoder gives a meaning.
pub(super) fn warn_of_unused_fields(
    call: &GenerationConfig,
    context: &PlanContext,
    warnings: &mut Vec<Message>,
) {
    if context.encoder.is_none() && call.decoder_start_token_id.is_some() {
        warnings.push(message!(
            {decoder_start_token_id} " has no effect, because the model has no encoder; leave it out"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DefaultLength, DraftContext, GenerationPlan};
    use super::*;
    use crate::embeddings::Embeddings;
    use crate::search::{self, SearchInputs, SequenceOp};

    const START: u32 = 2;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn config() -> GenerationConfig {
        GenerationConfig::new().max_new_tokens(4).decoder_start_token_id(START)
    }

    /// A model of 10 tokens whose encoder reads 12 tokens of 20.
    fn context() -> PlanContext {
        let encoder = EncoderContext {
            max_source_len: Some(12),
            vocab_size: 20,
            has_positions: true,
            position_pad: None,
        };
        PlanContext { encoder: Some(encoder), ..PlanContext::new(10, 64) }
    }

    fn two() -> PromptBatch {
        let mask = vec![vec![true; 3], vec![true, false, true]];
        PromptBatch::with_mask(vec![ids(&[3, 4, 5]), ids(&[6, 1, 7])], mask).unwrap()
    }

    fn with_decoder(rows: Vec<Vec<TokenId>>, mask: Option<Vec<Vec<bool>>>) -> PlanContext {
        let prompts = match mask {
            Some(mask) => PromptBatch::with_mask(rows, mask),
            None => PromptBatch::rectangular(rows),
        };
        PlanContext { decoder_prompts: Some(prompts.unwrap()), ..context() }
    }

    fn decoder_ids(plan: &GenerationPlan) -> Vec<Vec<TokenId>> {
        plan.prompts().iter().map(|prompt| prompt.input_ids().to_vec()).collect()
    }

    #[test]
    fn sources_keep_the_slots_of_what_is_real() {
        let plan = GenerationPlan::new(&config(), two(), &context()).unwrap();
        let source = plan.prompts()[1].source().unwrap();
        assert_eq!((source.len(), source.slot(1), source.input_ids()), (2, 2, &ids(&[6, 1, 7])[..]));
        assert_eq!(source.key().unwrap(), [(0, TokenId(6)), (2, TokenId(7))]);
        assert_eq!(decoder_ids(&plan), [ids(&[START]), ids(&[START])]);
        assert_eq!((plan.config().prompt_len, plan.config().max_length), (1, 5));
    }

    #[test]
    fn padding_is_inferred_in_sources_by_the_rules_of_4_x_only() {
        let padded = || PromptBatch::rectangular(vec![ids(&[3, 4, 5]), ids(&[6, 1, 1])]).unwrap();
        let config = config().pad_token_id(1);
        let len = |config: &GenerationConfig| {
            let plan = GenerationPlan::new(config, padded(), &context()).unwrap();
            plan.prompts()[1].source().unwrap().len()
        };
        assert_eq!((len(&config), len(&config.clone().compat(Compat::V4_49))), (3, 1));
    }

    #[test]
    fn the_start_token_is_prepended_unless_a_row_begins_with_it() {
        let plan = |rows: [&[u32]; 2]| {
            let context = with_decoder(rows.iter().map(|row| ids(row)).collect(), None);
            decoder_ids(&GenerationPlan::new(&config(), two(), &context).unwrap())
        };
        assert_eq!(plan([&[7, 8], &[9, 9]]), [ids(&[START, 7, 8]), ids(&[START, 9, 9])]);
        assert_eq!(plan([&[7, 8], &[START, 9]]), [ids(&[7, 8]), ids(&[START, 9])]);
        let list = config().decoder_start_token_id(ids(&[4, 5]));
        let plan = GenerationPlan::new(&list, two(), &context()).unwrap();
        assert_eq!(decoder_ids(&plan), [ids(&[4]), ids(&[5])]);
        let plan = GenerationPlan::new(
            &GenerationConfig::new().max_new_tokens(1).bos_token_id(TokenId(9)),
            two(),
            &context(),
        );
        assert_eq!(decoder_ids(&plan.unwrap()), [ids(&[9]), ids(&[9])]);
    }

    #[test]
    fn padding_before_decoder_prompts_is_for_models_without_positions() {
        let masked = |mask: &[bool]| {
            let rows = vec![ids(&[START, 7, 8]), ids(&[5, START, 9])];
            with_decoder(rows, Some(vec![vec![true; 3], mask.to_vec()]))
        };
        let error =
            |context: &PlanContext| GenerationPlan::new(&config(), two(), context).unwrap_err().to_string();
        assert!(
            error(&masked(&[false, true, true])).contains("`decoder_attention_mask` must be 1 everywhere")
        );
        let free = |context: PlanContext| PlanContext {
            encoder: context.encoder.map(|encoder| EncoderContext { has_positions: false, ..encoder }),
            ..context
        };
        assert!(error(&free(masked(&[true, false, true]))).contains("only before the first real token"));
        let plan = GenerationPlan::new(&config(), two(), &free(masked(&[false, true, true]))).unwrap();
        assert_eq!(plan.prompts()[1].tokens(), ids(&[START, 9]));
    }

    #[test]
    fn pad_tokens_that_positions_leave_out_end_decoder_prompts_only() {
        let plan = |row: &[u32]| {
            let context = with_decoder(vec![ids(&[7, 8, 9]), ids(row)], None);
            let encoder =
                context.encoder.map(|encoder| EncoderContext { position_pad: Some(TokenId(1)), ..encoder });
            GenerationPlan::new(&config(), two(), &PlanContext { encoder, ..context })
        };
        for row in [[1, 7, 8], [7, 1, 8]] {
            let error = plan(&row).unwrap_err();
            assert_eq!(error.field(), Some("decoder_input_ids"));
            assert!(error.to_string().contains("`pad_token_id` before other tokens"), "{error}");
        }
        assert!(plan(&[7, 1, 1]).is_ok() && plan(&[7, 8, 5]).is_ok());
    }

    #[test]
    fn processors_see_the_padded_sources() {
        let config = config().encoder_repetition_penalty(1.5);
        let plan = GenerationPlan::new(&config, two(), &context()).unwrap();
        assert_eq!(plan.config().encoder_input_ids, [ids(&[3, 4, 5]), ids(&[6, 1, 7])]);
        let far = PromptBatch::single(ids(&[3, 15])).unwrap();
        let error = GenerationPlan::new(&config, far, &context()).unwrap_err().to_string();
        assert!(error.contains("id 15") && error.contains("encoder_repetition_penalty"), "{error}");
    }

    #[test]
    fn what_an_encoder_makes_impossible_is_refused_by_name() {
        let refused = |config: &GenerationConfig, context: &PlanContext| {
            GenerationPlan::new(config, two(), context).unwrap_err().field().map(ToOwned::to_owned)
        };
        for (config, field) in [
            (config().guidance_scale(2.0), "guidance_scale"),
            (config().token_healing(true), "token_healing"),
            (config().attention_sinks(2_usize), "attention_sinks"),
            (config().window(20_usize), "window"),
            (config().assistant_early_exit(1_usize), "assistant_early_exit"),
            (config().dola_layers(vec![0]), "dola_layers"),
            (config().decoder_start_token_id(10), "decoder_start_token_id"),
            (config().decoder_start_token_id(ids(&[1, 2, 3])), "decoder_start_token_id"),
            (GenerationConfig::new().max_new_tokens(1), "decoder_start_token_id"),
        ] {
            assert_eq!(refused(&config, &context()).as_deref(), Some(field), "{config:?}");
        }
        let rows = with_decoder(vec![ids(&[1])], None);
        assert_eq!(refused(&config(), &rows).as_deref(), Some("decoder_input_ids"));
        let drafted = PlanContext { draft: Some(DraftContext::new(10, 64)), ..context() };
        assert_eq!(refused(&config(), &drafted).as_deref(), Some("assistant_model"));
        let without = PlanContext { encoder: None, ..rows };
        assert_eq!(refused(&config(), &without).as_deref(), Some("decoder_input_ids"));
        for (source, says) in
            [(vec![3; 13], "13 tokens, but the encoder reads at most 12"), (vec![20], "id 20")]
        {
            let source = PromptBatch::single(ids(&source)).unwrap();
            let error = GenerationPlan::new(&config(), source, &context()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let embeddings = vec![Embeddings::new(vec![0.5; 6], 3).unwrap()];
        let embeddings = PromptBatch::with_embeddings(embeddings, Vec::new(), None).unwrap();
        let error = GenerationPlan::new(&config(), embeddings, &context()).unwrap_err();
        assert_eq!(error.field(), Some("inputs_embeds"));
    }

    #[test]
    fn a_start_token_without_an_encoder_is_a_warning() {
        let context = PlanContext { default_length: DefaultLength::Context, ..PlanContext::new(10, 64) };
        let plan = GenerationPlan::new(&config(), two(), &context).unwrap();
        assert!(plan.warnings().iter().any(|warning| warning.to_string().contains("decoder_start_token_id")));
        assert!(plan.prompts()[0].source().is_none());
    }

    #[test]
    fn sequences_are_created_with_the_source_of_their_prompt() {
        for config in [config(), config().num_beams(3), config().prompt_lookup_num_tokens(2_usize)] {
            let one = PromptBatch::single(ids(&[3])).unwrap();
            let batch = if config.prompt_lookup_num_tokens.is_some() { one } else { two() };
            let plan = GenerationPlan::new(&config, batch, &context()).unwrap();
            let prompts: Vec<_> = (0..plan.prompts().len()).map(Some).collect();
            let mut inputs = SearchInputs::new();
            search::build(plan).wants(&mut inputs);
            let created = inputs.ops.iter().filter_map(|op| match op {
                SequenceOp::Create { source, .. } => Some(*source),
                _ => None,
            });
            assert_eq!(created.collect::<Vec<_>>(), prompts, "{config:?}");
        }
    }
}
