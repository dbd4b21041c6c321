//! What steps cost: what a search may know of the machine and of the requests beside it.

/// The numbers of rows that are told apart; what lies between two counts as the larger one.
const SIZES: [usize; 32] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128,
    160, 192, 224, 256,
];

/// The weight of a new measurement in an average, if it is longer and if it is shorter. Other programs make
/// passes longer than they are, nothing makes them shorter.
const LONGER: f64 = 0.25;
const SHORTER: f64 = 0.5;

/// A measurement counts as at most this many times the average.
const OUTLIER: f64 = 3.0;

/// Before more is measured, this many further rows are taken to cost as much as all before them.
const DOUBLING: f64 = 8.0;

/// The measured cost of a step. Results never depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepCost {
    /// The seconds of all passes that were computed while the rows waited, with their own, and of the search
    /// since the last pass. The time in which a caller reads does not count.
    pub waited: f64,
    /// The number of sequences in the pass of the last rows, of all requests.
    pub sequences: usize,
    /// How long passes of the model that generates take.
    pub seconds: PassSeconds,
}

/// The seconds of a pass by its number of rows, as measured; prompts do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PassSeconds {
    /// By the index of [`SIZES`]; 0 where nothing is measured.
    seconds: [f32; SIZES.len()],
}

impl PassSeconds {
    /// Takes note of a pass.
    pub fn add(&mut self, rows: usize, seconds: f64) {
        let average = &mut self.seconds[size(rows)];
        *average = blend(f64::from(*average), seconds) as f32;
    }

    /// Makes the times monotonic in the number of rows: single measurements may be stale or outliers.
    #[must_use]
    pub fn rising(mut self) -> Self {
        let mut least = f32::INFINITY;
        for seconds in self.seconds.iter_mut().rev().filter(|seconds| **seconds > 0.0) {
            least = least.min(*seconds);
            *seconds = least;
        }
        self
    }

    /// The seconds of a pass of so many rows, estimated from the nearest sizes that are measured; `None` when
    /// none is.
    pub fn of(&self, rows: usize) -> Option<f64> {
        let index = size(rows);
        let measured = |index: usize| (self.seconds[index] > 0.0).then_some(index);
        let point = |index: usize| (SIZES[index] as f64, f64::from(self.seconds[index]));
        let mut below = (0..=index).rev().filter_map(measured);
        let Some(nearest) = below.next() else {
            return (index..SIZES.len()).find_map(measured).map(|above| point(above).1);
        };
        let (size, seconds) = point(nearest);
        let further = rows.max(SIZES[index]) as f64 - size;
        let per_row = if let Some(above) = (index + 1..SIZES.len()).find_map(measured) {
            let (above, more) = point(above);
            (more - seconds) / (above - size)
        } else {
            let before = below.next().map(point);
            let measured = before.map_or(0.0, |(before, less)| (seconds - less) / (size - before));
            measured.max(seconds / size / DOUBLING)
        };
        Some(seconds + further * per_row)
    }
}

/// An average with a new measurement; 0 is none.
pub(crate) fn blend(average: f64, new: f64) -> f64 {
    let difference = new.min(average * OUTLIER) - average;
    match average {
        0.0 => new,
        _ if difference < 0.0 => average + SHORTER * difference,
        _ => average + LONGER * difference,
    }
}

/// The index of the smallest size of at least `rows`.
fn size(rows: usize) -> usize {
    SIZES.partition_point(|&size| size < rows).min(SIZES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(passes: &[(usize, f64)]) -> PassSeconds {
        let mut seconds = PassSeconds::default();
        for &(rows, time) in passes {
            seconds.add(rows, time);
        }
        seconds
    }

    #[test]
    fn what_lies_between_two_measurements_is_interpolated() {
        assert_eq!(PassSeconds::default().of(1), None);
        let seconds = measured(&[(2, 1.0), (6, 3.0)]);
        let of = |rows| seconds.of(rows).unwrap();
        assert_eq!([of(1), of(2), of(4), of(6)], [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(of(8), 4.0, "as steep as before");
        assert_eq!(of(512), 256.0, "beyond the table");
    }

    #[test]
    fn the_first_guess_is_that_eight_times_the_rows_cost_twice_as_much() {
        assert_eq!(measured(&[(1, 1.0)]).of(9), Some(2.0));
        assert_eq!(measured(&[(16, 1.0)]).of(80), Some(1.5));
        assert_eq!(measured(&[(1, 1.0), (2, 1.0)]).of(10), Some(1.5), "however flat it begins");
    }

    #[test]
    fn fewer_rows_never_take_longer() {
        let seconds = measured(&[(1, 2.0), (2, 5.0), (4, 3.0), (8, 4.0)]).rising();
        assert_eq!([1, 2, 3, 4, 6, 8].map(|rows| seconds.of(rows).unwrap()), [2.0, 3.0, 3.0, 3.0, 3.5, 4.0]);
        assert_eq!(PassSeconds::default().rising(), PassSeconds::default());
    }

    #[test]
    fn an_average_follows_and_a_hiccup_hardly_moves_it() {
        let mut seconds = measured(&[(1, 1.0), (1, 100.0)]);
        assert_eq!(seconds.of(1), Some(1.5));
        for _ in 0..40 {
            seconds.add(1, 3.0);
        }
        assert!((seconds.of(1).unwrap() - 3.0).abs() < 1e-3);
    }
}
