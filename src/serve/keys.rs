//! API keys: digests compared in constant time, and the owner of the key that a request bears.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::failure::Failure;
use super::options::Secret;
use rsgen_core::error::Result;

/// The code of the failure of a request without a valid key.
pub(super) const INVALID: &str = "invalid_api_key";

/// The header in which Anthropic's clients send a key.
const API_KEY: &str = "x-api-key";

/// The digests of the keys; empty if no key is needed.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    digest: [u8; 32],
    /// The cache salt of its owner; `None` for the only key.
    salt: Option<Arc<str>>,
    name: Option<Arc<str>>,
    priority: i32,
}

/// The owner of the API key that a request bears.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tenant {
    /// The index of the key; `None` where no key is needed.
    pub(super) key: Option<usize>,
    /// The owner's cache salt; `None` where there are no other keys.
    salt: Option<Arc<str>>,
    /// The name of the key, which the log has.
    pub(super) name: Option<Arc<str>>,
    /// Whose turn is first: that of a lower number.
    pub(super) priority: i32,
}

impl Tenant {
    /// The cache salt of a request: of the key owner, and of its own field `cache_salt`.
    pub(super) fn salt(&self, own: Option<&str>) -> Option<Arc<str>> {
        match &self.salt {
            // All owners' salts have the same length, so no `own` can imitate the salt of another owner.
            Some(salt) => Some(format!("{salt}{}", own.unwrap_or_default()).into()),
            None => own.map(Arc::from),
        }
    }
}

impl Keys {
    pub(super) fn new(keys: &[Secret]) -> Self {
        let mut all: Vec<_> = keys.iter().map(|key| (digest(key.expose()), key.settings())).collect();
        all.sort_by_key(|(digest, _)| *digest);
        all.dedup_by_key(|(digest, _)| *digest);
        let has_others = all.len() > 1;
        let key = |(digest, (name, priority)): ([u8; 32], (Option<&str>, i32))| Key {
            digest,
            salt: has_others.then(|| salt(&digest)),
            name: name.map(Arc::from),
            priority,
        };
        Self(all.into_iter().map(key).collect())
    }

    /// The owner of the key that a request bears.
    ///
    /// # Errors
    /// Without a valid key in `Authorization: Bearer …` or `x-api-key`, where one is needed.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<Tenant, Failure> {
        if self.0.is_empty() {
            return Ok(Tenant::default());
        }
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|value| value.split_at_checked("Bearer ".len()));
        let bearer = given
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
            .map(|(_, key)| key.trim_ascii());
        let key = match headers.get(header::AUTHORIZATION) {
            Some(_) => bearer,
            None => headers.get(API_KEY).map(|key| key.as_bytes().trim_ascii()),
        };
        self.owner(key.unwrap_or_default()).ok_or_else(refused)
    }

    /// The owner of a key.
    pub(super) fn owner(&self, key: &[u8]) -> Option<Tenant> {
        let number = self.find(key)?;
        let Key { salt, name, priority, .. } = &self.0[number];
        Some(Tenant { key: Some(number), salt: salt.clone(), name: name.clone(), priority: *priority })
    }

    /// The index of a key, found in constant time.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let (given, mut found) = (digest(key), None);
        for (number, known) in self.0.iter().enumerate() {
            if known.digest.ct_eq(&given).into() {
                found = Some(number);
            }
        }
        found
    }
}

/// The failure of a request without a valid key.
pub(super) fn refused() -> Failure {
    Failure::refused(
        StatusCode::UNAUTHORIZED,
        INVALID,
        "this server needs a valid API key; send it in the header `Authorization: Bearer …`",
    )
}

/// A salt that reveals nothing about the key: the digest of its digest.
fn salt(known: &[u8; 32]) -> Arc<str> {
    let mut salt = String::new();
    for byte in digest(known) {
        // Writing to a string cannot fail.
        let _ = write!(salt, "{byte:02x}");
    }
    salt.into()
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
        for (key, is_valid) in [("one", true), ("tw", false), ("", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(API_KEY, key.parse().unwrap());
            assert_eq!(keys.check(&headers).is_ok(), is_valid, "{key}");
            headers.insert(header::AUTHORIZATION, "Bearer other".parse().unwrap());
            assert!(keys.check(&headers).is_err(), "the other header counts");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert_eq!(Keys::new(&[]).check(&HeaderMap::new()).unwrap(), Tenant::default());
        assert!(!format!("{:?}", Secret::new("canary")).contains("canary"));
    }

    #[test]
    fn several_keys_have_distinct_salts_and_a_single_key_has_none() {
        let tenant = |keys: &[&str], key: &str| {
            let secrets: Vec<_> = keys.iter().map(|&key| Secret::new(key)).collect();
            let value = format!("Bearer {key}").parse().unwrap();
            Keys::new(&secrets).check(&HeaderMap::from_iter([(header::AUTHORIZATION, value)])).unwrap()
        };
        let keys = ["one", "two", "two", "three"];
        let [one, two, three] = ["one", "two", "three"].map(|key| tenant(&keys, key));
        let salts =
            [None, Some("a"), Some("b")].map(|own| [&one, &two, &three].map(|tenant| tenant.salt(own)));
        let mut different = salts.concat();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() == 9 && different.iter().all(Option::is_some), "{different:?}");
        assert_eq!(tenant(&keys, "two"), two);
        assert_eq!(tenant(&["two", "four"], "two").salt(None), two.salt(None), "in another server, too");
        for only in [tenant(&["one"], "one"), tenant(&["one", "one"], "one"), Tenant::default()] {
            assert_eq!((only.salt(None), only.salt(Some("a"))), (None, Some("a".into())));
        }
    }
}
