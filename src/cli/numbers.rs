//! Numbers for people: three digits and a unit.

/// A number of things, with three digits: `2.83 million`.
pub(super) fn count(number: u64) -> String {
    scaled(number, &[(1_000_000_000, " billion"), (1_000_000, " million"), (1000, " thousand")])
        .unwrap_or_else(|| number.to_string())
}

/// A number of bytes, with three digits: `5.66 MB`.
pub(super) fn bytes(number: u64) -> String {
    scaled(number, &[(1_000_000_000, " GB"), (1_000_000, " MB"), (1000, " kB")])
        .unwrap_or_else(|| format!("{number} bytes"))
}

fn scaled(number: u64, units: &[(u64, &str)]) -> Option<String> {
    let (unit, name) = units.iter().find(|(unit, _)| number >= *unit)?;
    let value = number as f64 / *unit as f64;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    Some(format!("{value:.decimals$}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_digits() {
        assert_eq!(count(2_828_736), "2.83 million");
        assert_eq!(count(13_015_864_320), "13.0 billion");
        assert_eq!(bytes(134_000_000), "134 MB");
        assert_eq!(bytes(999), "999 bytes");
    }
}
