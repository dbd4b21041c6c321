//! Scores by a mask of bits, as grammars give it for all tokens at once.

/// Sets those of `scores` to -infinity whose bit is 0, or which have none: 32 bits a word, the lowest first.
pub fn keep_masked(scores: &mut [f32], mask: &[u32]) {
    let bits = mask.iter().copied().chain(std::iter::repeat(0));
    for (scores, bits) in scores.chunks_mut(32).zip(bits) {
        match bits {
            0 => scores.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            _ => scores.iter_mut().enumerate().for_each(|(bit, score)| {
                if bits >> bit & 1 == 0 {
                    *score = f32::NEG_INFINITY;
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_with_a_bit_stay_and_all_others_go() {
        let mask = [u32::MAX, 0, 0b101 | 1 << 31];
        let mut scores = vec![0.5; 100];
        keep_masked(&mut scores, &mask);
        for (index, score) in scores.into_iter().enumerate() {
            let is_kept = mask.get(index / 32).is_some_and(|word| word >> (index % 32) & 1 == 1);
            assert_eq!(score, if is_kept { 0.5 } else { f32::NEG_INFINITY }, "{index}");
        }
    }
}
