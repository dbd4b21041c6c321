//! Log-probabilities in answers: OpenAI's two forms, and vLLM's for prompts.
//!
//! Clients look tokens up by their texts and compare numbers exactly: so the token itself is always among its
//! alternatives, with the same number, and different tokens never share a name.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use super::text::List;
use crate::engine::TokenScore;
use rsgen_core::types::TokenId;
use rsgen_text::Tokenizer;

/// Stands for negative infinity, which JSON lacks, as in OpenAI's API.
const IMPOSSIBLE: f64 = -9999.0;

/// The names of tokens.
#[derive(Debug, Clone)]
pub(super) struct TokenNames {
    pub(super) tokenizer: Option<Tokenizer>,
    /// Whether all have the form `token_id:5`.
    pub(super) as_ids: bool,
}

/// A token with its log-probability, and its alternatives.
#[derive(Debug, Clone)]
pub(super) struct Scored {
    pub(super) id: TokenId,
    /// `None` for the first token of a prompt, which nothing predicts.
    pub(super) logprob: Option<f32>,
    /// The most probable tokens, the most probable first.
    pub(super) top: Vec<(TokenId, f32)>,
    /// Where its text begins in the answer, in characters.
    pub(super) offset: usize,
}

impl TokenNames {
    /// The text of a token; `bytes:\xe6` for what is no whole character; `token_id:5` without either.
    pub(super) fn name(&self, id: TokenId) -> String {
        let bytes =
            self.tokenizer.as_ref().filter(|_| !self.as_ids).and_then(|tokenizer| tokenizer.token_bytes(id));
        match bytes {
            None | Some([]) => format!("token_id:{id}"),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => {
                    bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}"))
                }
            },
        }
    }

    /// The name of an alternative, different from those that are taken.
    fn other(&self, id: TokenId, is_taken: impl Fn(&str) -> bool) -> String {
        let name = self.name(id);
        if is_taken(&name) { format!("token_id:{id}") } else { name }
    }

    fn bytes(&self, id: TokenId) -> Value {
        let bytes = self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.token_bytes(id));
        bytes.map_or(Value::Null, |bytes| bytes.to_vec().into())
    }

    fn alternatives(&self, token: &Scored) -> Value {
        if token.logprob.is_none() {
            return Value::Null;
        }
        let own = self.name(token.id);
        let mut map = Map::new();
        for &(id, logprob) in &token.top {
            if id == token.id {
                map.insert(own.clone(), number(token.logprob));
            } else {
                let name = self.other(id, |name| name == own || map.contains_key(name));
                map.insert(name, number(Some(logprob)));
            }
        }
        map.entry(own).or_insert_with(|| number(token.logprob));
        Value::Object(map)
    }

    /// The entry of a token in the form of chats.
    fn entry(&self, token: &Scored) -> Value {
        let one = |id: TokenId, logprob: Option<f32>| {
            let logprob = number(logprob).as_f64().unwrap_or(IMPOSSIBLE);
            json!({ "token": self.name(id), "logprob": logprob, "bytes": self.bytes(id) })
        };
        let mut entry = one(token.id, token.logprob);
        let own = |id: TokenId, logprob| if id == token.id { token.logprob } else { Some(logprob) };
        let top = token.top.iter().map(|&(id, logprob)| one(id, own(id, logprob)));
        entry["top_logprobs"] = top.collect();
        entry
    }

    /// The entry of a token in vLLM's `prompt_logprobs`: a map by ids; null for the first.
    fn of_prompt(&self, score: &TokenScore) -> Value {
        if score.rank == 0 {
            return Value::Null;
        }
        let one = |id: TokenId, logprob: f32, rank: usize| json!({ "logprob": number(Some(logprob)), "rank": rank, "decoded_token": self.name(id) });
        let top = score.top_logprobs.iter().zip(1..).filter(|((id, _), _)| *id != score.token_id);
        let mut map: Map<_, _> =
            top.map(|(&(id, logprob), rank)| (id.to_string(), one(id, logprob, rank))).collect();
        map.insert(score.token_id.to_string(), one(score.token_id, score.logprob, score.rank));
        Value::Object(map)
    }
}

/// The log-probabilities of an answer or a prompt, which are written token by token.
pub(super) enum Logprobs<'a> {
    /// OpenAI's form of completions: parallel lists.
    Completion(&'a TokenNames, &'a [Scored]),
    /// OpenAI's form of chats: a list of objects.
    Chat(&'a TokenNames, &'a [Scored]),
    /// vLLM's form of prompts: a list of maps.
    Prompt(&'a TokenNames, &'a [TokenScore]),
}

impl Serialize for Logprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Completion(names, tokens) => {
                let mut map = serializer.serialize_map(Some(4))?;
                map.serialize_entry("tokens", &List(tokens, |token: &Scored| names.name(token.id)))?;
                map.serialize_entry("token_logprobs", &List(tokens, |token: &Scored| number(token.logprob)))?;
                map.serialize_entry(
                    "top_logprobs",
                    &List(tokens, |token: &Scored| names.alternatives(token)),
                )?;
                map.serialize_entry("text_offset", &List(tokens, |token: &Scored| token.offset))?;
                map.end()
            }
            Self::Chat(names, tokens) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("content", &List(tokens, |token: &Scored| names.entry(token)))?;
                map.serialize_entry("refusal", &())?;
                map.end()
            }
            Self::Prompt(names, scores) => {
                List(scores, |score: &TokenScore| names.of_prompt(score)).serialize(serializer)
            }
        }
    }
}

/// A log-probability as JSON; null for none, and for an end-of-sequence token that a beam search has not
/// chosen.
fn number(logprob: Option<f32>) -> Value {
    match logprob {
        Some(logprob) if logprob.is_finite() => f64::from(logprob).into(),
        Some(logprob) if !logprob.is_nan() => IMPOSSIBLE.into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legacy(names: &TokenNames, scored: Scored) -> Value {
        serde_json::to_value(Logprobs::Completion(names, &[scored])).unwrap()
    }

    #[test]
    fn the_token_is_among_its_alternatives_with_the_same_number() {
        let names = TokenNames { tokenizer: None, as_ids: false };
        let scored = |top: &[(u32, f32)], logprob: f32| Scored {
            id: TokenId(5),
            logprob: Some(logprob),
            top: top.iter().map(|&(id, logprob)| (TokenId(id), logprob)).collect(),
            offset: 0,
        };
        for top in [&[][..], &[(7, -0.5)], &[(7, -0.5), (5, -0.7)]] {
            let answer = legacy(&names, scored(top, -0.7));
            assert_eq!(answer["top_logprobs"][0]["token_id:5"], answer["token_logprobs"][0]);
            assert_eq!(
                answer["top_logprobs"][0].as_object().unwrap().len(),
                top.len().max(1) + usize::from(top.len() == 1)
            );
        }
        assert_eq!(legacy(&names, scored(&[], f32::NEG_INFINITY))["token_logprobs"][0], -9999.0);
        assert_eq!(legacy(&names, scored(&[], f32::NAN))["token_logprobs"][0], Value::Null);
    }

    #[cfg(feature = "bundled")]
    #[test]
    fn different_tokens_have_different_names() {
        let generator = crate::generator::Generator::bundled().unwrap();
        let tokenizer = generator.tokenizer().unwrap().clone();
        let all: Vec<(TokenId, f32)> = (0..tokenizer.len() as u32).map(|id| (TokenId(id), -1.0)).collect();
        let names = TokenNames { tokenizer: Some(tokenizer), as_ids: false };
        let scored = Scored { id: TokenId(3), logprob: Some(-1.0), top: all.clone(), offset: 0 };
        let answer = legacy(&names, scored);
        assert_eq!(answer["top_logprobs"][0].as_object().unwrap().len(), all.len());
        assert!(all.iter().any(|&(id, _)| names.name(id).starts_with("bytes:\\x")));
        let names = TokenNames { as_ids: true, ..names };
        assert_eq!(names.name(TokenId(3)), "token_id:3");
    }
}
