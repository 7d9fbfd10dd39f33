//! Untrusted text and data as parts of a page, with all markup escaped.

use crate::failure::Failure;
use crate::statistics::secret;
use std::ffi::OsStr;

/// Prose with names in backticks, as HTML.
pub fn prose(text: &str) -> String {
    let mut escaped = text.replace('&', "&amp;");
    for (letter, entity) in [
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#39;"),
    ] {
        escaped = escaped.replace(letter, entity);
    }
    let parts = escaped.split('`').enumerate();
    let marked = parts.map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    marked.collect()
}

/// JSON for a `<script>`. It contains no `<`, so it cannot end the script or begin a comment.
pub fn json(value: &impl serde::Serialize) -> String {
    // Plain data with strings as keys always has a JSON form.
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    text.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A random number named in the page's policy, so that only the page's own script runs.
///
/// # Errors
///
/// The kernel provides no random numbers.
pub fn nonce() -> Result<String, Failure> {
    let halves = secret().and_then(|half| Ok((half, secret()?)));
    let (one, other) =
        halves.map_err(|error| failure!("the kernel gives no random numbers: {error}"))?;
    Ok(format!("{one:016x}{other:016x}"))
}

/// A word quoted for a shell.
pub fn quoted(word: &(impl AsRef<OsStr> + ?Sized)) -> String {
    let word = word.as_ref().to_string_lossy();
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_escaped_before_its_names_are_marked() {
        let text = prose("a `b<script>` & \"c\"");
        assert_eq!(text, "a <code>b&lt;script&gt;</code> &amp; &quot;c&quot;");
    }

    #[test]
    fn data_cannot_end_its_script() {
        let text = json(&"</script><!--\u{2028}");
        assert_eq!(text, r#""\u003c/script>\u003c!--\u2028""#);
    }

    #[test]
    fn a_command_can_be_copied_into_a_shell() {
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
        assert_eq!(quoted("--x=1"), "--x=1");
        assert_eq!(quoted(""), "''");
    }
}
