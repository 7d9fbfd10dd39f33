//! The known word that a misspelt one most likely means.

/// The candidate nearest to `word` by edit distance, the first of several equally
/// near, if at most a third of the letters differ.
#[must_use]
pub fn nearest<'a>(word: &[u8], among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    among
        .filter_map(|candidate| Some((distance(word, candidate.as_bytes())?, candidate)))
        .filter(|&(edits, candidate)| edits <= candidate.len().max(3) / 3)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// No name that is compared is longer; longer ones are near to nothing.
pub(super) const LONGEST: usize = 32;

/// How many letters must be put in, taken out, changed or swapped with their
/// neighbour to make one word of the other, upper and lower case being equal.
/// `None` if a word is too long to be compared.
fn distance(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > LONGEST || b.len() > LONGEST {
        return None;
    }
    let mut before = [0; LONGEST + 1];
    let mut last: [usize; LONGEST + 1] = core::array::from_fn(|column| column);
    for row in 1..=a.len() {
        let mut next = [row; LONGEST + 1];
        for column in 1..=b.len() {
            let changed = usize::from(!a[row - 1].eq_ignore_ascii_case(&b[column - 1]));
            let mut edits = (last[column] + 1)
                .min(next[column - 1] + 1)
                .min(last[column - 1] + changed);
            if swapped(a, row, b, column) {
                edits = edits.min(before[column - 2] + 1);
            }
            next[column] = edits;
        }
        (before, last) = (last, next);
    }
    Some(last[b.len()])
}

/// Whether the two letters of `a` that end at `row` are those of `b` that end at
/// `column`, in the other order.
fn swapped(a: &[u8], row: usize, b: &[u8], column: usize) -> bool {
    row > 1
        && column > 1
        && a[row - 1].eq_ignore_ascii_case(&b[column - 2])
        && a[row - 2].eq_ignore_ascii_case(&b[column - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_edits() {
        let edits = |a: &str, b: &str| distance(a.as_bytes(), b.as_bytes());
        assert_eq!(edits("", ""), Some(0));
        assert_eq!(edits("", "abc"), Some(3));
        assert_eq!(edits("abc", ""), Some(3));
        assert_eq!(edits("decay", "DECAY"), Some(0));
        assert_eq!(edits("decya", "decay"), Some(1));
        assert_eq!(edits("kitten", "sitting"), Some(3));
        assert_eq!(
            edits(&"a".repeat(LONGEST), &"b".repeat(LONGEST)),
            Some(LONGEST)
        );
        assert_eq!(edits(&"a".repeat(LONGEST + 1), "a"), None);
    }
}
