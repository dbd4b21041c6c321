//! Numbers that heads add to scores by the distance of tokens.

/// A number for each head and distance (T5: Raffel et al., arXiv:1910.10683).
#[derive(Debug, Clone, Copy)]
pub struct Distances<'a> {
    /// From `reach` places before the row to `reach` after it, `[num_heads, 2 * reach + 1]`; the first and the
    /// last number are those of places further away, too.
    pub numbers: &'a [f32],
    /// The last distance with a number of its own.
    pub reach: usize,
}

/// Where a row and the tokens that it sees are, as distances count.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The place of the row.
    pub row: usize,
    /// Those of the tokens; 0, 1, 2, … if `None`.
    pub tokens: Option<&'a [usize]>,
}

impl Distances<'_> {
    /// Adds the numbers of a head to the scores of the tokens from `first` on.
    #[inline(always)]
    pub(super) fn add(self, head: usize, places: Places<'_>, first: usize, scores: &mut [f32]) {
        let (reach, row, last) = (self.reach, places.row, 2 * self.reach);
        let numbers = &self.numbers[head * (last + 1)..][..=last];
        let index = |place: usize| (place + reach).saturating_sub(row).min(last);
        if let Some(tokens) = places.tokens {
            for (score, &place) in scores.iter_mut().zip(&tokens[first..]) {
                *score += numbers[index(place)];
            }
            return;
        }
        // Only the tokens within reach have numbers of their own.
        let before = row.saturating_sub(reach).saturating_sub(first).min(scores.len());
        let (before, rest) = scores.split_at_mut(before);
        let from = index(first + before.len());
        let near = (last + 1 - from).min(rest.len());
        let (near, after) = rest.split_at_mut(near);
        for (score, number) in near.iter_mut().zip(&numbers[from..]) {
            *score += number;
        }
        for (far, number) in [(before, numbers[0]), (after, numbers[last])] {
            for score in far {
                *score += number;
            }
        }
    }
}
