//! Token counts and ignored fields in answers.

use axum::http::HeaderValue;
use axum::response::Response;
use serde_json::{Value, json};

/// The header that names the fields of a request that were ignored.
pub(in crate::serve) const IGNORED: &str = "x-rsgen-ignored";
/// The most bytes of that header.
const MAX_HEADER: usize = 1024;

/// How many tokens a request has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) prompt: usize,
    /// Tokens of the prompt that other requests had computed.
    pub(super) cached: usize,
    pub(super) completion: usize,
    /// Those of them that are thinking.
    pub(super) reasoning: usize,
}

impl Counts {
    pub(super) fn json(self) -> Value {
        let Self { prompt, cached, completion, reasoning } = self;
        let mut counts = json!({
            "prompt_tokens": prompt,
            "prompt_tokens_details": { "cached_tokens": cached },
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        });
        if reasoning > 0 {
            counts["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
        }
        counts
    }
}

/// The response with a header that names ignored fields, if there are any.
pub(super) fn with_ignored(mut response: Response, ignored: &[String]) -> Response {
    let mut names = String::new();
    for name in ignored {
        let shown =
            name.chars().take(64).map(|char| if char.is_ascii_graphic() && char != ',' { char } else { '?' });
        let shown: String = shown.collect();
        if names.len() + shown.len() + 2 > MAX_HEADER {
            break;
        }
        if !names.is_empty() {
            names.push_str(", ");
        }
        names.push_str(&shown);
    }
    if let (false, Ok(value)) = (names.is_empty(), HeaderValue::from_str(&names)) {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}
