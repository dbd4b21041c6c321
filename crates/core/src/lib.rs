//! What every crate of rsgen shares: the error type, identifiers, text as messages show it, JSON and files of
//! strangers, files of finished rows.
#![forbid(unsafe_code)]

pub mod adapters;
pub mod error;
pub mod escape;
pub mod files;
pub mod json;
pub mod lines;
pub mod memory;
pub mod message;
pub mod process;
pub mod row_file;
pub mod sync;
pub mod types;

pub use adapters::{AdapterId, AdapterWeights};
pub use error::{Error, ErrorKind, Mention, Message, Origin, Result, ResultExt, Words, refuse_if};
pub use process::OwnerPid;
pub use sync::Mutex;
pub use types::{BlockId, Choice, FinishReason, LayerSet, LayerShape, RowOutputs, SeqId, TokenId};
