//! Watermarks: which tokens they favour, and the detectors that find them in a text.
//!
//! Processors mark texts (`logits/watermark.rs`, `logits/synthid_text_watermark.rs`). Both they and the
//! detectors compute what is favoured from the tokens of a sequence alone, so nothing has to be kept where a
//! sequence forks or rolls back.

mod bayesian;
mod detector;
mod erfc;
mod green_lists;
mod recent;
mod synthid;
mod synthid_detector;

pub use bayesian::BayesianDetectorModel;
pub use detector::{WatermarkDetection, WatermarkDetector};
pub(super) use green_lists::GreenLists;
pub(super) use synthid::{GTable, GValues};
pub use synthid_detector::{SynthIDScores, SynthIDTextWatermarkDetector};
