//! `torch.sort` and `torch.topk`, with the order in which torch's CPU kernels leave equal values.
//!
//! Neither is stable. They use introsort, selection and heaps of libstdc++, which are deterministic but leave
//! equal values in an order of their own. Where a cutoff falls between equal scores, that order decides which
//! of them stay. These sorts are not faster than others, so `topk` uses them only where values are equal.

use rsgen_core::{Result, memory};

use crate::Isa;
use crate::torch_reduce::{BOUND_BLOCK, bound_of_largest};

/// Ranges up to this length are left to one insertion sort at the end.
const SMALL: usize = 16;
/// Values that are skipped together.
const SKIPPED: usize = 64;

/// The indices of those `values` that are above `floor`, in ascending order of the values. The order of equal
/// values is unspecified; the fastest sort where it does not matter. The values must hold no NaN.
pub fn ascending_above(values: &[f32], floor: Option<f32>) -> Vec<u32> {
    // The bits of a float32 as an integer that is ordered like it, then the index: one integer to sort by.
    let key = |value: f32| {
        let bits = value.to_bits();
        if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
    };
    let entries = (0_u32..).zip(values).filter(|(_, value)| floor.is_none_or(|floor| **value > floor));
    let mut keys: Vec<u64> =
        entries.map(|(index, &value)| u64::from(key(value)) << 32 | u64::from(index)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| key as u32).collect()
}

/// The indices of `values` in ascending order of the values, equal ones in torch's order. The values must
/// hold no NaN.
pub fn ascending_order(values: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    sort(&mut order, &|a, b| values[a as usize] < values[b as usize]);
    order
}

/// The indices of `values` in descending order of the values, equal ones in torch's order. The values must
/// hold no NaN.
pub fn descending_order(values: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    sort(&mut order, &|a, b| values[a as usize] > values[b as usize]);
    order
}

/// The first `k` of `torch.sort(values, descending=True)`, in any order; NaN counts as larger than any
/// number. Which of equal values are among them is unspecified where they are negative infinity.
///
/// # Errors
/// `Capacity` when there is no memory for the indices.
pub fn largest_set(values: &[f32], k: usize) -> Result<Vec<u32>> {
    let mut order = indices(values.len())?;
    if k == 0 || k >= values.len() {
        order.truncate(k);
        return Ok(order);
    }
    let descending = |&a: &u32, &b: &u32| {
        // All NaN count as positive.
        let key =
            |index: u32| if values[index as usize].is_nan() { f32::NAN } else { values[index as usize] };
        key(b).total_cmp(&key(a))
    };
    order.select_nth_unstable_by(k - 1, descending);
    let (first, rest) = order.split_at(k);
    let last = values[first[k - 1] as usize];
    let is_tied = last.is_nan() || rest.iter().any(|&index| values[index as usize] == last);
    if is_tied && last > f32::NEG_INFINITY && !values.iter().any(|value| value.is_nan()) {
        order.clear();
        order.extend(0..values.len() as u32);
        sort(&mut order, &|a, b| values[a as usize] > values[b as usize]);
    }
    order.truncate(k);
    Ok(order)
}

/// The indices of the `k` largest values, descending, as `torch.topk` gives them: including which of equal
/// values are among them, and their order. `k` is at most the number of values, which must hold no NaN.
///
/// # Errors
/// `Capacity` when there is no memory for the indices.
pub fn topk(isa: Isa, values: &[f32], k: usize) -> Result<Vec<u32>> {
    debug_assert!(k <= values.len());
    match distinct_topk(isa, values, k)? {
        Some(largest) => Ok(largest),
        None => torch_topk(values, k),
    }
}

/// The `k` largest of many values, if all values involved differ, so that the answer is unique.
fn distinct_topk(isa: Isa, values: &[f32], k: usize) -> Result<Option<Vec<u32>>> {
    let Some(bound) = bound_of_largest(isa, values, k) else { return Ok(None) };
    let mut largest = Vec::new();
    memory::reserve(&mut largest, 2 * k + SKIPPED, "indices")?;
    for (chunk, start) in values.chunks(SKIPPED).zip((0..).step_by(SKIPPED)) {
        if chunk.iter().filter(|value| **value >= bound).count() > 0 {
            if largest.len() > BOUND_BLOCK * k {
                return Ok(None); // Where values differ, those that reach the bound lie in `k` blocks.
            }
            if largest.len() + chunk.len() > largest.capacity() {
                let more = largest.len() + chunk.len();
                memory::reserve(&mut largest, more, "indices")?;
            }
            let reaching = (start..).zip(chunk).filter(|(_, value)| **value >= bound);
            largest.extend(reaching.map(|(index, _)| index));
        }
    }
    largest.sort_unstable_by(|&a, &b| values[b as usize].total_cmp(&values[a as usize]));
    let up_to_the_next = &largest[..largest.len().min(k + 1)];
    let distinct = up_to_the_next.windows(2).all(|pair| values[pair[0] as usize] > values[pair[1] as usize]);
    largest.truncate(k);
    Ok(distinct.then_some(largest))
}

/// torch's algorithm.
fn torch_topk(values: &[f32], k: usize) -> Result<Vec<u32>> {
    let before = |a: u32, b: u32| values[a as usize] > values[b as usize];
    if k == 0 {
        return Ok(Vec::new());
    }
    if is_of_few(values.len(), k) {
        return topk_of_few(values, k);
    }
    let mut order = indices(values.len())?;
    select(&mut order, k - 1, &before);
    order.truncate(k);
    sort(&mut order[..k - 1], &before);
    Ok(order)
}

/// Whether `torch.topk` finds `k` of `len` values with a heap: its own rule for which of two algorithms is faster.
pub fn is_of_few(len: usize, k: usize) -> bool {
    k > 0 && k * 64 <= len
}

/// [`topk`] with a heap, for the lengths of [`is_of_few`]. The heap begins with the first `k` values, and takes no
/// negative infinity after them: these may be left out, which changes no more than the indices.
///
/// # Errors
/// `Capacity` when there is no memory for the indices.
pub fn topk_of_few(values: &[f32], k: usize) -> Result<Vec<u32>> {
    debug_assert!((1..=values.len()).contains(&k));
    let before = |a: u32, b: u32| values[a as usize] > values[b as usize];
    let mut heap = indices(k)?;
    heapify(&mut heap, &before);
    let mut worst = values[heap[0] as usize];
    for (index, &value) in values.iter().enumerate().skip(k) {
        if value > worst {
            sift(&mut heap, 0, index as u32, &before);
            worst = values[heap[0] as usize];
        }
    }
    sort_heap(&mut heap, &before);
    Ok(heap)
}

fn indices(len: usize) -> Result<Vec<u32>> {
    let mut indices = Vec::new();
    memory::reserve(&mut indices, len, "indices")?;
    indices.extend(0..len as u32);
    Ok(indices)
}

/// libstdc++'s `sort`.
fn sort(order: &mut [u32], before: &impl Fn(u32, u32) -> bool) {
    split_until_small(order, before, splits(order.len()));
    insertion_sort(order, before);
}

/// How often a range is split before heapsort takes over.
fn splits(len: usize) -> u32 {
    2 * len.checked_ilog2().unwrap_or(0)
}

/// Quicksort that stops at small ranges, right part first.
fn split_until_small(mut order: &mut [u32], before: &impl Fn(u32, u32) -> bool, mut splits: u32) {
    while order.len() > SMALL {
        if splits == 0 {
            heapify(order, before);
            sort_heap(order, before);
            return;
        }
        splits -= 1;
        let cut = partition(order, before);
        let (left, right) = order.split_at_mut(cut);
        split_until_small(right, before, splits);
        order = left;
    }
}

/// libstdc++'s `nth_element`: moves the element of rank `nth` to index `nth`, and none that ranks before it
/// behind it.
fn select(mut order: &mut [u32], mut nth: usize, before: &impl Fn(u32, u32) -> bool) {
    let mut splits = splits(order.len());
    while order.len() > 3 {
        if splits == 0 {
            let (heap, rest) = order.split_at_mut(nth + 1);
            heapify(heap, before);
            for candidate in rest {
                if before(*candidate, heap[0]) {
                    let worst = heap[0];
                    sift(heap, 0, *candidate, before);
                    *candidate = worst;
                }
            }
            order.swap(0, nth);
            return;
        }
        splits -= 1;
        let cut = partition(order, before);
        if cut <= nth {
            order = &mut order[cut..];
            nth -= cut;
        } else {
            order = &mut order[..cut];
        }
    }
    insertion_sort(order, before);
}

/// Splits around the median of the second, the middle and the last value, and returns the index of the split.
/// Exchanges equal values too, which changes their order.
fn partition(order: &mut [u32], before: &impl Fn(u32, u32) -> bool) -> usize {
    let (second, middle, last) = (1, order.len() / 2, order.len() - 1);
    let less = |a: usize, b: usize| before(order[a], order[b]);
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
    let pivot = order[0];

    // The median bounds both scans: neither leaves the slice.
    let (mut low, mut high) = (1, order.len());
    loop {
        while before(order[low], pivot) {
            low += 1;
        }
        high -= 1;
        while before(pivot, order[high]) {
            high -= 1;
        }
        if low >= high {
            return low;
        }
        order.swap(low, high);
        low += 1;
    }
}

fn insertion_sort(order: &mut [u32], before: &impl Fn(u32, u32) -> bool) {
    for index in 1..order.len() {
        let inserted = order[index];
        let mut slot = index;
        while slot > 0 && before(inserted, order[slot - 1]) {
            order[slot] = order[slot - 1];
            slot -= 1;
        }
        order[slot] = inserted;
    }
}

/// Makes a heap whose root ranks last.
fn heapify(heap: &mut [u32], before: &impl Fn(u32, u32) -> bool) {
    for hole in (0..heap.len() / 2).rev() {
        sift(heap, hole, heap[hole], before);
    }
}

/// Inserts `entry` into the heap below `hole`, whose own entry is overwritten: sifts down to a leaf, then up.
fn sift(heap: &mut [u32], top: usize, entry: u32, before: &impl Fn(u32, u32) -> bool) {
    let mut hole = top;
    loop {
        let left = 2 * hole + 1;
        let child = match heap.get(left..) {
            Some([first, second, ..]) if !before(*second, *first) => left + 1,
            Some([_, ..]) => left,
            _ => break,
        };
        heap[hole] = heap[child];
        hole = child;
    }
    while hole > top {
        let parent = (hole - 1) / 2;
        if !before(heap[parent], entry) {
            break;
        }
        heap[hole] = heap[parent];
        hole = parent;
    }
    heap[hole] = entry;
}

fn sort_heap(heap: &mut [u32], before: &impl Fn(u32, u32) -> bool) {
    for end in (1..heap.len()).rev() {
        let entry = heap[end];
        heap[end] = heap[0];
        sift(&mut heap[..end], 0, entry, before);
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

    // torch.topk of torch 2.13
    #[test]
    fn the_largest_of_equal_values_are_those_of_torch() {
        assert_eq!(topk(Isa::fastest(), &[0.0; 20], 4).unwrap(), [12, 14, 13, 15]);
        assert_eq!(topk(Isa::fastest(), &[0.0; 300], 4).unwrap(), [1, 3, 0, 2]);
        assert_eq!(topk(Isa::fastest(), &[0.0; 3], 3).unwrap(), [0, 1, 2]);
        let values: Vec<f32> = (0..400_u16).map(|index| f32::from(index * 37 % 11) / 2.0).collect();
        assert_eq!(topk(Isa::fastest(), &values, 6).unwrap(), [41, 8, 52, 63, 30, 19]);
        assert_eq!(
            topk(Isa::fastest(), &values, 12).unwrap(),
            [63, 382, 195, 261, 349, 30, 129, 184, 305, 272, 173, 151]
        );
        assert_eq!(topk(Isa::fastest(), &values[..40], 8).unwrap(), [19, 8, 30, 5, 16, 38, 27, 13]);
    }

    #[test]
    fn the_largest_of_many_values_are_those_of_the_slow_way() {
        let hash = |index: u32| (index.wrapping_mul(2_654_435_761) >> 8) as f32;
        let rows: [Vec<f32>; 5] = [
            (0..20_000).map(hash).collect(),
            (0..20_000).map(|index| index as f32).collect(),
            (0..20_000).map(|index| -(index as f32)).collect(),
            (0..20_000).map(|index| hash(index) % 97.0).collect(),
            (0..20_000).map(|index| if index < 7 { 1.0 } else { f32::NEG_INFINITY }).collect(),
        ];
        for (index, row) in rows.iter().enumerate() {
            for k in [1, 2, 3, 16, 19] {
                assert_eq!(
                    topk(Isa::fastest(), row, k).unwrap(),
                    torch_topk(row, k).unwrap(),
                    "row {index}, {k}"
                );
                assert_eq!(
                    distinct_topk(Isa::fastest(), row, k).unwrap().is_some(),
                    index < 3,
                    "row {index}, {k}"
                );
            }
        }
    }

    #[test]
    fn impossible_values_behind_the_first_may_be_left_out() {
        let hash = |index: u32| (index.wrapping_mul(2_654_435_761) >> 8) as f32;
        for modulus in [3.0, 97.0, 1e9] {
            for few in [1, 5, 20, 60] {
                let value = |index: u32| {
                    if hash(index) as u32 % 1000 < few { hash(index) % modulus } else { f32::NEG_INFINITY }
                };
                let values: Vec<f32> = (0..20_000).map(value).collect();
                for k in [1, 6, 40] {
                    let kept: Vec<u32> = (0..20_000)
                        .filter(|&index| (index as usize) < k || values[index as usize] > f32::NEG_INFINITY)
                        .collect();
                    let compact: Vec<f32> = kept.iter().map(|&index| values[index as usize]).collect();
                    let found = topk_of_few(&compact, k).unwrap();
                    let found: Vec<u32> = found.into_iter().map(|place| kept[place as usize]).collect();
                    assert_eq!(found, topk(Isa::fastest(), &values, k).unwrap(), "{modulus} {few} {k}");
                }
            }
        }
    }

    #[test]
    fn the_set_of_the_largest_is_that_of_the_sort() {
        let hash = |index: u32| (index.wrapping_mul(2_654_435_761) >> 8) as f32;
        for (len, modulus) in [(5, 1e9), (100, 1e9), (100, 7.0), (3000, 97.0), (3000, 1.0)] {
            let values: Vec<f32> = (0..len).map(|index| hash(index) % modulus).collect();
            for k in [0, 1, 4, 40, 100] {
                let mut expected = descending_order(&values);
                expected.truncate(k);
                let mut found = largest_set(&values, k).unwrap();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{len} {modulus} {k}");
            }
        }
        let odd = [1.0, f32::NAN, 3.0, -f32::NAN, f32::INFINITY];
        let mut found = largest_set(&odd, 3).unwrap();
        found.sort_unstable();
        assert_eq!(found, [1, 3, 4]);
        assert_eq!(largest_set(&[f32::NEG_INFINITY; 50], 40).unwrap().len(), 40);
    }

    #[test]
    fn any_values_are_sorted() {
        for len in [0, 1, 2, 15, 16, 17, 100, 1000] {
            let values: Vec<f32> =
                (0..len).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as f32 - 99.0).collect();
            let order = ascending_order(&values);
            assert!(order.windows(2).all(|pair| values[pair[0] as usize] <= values[pair[1] as usize]));
            let value_of =
                |order: &[u32]| order.iter().map(|&index| values[index as usize]).collect::<Vec<_>>();
            assert_eq!(value_of(&ascending_above(&values, None)), value_of(&order));
            let above: Vec<f32> = value_of(&order).into_iter().filter(|value| *value > 1.0).collect();
            assert_eq!(value_of(&ascending_above(&values, Some(1.0))), above);
            let mut seen = order;
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
    }
}
