//! How each token was found, as events: alternatives and what removed them, the tree of beams, drafts.
//!
//! A request with `output_events` records them; a stream gives them as they happen, an output holds them all,
//! and a [`Trace`] keeps them in a file. The pictures of the shell and of notebooks are drawn from them
//! alone.

mod event;
mod file;
mod recorder;

pub use event::{
    Alternative, BeamNode, Beams, Draft, DraftedToken, Finish, FinishedRow, GenerationEvent, Prompt, Seconds,
    Start, TimedEvent, Token, TokenText,
};
pub use file::Trace;
pub(super) use recorder::{Recorder, joined};
