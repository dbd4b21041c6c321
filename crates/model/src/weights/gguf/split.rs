//! The parts of a model that llama.cpp split into several files: `NAME-00001-of-00003.gguf`.

use super::container::Container;
use super::value::wrong;
use crate::weights::safetensors::HeaderLimits;
use crate::weights::source::FileBytes;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;

const ENDING: &str = ".gguf";
const DIGITS: usize = 5;
const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
/// The most files of a model.
const MAX_FILES: u64 = 1000;

/// The name of a part: what all begin with, its number from 1 on, and their count.
pub(super) fn parse(name: &str) -> Option<(&str, u64, u64)> {
    let stem = name.strip_suffix(ENDING)?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (stem, number) = stem.rsplit_once('-')?;
    let digits = |text: &str| {
        (text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<u64>().ok())
            .flatten()
    };
    Some((stem, digits(number)?, digits(count)?))
}

/// The name of a part.
fn name_of(stem: &str, number: u64, count: u64) -> String {
    format!("{stem}-{number:0DIGITS$}-of-{count:0DIGITS$}{ENDING}")
}

/// Reads the other parts of a model, whose first one has been read; `open` opens a file beside it.
///
/// # Errors
/// `Load` when a part is missing, damaged, or of another model.
pub(super) fn read_others(
    first: Container,
    limits: &mut HeaderLimits,
    open: &dyn Fn(&str) -> Result<Option<FileBytes>>,
) -> Result<Vec<Container>> {
    let named = parse(&first.name).map(|(stem, number, count)| (stem.to_owned(), number, count));
    let count = first.metadata.count(COUNT)?.unwrap_or(0);
    if count <= 1 && named.as_ref().is_none_or(|(_, _, count)| *count <= 1) {
        return Ok(vec![first]);
    }
    let check = || {
        let Some((stem, number, named)) = named else {
            return Err(wrong(
                COUNT,
                "1 in a file whose name does not end in -00001-of-0000N.gguf",
                first.metadata.get(COUNT),
            ));
        };
        if number != 1 {
            return Err(Error::load(format!(
                "it is a part of a model; name the first file, {}",
                escape::name(&name_of(&stem, 1, named))
            )));
        }
        if count != named || count > MAX_FILES {
            let rule = format!("{named}, as the name of the file says, and at most {MAX_FILES}");
            return Err(wrong(COUNT, &rule, first.metadata.get(COUNT)));
        }
        Ok(stem)
    };
    let stem = check().context(|| first.name.clone())?;
    let total = first.metadata.count(TENSORS)?;
    let mut files = vec![first];
    for number in 2..=count {
        let name = name_of(&stem, number, count);
        let bytes = open(&name)?.ok_or_else(|| {
            Error::load(format!(
                "{}: it is missing beside the first file; download it as well",
                escape::name(&name)
            ))
        })?;
        let part = Container::read(&name, bytes, limits)?;
        for (key, expected) in [(NUMBER, number - 1), (COUNT, count)] {
            if part.metadata.count(key).context(|| name.clone())? != Some(expected) {
                let rule = format!("{expected}, as the name of the file says");
                return Err(wrong(key, &rule, part.metadata.get(key)).context(name));
            }
        }
        files.push(part);
    }
    let found: usize = files.iter().map(|file| file.tensors.len()).sum();
    if total.is_some_and(|total| total != found as u64) {
        let rule = format!("the number of tensors in all files, {found}");
        return Err(wrong(TENSORS, &rule, files[0].metadata.get(TENSORS)).context(files[0].name.clone()));
    }
    Ok(files)
}
