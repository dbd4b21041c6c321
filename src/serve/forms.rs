//! What clients of LibreTranslate send: bodies as forms, API keys within bodies.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use serde_json::{Map, Value};

use super::failure::Failure;
use super::json::{self, Parsed};
use super::keys::{self, Tenant};
use super::state::ServerState;
use rsgen_core::error::Result;

pub(super) const TRANSLATE: &str = "/translate";
pub(super) const LANGUAGES: &str = "/languages";
pub(super) const DETECT: &str = "/detect";

/// The field of the texts, which a form may repeat.
pub(super) const TEXTS: &str = "q";
/// The field of a number.
pub(super) const ALTERNATIVES: &str = "alternatives";
const API_KEY: &str = "api_key";
pub(super) const URL_ENCODED: &str = "application/x-www-form-urlencoded";
/// The most fields of a form.
const MAX_FIELDS: usize = 1024;

/// Whether a path is one of LibreTranslate's.
pub(super) fn is_path(path: &str) -> bool {
    matches!(path, TRANSLATE | LANGUAGES | DETECT)
}

/// How the body of a request is a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// `application/x-www-form-urlencoded`
    UrlEncoded,
    /// `multipart/form-data` with this boundary.
    Multipart(String),
}

impl Form {
    /// The form of a request whose path takes one; `None` if it is no form.
    pub(super) fn of(path: &str, headers: &HeaderMap) -> Option<Self> {
        if !is_path(path) {
            return None;
        }
        match &*json::media_type(headers) {
            URL_ENCODED => Some(Self::UrlEncoded),
            "multipart/form-data" => {
                let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
                multer::parse_boundary(kind).ok().map(Self::Multipart)
            }
            _ => None,
        }
    }

    /// The fields of a body; several of the name `q` are a list. An error completes "must be …".
    pub(super) async fn fields(&self, body: Vec<u8>) -> Result<Map<String, Value>, String> {
        let mut fields = FormFields::default();
        match self {
            Self::UrlEncoded => {
                for (name, value) in form_urlencoded::parse(&body) {
                    fields.add(&name, &value)?;
                }
            }
            Self::Multipart(boundary) => {
                let wrong = |error: multer::Error| format!("a form in multipart/form-data ({error})");
                let parts = tokio_stream::once(std::io::Result::Ok(body));
                let mut parts = multer::Multipart::new(parts, boundary);
                while let Some(part) = parts.next_field().await.map_err(wrong)? {
                    if part.file_name().is_some() {
                        return Err("a form without files".to_owned());
                    }
                    let name = part.name().ok_or("a form whose parts have names")?.to_owned();
                    let value = part.bytes().await.map_err(wrong)?;
                    fields.add(&name, &String::from_utf8_lossy(&value))?;
                }
            }
        }
        Ok(fields.map)
    }
}

/// Whether the API key of a request may be in its body.
pub(super) fn may_bear_key(request: &Request) -> bool {
    let is_route = match *request.method() {
        Method::POST => matches!(request.uri().path(), TRANSLATE | DETECT),
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
    let len = text.len();
    let fields = match Form::of(&path, &headers) {
        Some(form) => form.fields(text).await,
        None => json::object(&text).map(|(map, _)| map),
    };
    let fields = fields.map_err(|_| keys::refused())?;
    let key = fields.get(API_KEY).and_then(Value::as_str).unwrap_or_default();
    let tenant = state.keys.owner(key.as_bytes()).ok_or_else(keys::refused)?;
    request.extensions_mut().insert(Parsed { fields, len });
    Ok(tenant)
}

/// The fields of a form so far.
#[derive(Default)]
struct FormFields {
    map: Map<String, Value>,
    count: usize,
}

impl FormFields {
    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.count == MAX_FIELDS {
            return Err(format!("a form of at most {MAX_FIELDS} fields"));
        }
        self.count += 1;
        // Browsers write the line ends of forms so.
        let value = value.replace("\r\n", "\n");
        let number = value.parse::<i64>().ok().filter(|_| name == ALTERNATIVES);
        let value = number.map_or(Value::String(value), Value::from);
        match self.map.get_mut(name) {
            None => {
                self.map.insert(name.to_owned(), value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) if name == TEXTS => *first = Value::Array(vec![first.take(), value]),
            Some(_) => return Err(format!("a form without repeated fields but `{TEXTS}`")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(form: &Form, body: &[u8]) -> Result<Map<String, Value>, String> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(form.fields(body.to_vec()))
    }

    fn fields(body: &[u8]) -> Result<Map<String, Value>, String> {
        parse(&Form::UrlEncoded, body)
    }

    fn multipart(body: &[u8]) -> Result<Map<String, Value>, String> {
        parse(&Form::Multipart("line".to_owned()), body)
    }

    /// Parts of these names and values.
    fn parts<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let part = |(name, value)| {
            format!("--line\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        parts.into_iter().map(part).chain(["--line--\r\n".to_owned()]).collect()
    }

    proptest! {
        #[test]
        fn any_bytes_are_fields_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), texts in prop::collection::vec("[^\r\n]*", 0..4)) {
            for read in [fields(&bytes), multipart(&bytes), multipart(&[b"--line\r\n", &bytes[..]].concat())] {
                let is_value = |value: &Value| value.is_string() || value.is_array() || value.is_i64();
                prop_assert!(read.is_err() || read.unwrap().values().all(is_value));
            }
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(texts.iter().map(|text| (TEXTS, text)));
            let expected: Vec<Value> = texts.iter().map(|text| text.as_str().into()).collect();
            let expected = match expected.len() {
                0 => None,
                1 => Some(expected[0].clone()),
                _ => Some(Value::Array(expected)),
            };
            let of_parts = parts(texts.iter().map(|text| (TEXTS, text.as_str())));
            for read in [fields(form.finish().as_bytes()), multipart(of_parts.as_bytes())] {
                let read = read.unwrap();
                prop_assert_eq!(read.get(TEXTS), expected.as_ref());
            }
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

    #[test]
    fn parts_are_fields_without_files() {
        let form = parts([("q", "a b"), ("q", "x\r\ny"), ("alternatives", "3")]);
        let expected = json!({ "q": ["a b", "x\ny"], "alternatives": 3 });
        assert_eq!(multipart(form.as_bytes()).map(Value::Object), Ok(expected));
        let file = parts([("q", "a")]).replace("name=\"q\"", "name=\"q\"; filename=\"a.txt\"");
        let nameless = parts([("q", "a")]).replace("; name=\"q\"", "");
        let many = parts(std::iter::repeat_n(("q", "a"), MAX_FIELDS + 1));
        for (form, reason) in [
            (file, "without files"),
            (nameless, "have names"),
            (many, "at most 1024"),
            (parts([("source", "a"), ("source", "b")]), "without repeated"),
            (form[..form.len() / 2].to_owned(), "multipart/form-data"),
            ("q=a".to_owned(), "multipart/form-data"),
        ] {
            let found = multipart(form.as_bytes());
            assert!(found.as_ref().is_err_and(|error| error.contains(reason)), "{reason}: {found:?}");
        }
    }

    #[test]
    fn only_the_paths_of_libretranslate_take_forms() {
        let headers = |kind: &str| HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
        let parts = headers("multipart/form-data; boundary=line");
        assert_eq!(Form::of(TRANSLATE, &parts), Some(Form::Multipart("line".to_owned())));
        assert_eq!(Form::of("/v1/completions", &parts), None);
        assert_eq!(Form::of(TRANSLATE, &headers("multipart/form-data")), None);
        let encoded = headers("application/x-www-form-urlencoded");
        assert_eq!(Form::of(DETECT, &encoded), Some(Form::UrlEncoded));
    }
}
