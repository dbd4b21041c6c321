//! `rsgen detect`: detects watermarks, without loading weights.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::args::{NamedModelArguments, OutputArguments};
use super::decoding::help;
use super::failure::Failure;
use super::model::ModelSource;
use super::output::write_report;
use super::prompt;
use super::tokenize::{check_ids, parse_ids};
use super::wording;
use crate::generator::{BayesianDetector, open_tokenizer};
use rsgen_core::{Error, Result, TokenId};
use rsgen_generation::{
    FieldValue, GenerationConfig, SynthIDTextWatermarkDetector, SynthIDTextWatermarkingConfig,
    WatermarkDetection, WatermarkDetector, Watermarking, WatermarkingConfig,
};
use rsgen_model::weights::{MAX_TEXT_BYTES, ModelFiles, read_object};

const EXAMPLES: &str = "\
Examples:
  rsgen detect --watermarking-config '{\"bias\": 4}' \"Once upon a time\"
  rsgen detect --token-ids --watermarking-config '{\"bias\": 4}' - < ids.txt";

/// Show whether a text carries a watermark
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DetectArguments {
    /// The text; `-` or nothing: read standard input
    text: Option<String>,

    #[arg(long, value_name = "JSON", env = "RSGEN_WATERMARKING_CONFIG", value_parser = watermark)]
    #[arg(help = help("watermarking_config"))]
    watermarking_config: Option<Watermarking>,
    /// The z-score of a marked text
    #[arg(long, value_name = "X", env = "RSGEN_Z_THRESHOLD", default_value = "3")]
    z_threshold: f64,
    /// Count n-grams that come again once
    #[arg(long, env = "RSGEN_IGNORE_REPEATED_NGRAMS", hide_short_help = true)]
    ignore_repeated_ngrams: bool,
    /// A trained detector of SynthID's watermark: a folder or a Hub cache id
    #[arg(long, value_name = "MODEL", env = "RSGEN_DETECTOR", hide_short_help = true)]
    detector: Option<String>,
    /// The text is given as token ids
    #[arg(long, env = "RSGEN_TOKEN_IDS")]
    token_ids: bool,

    #[command(flatten)]
    model: NamedModelArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Parses the settings of a watermark.
fn watermark(text: &str) -> Result<Watermarking, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it must be JSON: {error}"))?;
    let mut config = GenerationConfig::new();
    let set = config.set("watermarking_config", &FieldValue::from(value));
    set.map_err(|error| wording::told(&error))?;
    config.watermarking_config.ok_or_else(|| "it must not be null".to_owned())
}

pub(super) fn run(arguments: &DetectArguments, bundled: Option<&Path>) -> Result<(), Failure> {
    let given = prompt::read_text(arguments.text.as_deref())?;
    let files = ModelSource::choose(arguments.model.model.as_deref(), bundled)?.files()?;
    let tokens = tokens(arguments, &files, &given)?;
    let detector = arguments.detector.as_deref().map(BayesianDetector::from_pretrained).transpose()?;
    let of_detector = || detector.as_ref().and_then(|detector| detector.watermarking_config.clone());
    let watermark = arguments.watermarking_config.clone().or_else(of_detector);
    let model = files.name();
    let mut out = BufWriter::new(stdout().lock());
    match watermark.unwrap_or_else(|| WatermarkingConfig::default().into()) {
        Watermarking::GreenList(_) if detector.is_some() => {
            let message = "`--detector` is for SynthID's watermark, but `--watermarking-config` asks for green lists; leave out \
                           one of them";
            return Err(Error::config(message).into());
        }
        Watermarking::GreenList(config) => {
            let report = GreenReport::new(arguments, model, &files, &config, &tokens)?;
            if arguments.output.json {
                write_report(&mut out, &report)?;
            } else {
                let verdict = if report.prediction { "a watermark" } else { "no watermark" };
                let WatermarkDetection { num_tokens_scored, num_green_tokens, z_score, p_value, .. } =
                    &report.found;
                writeln!(
                    out,
                    "{verdict}: {num_green_tokens} of {num_tokens_scored} tokens are green, z-score {z_score:.2}, \
                     p-value {p_value:.2e}"
                )?;
            }
        }
        Watermarking::SynthIDText(config) => {
            let report = SynthIDReport::new(model, &files, config, detector.as_ref(), &tokens)?;
            if arguments.output.json {
                write_report(&mut out, &report)?;
            } else {
                let SynthIDReport { num_tokens_scored, mean, weighted_mean, .. } = &report;
                let shown = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
                write!(
                    out,
                    "mean g-value {}, weighted {}, of {num_tokens_scored} tokens; 0.5 is no watermark",
                    shown(mean),
                    shown(weighted_mean)
                )?;
                match report.posterior {
                    Some(posterior) => writeln!(out, "; probability {posterior:.4}")?,
                    None => writeln!(out)?,
                }
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// The tokens of the text, without special ones.
fn tokens(arguments: &DetectArguments, files: &ModelFiles, given: &str) -> Result<Vec<TokenId>, Failure> {
    let tokenizer = open_tokenizer(files)?;
    if arguments.token_ids {
        let ids = parse_ids(given)?;
        if let Some(tokenizer) = &tokenizer {
            check_ids(tokenizer, &ids)?;
        }
        return Ok(ids);
    }
    let tokenizer = tokenizer.ok_or_else(|| {
        Error::load(format!("{} has no tokenizer; give ids with --token-ids", files.name()))
    })?;
    Ok(tokenizer.encode(given, false)?)
}

/// The integers of a field of the model's files, one or several.
fn ids(value: Option<&Value>) -> Vec<TokenId> {
    let ids = match value {
        Some(Value::Array(ids)) => ids.iter().collect(),
        Some(id) => vec![id],
        None => Vec::new(),
    };
    ids.into_iter().filter_map(|id| id.as_u64()?.try_into().ok().map(TokenId)).collect()
}

/// What `--json` writes of green lists.
#[derive(Serialize)]
struct GreenReport<'a> {
    model: &'a str,
    prediction: bool,
    #[serde(flatten)]
    found: WatermarkDetection,
}

impl<'a> GreenReport<'a> {
    fn new(
        arguments: &DetectArguments,
        model: &'a str,
        files: &ModelFiles,
        watermark: &WatermarkingConfig,
        tokens: &[TokenId],
    ) -> Result<Self> {
        let config = read_object("config.json", &files.config()?, MAX_TEXT_BYTES)?;
        let vocab_size =
            config.get("vocab_size").and_then(Value::as_u64).and_then(|size| size.try_into().ok());
        let vocab_size = vocab_size.ok_or_else(|| {
            Error::load(format!("{model}: config.json: `vocab_size` must be an integer of 1 or more"))
        })?;
        let bos_token_id = ids(config.get("bos_token_id")).first().copied();
        let detector = WatermarkDetector::new(watermark, vocab_size, bos_token_id)?;
        let found = detector.ignore_repeated_ngrams(arguments.ignore_repeated_ngrams).detect(tokens)?;
        Ok(Self { model, prediction: found.prediction(arguments.z_threshold), found })
    }
}

/// What `--json` writes of SynthID's watermark.
#[derive(Serialize)]
struct SynthIDReport<'a> {
    model: &'a str,
    /// The tokens whose g-values count.
    num_tokens_scored: usize,
    /// `null` when none counts.
    mean: Option<f64>,
    weighted_mean: Option<f64>,
    /// `null` without `--detector`.
    posterior: Option<f32>,
}

impl<'a> SynthIDReport<'a> {
    fn new(
        model: &'a str,
        files: &ModelFiles,
        watermark: SynthIDTextWatermarkingConfig,
        detector: Option<&BayesianDetector>,
        tokens: &[TokenId],
    ) -> Result<Self> {
        let text = files.generation_config()?.map_or_else(|| files.config(), Ok)?;
        let config = read_object("generation_config.json", &text, MAX_TEXT_BYTES)?;
        let scores =
            SynthIDTextWatermarkDetector::new(watermark, ids(config.get("eos_token_id")))?.detect(tokens)?;
        let number = |value: f64| Some(value).filter(|value| value.is_finite());
        Ok(Self {
            model,
            num_tokens_scored: scores.mask.iter().filter(|counts| **counts).count(),
            mean: number(scores.mean()),
            weighted_mean: number(scores.weighted_mean()),
            posterior: detector.map(|detector| scores.posterior(&detector.model)).transpose()?,
        })
    }
}
