//! The order in which torch's CPU sort leaves equal values.
//!
//! `torch.sort` is not stable: it runs the introsort of the C++ standard library it is built with, which is
//! deterministic but leaves equal values in an order of its own. Where a limit falls between equal scores,
//! that order decides which of them stay. Everything else can use any sort; this one is not faster.

/// Ranges up to this length are left to one insertion sort at the end.
const SMALL: usize = 16;

/// The indices of `values` in ascending order of the values, equal ones in torch's order. The values must
/// hold no NaN.
///
/// Should a range resist being split (a pattern made for it), its equal values come in ascending order of
/// their places at that point; torch turns to a heap sort there.
pub(super) fn ascending_order(values: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    let value = |index: u32| values[index as usize];
    let splits = 2 * values.len().checked_ilog2().unwrap_or(0);
    split_until_small(&mut order, &value, splits);
    insertion_sort(&mut order, &value);
    order
}

/// Quicksort that stops at small ranges, right part first.
fn split_until_small(mut order: &mut [u32], value: &impl Fn(u32) -> f32, mut splits: u32) {
    while order.len() > SMALL {
        if splits == 0 {
            order.sort_by(|&a, &b| value(a).total_cmp(&value(b)));
            return;
        }
        splits -= 1;
        let cut = partition(order, value);
        let (left, right) = order.split_at_mut(cut);
        split_until_small(right, value, splits);
        order = left;
    }
}

/// Splits around the median of the second, the middle and the last value; the place of the cut. Equal values are
/// exchanged too, which is what undoes their order.
fn partition(order: &mut [u32], value: &impl Fn(u32) -> f32) -> usize {
    let (second, middle, last) = (1, order.len() / 2, order.len() - 1);
    let less = |a: usize, b: usize| value(order[a]) < value(order[b]);
    let median = if less(second, middle) {
        if less(middle, last) {
            middle
        } else if less(second, last) {
            last
        } else {
            second
        }
    } else if less(second, last) {
        second
    } else if less(middle, last) {
        last
    } else {
        middle
    };
    order.swap(0, median);
    let pivot = value(order[0]);

    // The median bounds both scans: neither leaves the slice.
    let (mut low, mut high) = (1, order.len());
    loop {
        while value(order[low]) < pivot {
            low += 1;
        }
        high -= 1;
        while pivot < value(order[high]) {
            high -= 1;
        }
        if low >= high {
            return low;
        }
        order.swap(low, high);
        low += 1;
    }
}

fn insertion_sort(order: &mut [u32], value: &impl Fn(u32) -> f32) {
    for index in 1..order.len() {
        let inserted = order[index];
        let mut place = index;
        while place > 0 && value(inserted) < value(order[place - 1]) {
            order[place] = order[place - 1];
            place -= 1;
        }
        order[place] = inserted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // torch.sort(torch.zeros(1, n))[1]
    #[test]
    fn equal_values_come_in_the_order_of_torch() {
        assert_eq!(ascending_order(&[0.0; 16]), (0..16).collect::<Vec<_>>());
        assert_eq!(ascending_order(&[0.0; 17]), [8, 16, 15, 14, 13, 12, 11, 10, 9, 0, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(
            ascending_order(&[0.0; 20]),
            [10, 19, 18, 17, 16, 15, 14, 13, 12, 11, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1]
        );
    }

    // torch.sort(torch.tensor([[(i * 37 % 11) / 2 for i in range(40)]]))[1]
    #[test]
    fn mixed_values_come_in_the_order_of_torch() {
        let values: Vec<f32> = (0..40_u16).map(|index| f32::from(index * 37 % 11) / 2.0).collect();
        assert_eq!(ascending_order(&values), MIXED);
    }

    const MIXED: [u32; 40] = [
        33, 22, 0, 11, 36, 3, 25, 14, 39, 6, 28, 17, 20, 31, 9, 1, 12, 34, 23, 15, 37, 4, 26, 7, 29, 18, 21,
        10, 32, 24, 13, 2, 35, 5, 27, 16, 38, 19, 30, 8,
    ];

    #[test]
    fn any_values_are_sorted() {
        for len in [0, 1, 2, 15, 16, 17, 100, 1000] {
            let values: Vec<f32> =
                (0..len).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as f32 - 99.0).collect();
            let order = ascending_order(&values);
            assert!(order.windows(2).all(|pair| values[pair[0] as usize] <= values[pair[1] as usize]));
            let mut seen = order;
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
    }
}
