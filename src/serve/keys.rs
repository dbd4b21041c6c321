//! API keys: digests compared in constant time.

use std::hint::black_box;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::failure::Failure;
use super::options::Secret;
use crate::error::Result;

/// The digests of the keys; none means that no key is needed.
#[derive(Debug)]
pub(super) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(super) fn new(keys: &[Secret]) -> Self {
        Self(keys.iter().map(|key| digest(key.expose())).collect())
    }

    /// Refuses a request without a valid key in `Authorization: Bearer …`.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|value| value.split_at_checked("Bearer ".len()));
        let key = given
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
            .map(|(_, key)| key.trim_ascii());
        if self.holds(key.unwrap_or_default()) {
            return Ok(());
        }
        Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "invalid_request_error",
            "invalid_api_key",
            "this server needs a valid API key; send it in the header `Authorization: Bearer …`",
        ))
    }

    /// Takes the same time for each wrong key.
    fn holds(&self, key: &[u8]) -> bool {
        let given = digest(key);
        let mut is_known = false;
        for known in &self.0 {
            let difference = known.iter().zip(given).fold(0, |bits, (known, given)| bits | (known ^ given));
            is_known |= black_box(difference) == 0;
        }
        is_known
    }
}

fn digest(key: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_are_valid() {
        let keys = Keys::new(&[Secret::new("one"), Secret::new("two")]);
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            keys.check(&headers).is_ok()
        };
        for valid in ["Bearer one", "Bearer two", "bearer one", "Bearer  two "] {
            assert!(check(valid), "{valid}");
        }
        for wrong in ["", "one", "Bearer", "Bearer ", "Bearer on", "Bearer onetwo", "Basic one", "Bearer ONE"]
        {
            assert!(!check(wrong), "{wrong}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(Keys::new(&[]).check(&HeaderMap::new()).is_ok());
        assert!(!format!("{:?}", Secret::new("canary")).contains("canary"));
    }
}
