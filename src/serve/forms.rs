//! What clients of LibreTranslate send and expect: bodies as forms, API keys within bodies, errors as texts.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::json::{self, Parsed};
use super::keys::{self, Tenant};
use super::state::ServerState;
use rsgen_core::error::Result;

pub(super) const TRANSLATE: &str = "/translate";
pub(super) const LANGUAGES: &str = "/languages";

/// The field of the texts, which a form may repeat.
pub(super) const TEXTS: &str = "q";
/// The field of a number.
pub(super) const ALTERNATIVES: &str = "alternatives";
const API_KEY: &str = "api_key";
/// The most fields of a form.
const MAX_FIELDS: usize = 1024;

/// Whether a path is one of LibreTranslate's.
pub(super) fn is_path(path: &str) -> bool {
    matches!(path, TRANSLATE | LANGUAGES)
}

/// Whether the body of a request is a form, and its path takes one.
pub(super) fn is_form(path: &str, headers: &HeaderMap) -> bool {
    is_path(path) && json::media_type(headers) == "application/x-www-form-urlencoded"
}

/// Whether the API key of a request may be in its body.
pub(super) fn may_bear_key(request: &Request) -> bool {
    let is_route = match *request.method() {
        Method::POST => request.uri().path() == TRANSLATE,
        Method::GET => request.uri().path() == LANGUAGES,
        _ => false,
    };
    is_route && !request.headers().contains_key(header::AUTHORIZATION)
}

/// The owner of the key in the body of a request, whose fields stay with the request.
///
/// # Errors
/// When there is no valid key in a body of at most 64 KiB.
pub(super) async fn tenant(request: &mut Request, state: &ServerState) -> Result<Tenant, Failure> {
    let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
    let body = std::mem::replace(request.body_mut(), Body::empty());
    let read = json::small_body(body, state).await;
    let text = read.map_err(|_| keys::refused())?;
    let fields =
        if is_form(&path, &headers) { fields(&text) } else { json::object(&text).map(|(map, _)| map) };
    let fields = fields.map_err(|_| keys::refused())?;
    let key = fields.get(API_KEY).and_then(Value::as_str).unwrap_or_default();
    let tenant = state.keys.owner(key.as_bytes()).ok_or_else(keys::refused)?;
    request.extensions_mut().insert(Parsed { fields, len: text.len() });
    Ok(tenant)
}

/// The fields of a form; several of the name `q` are a list. An error completes "must be …".
pub(super) fn fields(text: &[u8]) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    for (number, (name, value)) in form_urlencoded::parse(text).enumerate() {
        if number == MAX_FIELDS {
            return Err(format!("a form of at most {MAX_FIELDS} fields"));
        }
        // Browsers write the line ends of forms so.
        let value = value.replace("\r\n", "\n");
        let number = value.parse::<i64>().ok().filter(|_| name == ALTERNATIVES);
        let value = number.map_or(Value::String(value), Value::from);
        match fields.get_mut(&*name) {
            None => {
                fields.insert(name.into_owned(), value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) if name == TEXTS => *first = Value::Array(vec![first.take(), value]),
            Some(_) => return Err(format!("a form without repeated fields but `{TEXTS}`")),
        }
    }
    Ok(fields)
}

/// The same answer, with an error as LibreTranslate writes it.
pub(super) fn with_plain_error(mut response: Response) -> Response {
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let (_, body) = axum::Json(json!({ "error": failure.message })).into_response().into_parts();
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_fields_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), texts in prop::collection::vec(".*", 0..4)) {
            if let Ok(fields) = fields(&bytes) {
                prop_assert!(fields.values().all(|value| value.is_string() || value.is_array() || value.is_i64()));
            }
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(texts.iter().map(|text| (TEXTS, text)));
            let read = fields(form.finish().as_bytes()).unwrap();
            let expected: Vec<Value> = texts.iter().map(|text| text.replace("\r\n", "\n").into()).collect();
            let expected = match expected.len() {
                0 => None,
                1 => Some(expected[0].clone()),
                _ => Some(Value::Array(expected)),
            };
            prop_assert_eq!(read.get(TEXTS), expected.as_ref());
        }
    }

    #[test]
    fn forms_are_fields_and_repeated_texts_a_list() {
        for (form, expected) in [
            ("", json!({})),
            ("q=a+b%20c&source=en", json!({ "q": "a b c", "source": "en" })),
            ("q=%E6%88%BF&q=&q=x%0D%0Ay", json!({ "q": ["房", "", "x\ny"] })),
            ("alternatives=3&format=3", json!({ "alternatives": 3, "format": "3" })),
            ("alternatives=many&q", json!({ "alternatives": "many", "q": "" })),
            ("q=%ff%zz", json!({ "q": "\u{fffd}%zz" })),
        ] {
            assert_eq!(fields(form.as_bytes()).map(Value::Object), Ok(expected), "{form}");
        }
        for (form, reason) in
            [("source=en&source=de", "without repeated"), (&"a&".repeat(2000), "without repeated")]
        {
            assert!(fields(form.as_bytes()).unwrap_err().contains(reason), "{form}");
        }
        assert!(fields("q=a&".repeat(MAX_FIELDS + 1).as_bytes()).unwrap_err().contains("at most 1024"));
    }
}
