//! What Anthropic's requests say of thinking.

use serde_json::{Map, Value};

use crate::serve::failure::Failure;
use rsgen_generation::config::integer;

/// What an answer shows of the thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// None was asked for.
    Hidden,
    Shown,
    /// That there was some.
    Omitted,
}

impl Thinking {
    /// What a request says, and how many tokens of thinking it allows.
    ///
    /// # Errors
    /// When it says something else.
    pub(super) fn of(given: Option<&Value>) -> Result<(Self, Option<Value>), Failure> {
        let Some(given) = given else { return Ok((Self::Hidden, None)) };
        let invalid = |at: &str, rule: &str| Failure::invalid(at, format!("`{at}` must be {rule}"));
        let budget = match given.get("type").and_then(Value::as_str) {
            Some("disabled") => return Ok((Self::Hidden, None)),
            Some("adaptive") => None,
            Some("enabled") => {
                let budget =
                    given.get("budget_tokens").filter(|budget| integer(budget).is_some_and(|it| it > 0));
                let rule = "an integer of 1 or more, the most tokens of thinking";
                Some(budget.cloned().ok_or_else(|| invalid("thinking.budget_tokens", rule))?)
            }
            Some(kind) => {
                let message = format!(
                    "`thinking` is of the type {kind:?}, which is not supported; use \"enabled\", \"adaptive\" or \"disabled\""
                );
                return Err(Failure::unsupported("thinking", message));
            }
            None => return Err(invalid("thinking", "of the type \"enabled\", \"adaptive\" or \"disabled\"")),
        };
        match given.get("display") {
            None | Some(Value::Null) => Ok((Self::Shown, budget)),
            Some(word) if word == "summarized" => Ok((Self::Shown, budget)),
            Some(word) if word == "omitted" => Ok((Self::Omitted, budget)),
            Some(_) => Err(invalid("thinking.display", "\"summarized\" or \"omitted\"")),
        }
    }
}

/// Adds to the fields of a chat whether the model thinks, and for how many tokens. What the request itself says of the template
/// counts.
pub(super) fn add(given: Option<&Value>, fields: &mut Map<String, Value>) -> Result<(), Failure> {
    let (thinking, budget) = Thinking::of(given)?;
    let kwargs = fields.entry("chat_template_kwargs").or_insert_with(|| Map::new().into());
    if let Some(kwargs) = kwargs.as_object_mut() {
        kwargs.entry("enable_thinking").or_insert((thinking != Thinking::Hidden).into());
    }
    if let Some(budget) = budget {
        fields.entry("thinking_token_budget").or_insert(budget);
    }
    Ok(())
}
