//! Patterns of keys: `*`, `?`, `[a-z]`, `[^a-z]`, `\x`.

/// Whether the whole text matches. At a mismatch, only the last `*` takes one more byte. So the
/// time is bounded by the product of the lengths, and no recursion is needed.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut rest, mut left) = (pattern, text);
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', after)) = rest.split_first() {
            star = Some((after, left));
            rest = after;
            continue;
        }
        match (left.split_first(), rest.is_empty()) {
            (None, true) => return true,
            (Some((&byte, tail)), false) if let Some(after) = one(rest, byte) => {
                (rest, left) = (after, tail);
            }
            _ => match star {
                Some((after, [_, from @ ..])) => {
                    star = Some((after, from));
                    (rest, left) = (after, from);
                }
                _ => return false,
            },
        }
    }
}

/// The rest of the pattern, if its first item matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (matched, rest) = match pattern {
        [b'?', rest @ ..] => (true, rest),
        [b'[', b'^', class @ ..] => {
            let (found, rest) = class_has(class, byte);
            (!found, rest)
        }
        [b'[', class @ ..] => class_has(class, byte),
        [b'\\', letter, rest @ ..] | [letter, rest @ ..] => (*letter == byte, rest),
        [] => (false, pattern),
    };
    matched.then_some(rest)
}

/// Whether a class contains the byte, and the text after its `]`.
fn class_has(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut found = false;
    loop {
        class = match class {
            [] => return (found, class),
            [b']', rest @ ..] => return (found, rest),
            [b'\\', letter, rest @ ..] => {
                found |= *letter == byte;
                rest
            }
            [first, b'-', last, rest @ ..] => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                rest
            }
            [letter, rest @ ..] => {
                found |= *letter == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xaxbx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "a*".repeat(2_000);
        let text = "a".repeat(4_000);
        assert!(matches(pattern.as_bytes(), text.as_bytes()));
        assert!(!matches(format!("{pattern}b").as_bytes(), text.as_bytes()));
    }
}
