//! The known name that somebody probably meant, for messages about unknown ones.

/// The one of `known` that takes the fewest edits to get to from `given`, if that is few enough to be a slip.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = given.chars().count() / 3;
    known
        .into_iter()
        .map(|name| (edits(given, name), name))
        .filter(|(edits, _)| *edits <= slips.max(1))
        .min()
        .map(|(_, name)| name)
}

/// Letters to insert, remove or change between the two, without regard to case (Levenshtein's distance, row by
/// row).
fn edits(from: &str, to: &str) -> usize {
    let (from, to) = (from.to_lowercase(), to.to_lowercase());
    let first: Vec<usize> = (0..=to.chars().count()).collect();
    let last = from.chars().enumerate().fold(first, |above, (row, letter)| {
        let mut left = row.saturating_add(1);
        let cells =
            above.iter().zip(above.iter().skip(1)).zip(to.chars()).map(|((diagonal, over), other)| {
                let changed = diagonal.saturating_add(usize::from(letter != other));
                left = changed.min(over.saturating_add(1)).min(left.saturating_add(1));
                left
            });
        let cells: Vec<usize> = cells.collect();
        std::iter::once(row.saturating_add(1)).chain(cells).collect()
    });
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        let known = ["provisionWorkers", "deleteWorkers", "retryMax"];
        assert_eq!(nearest("provisionWorker", known), Some("provisionWorkers"));
        assert_eq!(nearest("provision_workers", known), Some("provisionWorkers"));
        assert_eq!(nearest("RetyrMax", known), Some("retryMax"));
    }

    #[test]
    fn what_resembles_nothing_finds_nothing() {
        assert_eq!(nearest("colour", ["provisionWorkers", "retryMax"]), None);
        assert_eq!(nearest("", ["provisionWorkers"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn edits_count_insertions_removals_and_changes() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("Äb", "äb"), 0);
    }
}
