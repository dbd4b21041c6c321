//! Catalogues that commands open: one for a call, or several by names for requests.

#[cfg(feature = "serve")]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::engine::Interrupt;
use rsgen_core::Result;
#[cfg(feature = "serve")]
use rsgen_core::refuse_if;
use rsgen_generation::TokenTrie;

/// Opens the catalogue of a file, which an option names.
pub(super) fn open(
    option: &'static str,
    path: impl AsRef<Path>,
    interrupted: &mut Interrupt<'_>,
) -> Result<Arc<TokenTrie>> {
    TokenTrie::open(path, interrupted).map(Arc::new).map_err(|error| error.within(option))
}

/// Opens the catalogues of the values `NAME=PATH`.
#[cfg(feature = "serve")]
pub(super) fn open_named(
    given: &[String],
    interrupted: &mut Interrupt<'_>,
) -> Result<BTreeMap<String, Arc<TokenTrie>>> {
    let named = named_paths("catalogue", given, "--catalogue names=names.trie")?;
    named
        .into_iter()
        .map(|(name, path)| Ok((name.to_owned(), open("catalogue", path, interrupted)?)))
        .collect()
}

/// The values `NAME=PATH` of an option, each name once.
#[cfg(feature = "serve")]
pub(super) fn named_paths<'a>(
    option: &'static str,
    given: &'a [String],
    example: &str,
) -> Result<Vec<(&'a str, &'a str)>> {
    let mut named: Vec<(&str, &str)> = Vec::new();
    for given in given {
        let (name, path) = given.split_once('=').unwrap_or_default();
        refuse_if(name.is_empty() || path.is_empty(), option, || {
            format!("must be NAME=PATH, as in {example}, but is {given:?}")
        })?;
        let is_twice = named.iter().any(|(other, _)| *other == name);
        refuse_if(is_twice, option, || format!("has {name:?} twice; leave out one of them"))?;
        named.push((name, path));
    }
    Ok(named)
}
