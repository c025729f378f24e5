//! Delta debugging (Zeller's `ddmin`).

/// Returns a part of `items` for which `fails` still returns true and of which no single item can be removed, or the
/// smallest part that `max_attempts` calls found. `fails` must return true for `items`.
pub fn shrink<T: Clone>(items: &[T], max_attempts: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (mut items, mut attempts) = (items.to_vec(), 0);
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let (mut start, mut is_smaller) = (0, false);
        while start < items.len() && attempts < max_attempts {
            let end = items.len().min(start.saturating_add(size));
            let rest = [&items[..start], &items[end..]].concat();
            attempts += 1;
            if fails(&rest) {
                (items, is_smaller) = (rest, true);
            } else {
                start = end;
            }
        }
        size = match size {
            1 if is_smaller && attempts < max_attempts => 1,
            _ => size / 2,
        };
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retains_exactly_the_items_that_fail_together() {
        let items: Vec<u32> = (0..100).collect();
        let shrunk = shrink(&items, usize::MAX, |items| items.contains(&17) && items.contains(&80));
        assert_eq!(shrunk, [17, 80]);
    }

    #[test]
    fn ends_after_the_maximum_number_of_attempts() {
        let mut attempts = 0;
        let shrunk = shrink(&[1, 2, 3, 4], 3, |_| {
            attempts += 1;
            false
        });
        assert_eq!((shrunk, attempts), (vec![1, 2, 3, 4], 3));
    }
}
