//! Untrusted text and data as parts of a page, with all markup escaped.

use crate::failure::Failure;
use crate::statistics::secret;
use std::fmt::{self, Write};

/// Prose with names in backticks, as HTML.
pub struct Prose<'a>(pub &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.split('`').enumerate() {
            match index % 2 {
                0 => escaped(out, part)?,
                _ => {
                    out.write_str("<code>")?;
                    escaped(out, part)?;
                    out.write_str("</code>")?;
                }
            }
        }
        Ok(())
    }
}

fn escaped(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for letter in text.chars() {
        match letter {
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            '&' => out.write_str("&amp;")?,
            '"' => out.write_str("&quot;")?,
            '\'' => out.write_str("&#39;")?,
            _ => out.write_char(letter)?,
        }
    }
    Ok(())
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
    let (one, other) = halves
        .map_err(|error| Failure::own(format!("the kernel gives no random numbers: {error}")))?;
    Ok(format!("{one:016x}{other:016x}"))
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_escaped_before_its_names_are_marked() {
        let text = Prose("a `b<script>` & \"c\"").to_string();
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
