//! The values of options.

use clap::builder::{OsStringValueParser, PossibleValuesParser, StringValueParser};
use clap::builder::{TypedValueParser, ValueParser};
use neap_shared::control::{self, Kind, Value};
use neap_shared::status_page::Guards;
use std::ffi::OsString;
use std::time::Duration;

/// The name of a value of `kind` in the help.
pub fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Choice(_) => "WORD",
        Kind::Names(_) => "NAMES",
        Kind::Bytes { .. } => "SIZE",
        Kind::Time { .. } | Kind::Interval { .. } => "TIME",
        Kind::Path => "FILE",
        Kind::Socket => "NAME",
    }
}

/// Accepts a value of `kind` and keeps its text, for the variable.
pub fn parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(OsString::from).into(),
        Kind::Path | Kind::Socket => OsStringValueParser::new().into(),
        Kind::Names(_) | Kind::Bytes { .. } | Kind::Time { .. } | Kind::Interval { .. } => {
            StringValueParser::new()
                .try_map(move |text| value(kind, &text).map(|_| OsString::from(&text)))
                .into()
        }
    }
}

/// Accepts a time from `least` to `most`, in ms.
pub fn time(least: u64, most: u64) -> ValueParser {
    let kind = Kind::Time {
        min: least,
        max: most,
    };
    StringValueParser::new()
        .try_map(move |text| value(kind, &text).map(Duration::from_millis))
        .into()
}

/// A value of `--sample`.
pub fn rate(word: &str) -> Result<u64, String> {
    let option = control::find(b"NEAP_SAMPLE").expect("the option is declared");
    value(option.kind, word)
}

/// A value of `neap guard --interval`.
pub fn guards(word: &str) -> Result<Guards, String> {
    let option = control::find(b"NEAP_GUARD").expect("the option is declared");
    match word {
        "off" => Ok(Guards::Off),
        word => match value(option.kind, word) {
            Ok(0) => Ok(Guards::All),
            Ok(ms) => Ok(Guards::Every(ms)),
            Err(why) => Err(why.replacen("all, or", "off, all, or", 1)),
        },
    }
}

/// A value of `--push`.
pub fn server(url: &str) -> Result<String, String> {
    let server = url.strip_prefix("http://").ok_or_else(|| match url {
        url if url.starts_with("https://") => {
            "neap does not speak TLS: push to an agent on this machine, such as Grafana Alloy, \
             which does"
        }
        _ => "expected http://HOST:PORT",
    })?;
    let uri = url.parse::<ureq::http::Uri>();
    match uri.is_ok_and(|uri| uri.query().is_none()) && !server.contains('#') {
        true => Ok(url.to_owned()),
        false => Err("expected http://HOST:PORT".to_owned()),
    }
}

/// A URL for messages: without a name and a password. These may have a slash or an @ by mistake.
pub fn without_credentials(url: &str) -> String {
    let schemes = ["http://", "https://"];
    let scheme = schemes.into_iter().find(|scheme| url.starts_with(scheme));
    match url.rsplit_once('@') {
        Some((_, server)) => scheme.unwrap_or_default().to_owned() + server,
        None => url.to_owned(),
    }
}

/// A number of bytes or of ms, or the bits of names. A time needs its unit, except 0.
fn value(kind: Kind, text: &str) -> Result<u64, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    match control::parse(kind, text.as_bytes()) {
        Ok(Value::Millis(1..)) if is_bare => {
            Err(format!("a time needs its unit: {text}ms or {text}s"))
        }
        Ok(Value::Bytes(number) | Value::Millis(number)) => Ok(number),
        Ok(Value::Names(bits)) => Ok(bits.into()),
        Ok(Value::Choice(_) | Value::Path(_)) => Err(format!("expected {kind}")),
        Err(rejected) => Err(rejected.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_take_the_suffixes_of_other_sizes() {
        assert_eq!(rate("65536"), Ok(64 << 10));
        assert_eq!(rate("64K"), rate("65536"));
        assert_eq!(rate("1g"), Ok(1 << 30));
        for wrong in ["", "0", "4095", "2G", "1T", "64KB"] {
            let said = rate(wrong).unwrap_err();
            assert!(said.contains("4K to 1G bytes"), "{wrong}: {said}");
        }
    }

    #[test]
    fn guards_are_off_all_or_a_time() {
        assert_eq!(guards("off"), Ok(Guards::Off));
        assert_eq!(guards("all"), Ok(Guards::All));
        assert_eq!(guards("2s"), Ok(Guards::Every(2000)));
        assert!(guards("20").unwrap_err().contains("20ms or 20s"));
        for wrong in ["", "0", "0ms", "2h", "never", "-1ms"] {
            let said = guards(wrong).unwrap_err();
            assert!(said.contains("off, all, or 1ms to 1h"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_time_needs_its_unit() {
        let kind = Kind::Time {
            min: 0,
            max: 60_000,
        };
        assert_eq!(value(kind, "250ms"), Ok(250));
        assert_eq!(value(kind, "0"), Ok(0));
        let said = value(kind, "5").unwrap_err();
        assert_eq!(said, "a time needs its unit: 5ms or 5s");
        for wrong in ["", "-1", "NaN", "inf", "1e300", "0.5s", "2m"] {
            let said = value(kind, wrong).unwrap_err();
            assert!(
                said.contains("0 to 1m (unit ms, s, m or h)"),
                "{wrong}: {said}"
            );
        }
    }

    #[test]
    fn credentials_are_not_for_messages() {
        for (url, expected) in [
            ("http://me:secret@a:4040", "http://a:4040"),
            ("http://me:sec/re@t@a/b", "http://a/b"),
            ("http://[::1]:4040", "http://[::1]:4040"),
            ("https://me:secret@a", "https://a"),
            ("me:secret@a", "a"),
            ("me:se://cret@a", "a"),
        ] {
            assert_eq!(without_credentials(url), expected);
        }
    }

    #[test]
    fn a_server_is_a_url_without_tls_and_query() {
        for url in ["http://a:4040", "http://u:p@[::1]:4040/base/", "http://a"] {
            assert_eq!(server(url), Ok(url.to_owned()));
        }
        for url in [
            "a:4040",
            "http://",
            "http://a/?b=c",
            "http://a#b",
            "http://a b",
            "ftp://a",
        ] {
            assert!(
                server(url).unwrap_err().contains("http://HOST:PORT"),
                "{url}"
            );
        }
        assert!(server("https://a").unwrap_err().contains("TLS"));
    }
}
