//! "Did you mean": the accepted word that is closest to what was written.

/// The candidate closest to `word`, if it is close enough to be meant: one slip in three characters, and at most three.
///
/// Case and the choice between `-` and `_` do not count. Of equally close candidates the first is taken.
pub(super) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word = fold(word);
    // Longer than any name: not a slip, and the comparison below takes time with the square of the length.
    if word.len() > 64 {
        return None;
    }
    let slips = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …?`, or nothing.
pub(super) fn did_you_mean<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(word, candidates).map(|candidate| format!("; did you mean {candidate}?")).unwrap_or_default()
}

fn fold(word: &str) -> Vec<char> {
    word.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
}

/// Characters to insert, delete, replace or swap with their neighbour to get from `a` to `b` (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    // Rows of the table for the prefixes of `a` that end two, one and zero characters before the current one.
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let keys = ["interface", "mode", "zero_copy"];
        assert_eq!(nearest("zero-copy", keys), Some("zero_copy"));
        assert_eq!(nearest("interfcae", keys), Some("interface"));
        assert_eq!(nearest("Mode", keys), Some("mode"));
        assert_eq!(nearest("mtu", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"m".repeat(100_000), keys), None);
    }

    #[test]
    fn distance_counts_a_swap_as_one() {
        let count = |a: &str, b: &str| distance(&fold(a), &fold(b));
        assert_eq!(count("ab", "ba"), 1);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
    }
}
