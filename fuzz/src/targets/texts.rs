//! Texts of the kernel, of runtimes, of HTTP clients, and of the environment.

use crate::attach::{Whereabouts, kernel};
use crate::probe;
use crate::profile::Jit;
use crate::serve;
use neap_shared::control;
use std::ops::Range;

/// Texts of `/proc` and of runtimes. The first byte tells which.
pub fn texts(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    match kind % 5 {
        0 => jit(&text),
        1 => smaps(&text),
        2 => groups(&text),
        3 => assert!(Whereabouts::of(&text).labels(1, "a").len() <= 5),
        _ => {
            let _ = probe::bracketed(&text);
            let _ = neap_shared::areas::field(&text, "Rss:");
        }
    }
}

/// The map of a JIT compiler.
fn jit(text: &str) {
    let jit = Jit::parse(text);
    for address in [0, 0x1000, 0x2001, u64::MAX] {
        let _ = jit.name(address);
    }
}

/// `/proc/PID/smaps`.
fn smaps(text: &str) {
    let arenas = [
        0x1000..0x5000,
        0..u64::MAX,
        0x7f00_0000_0000..0x7f00_4000_0000,
    ];
    let half = |parts: &[Range<u64>]| parts.first().map(|part| [part.end - part.start, 0]);
    let view = kernel::parse(text, &arenas, half);
    assert!(view.arenas_rss <= view.process_rss && view.arenas_swap <= view.process_swap);
    let _ = view.foreign_rss();
}

/// `/proc/self/cgroup`, and after an empty line `/proc/self/mountinfo`.
fn groups(text: &str) {
    let (groups, mounts) = text.split_once("\n\n").unwrap_or((text, ""));
    let _ = probe::Controller::find(groups, mounts);
}

/// Variables of the environment, one a line.
pub fn options(bytes: &[u8]) {
    for entry in bytes.split(|&byte| byte == b'\n' || byte == 0) {
        let equals = entry.iter().position(|&byte| byte == b'=');
        let (name, text) = entry.split_at(equals.unwrap_or(entry.len()));
        let _ = control::nearest_variable(name).map(str::len);
        let text = text.strip_prefix(b"=").unwrap_or(text);
        if let Some(option) = control::find(name) {
            value(option, text);
        }
        // A value means the same whatever the order in which options are looked up.
        control::OPTIONS
            .iter()
            .for_each(|option| value(option, text));
    }
}

fn value(option: &control::Declaration, text: &[u8]) {
    use control::{Kind, Value};
    match (option.kind, control::parse(option.kind, text)) {
        (Kind::Bytes { min, max }, Ok(Value::Bytes(bytes))) => {
            assert!((min..=max).contains(&bytes))
        }
        (Kind::Time { min, max }, Ok(Value::Millis(ms))) => assert!((min..=max).contains(&ms)),
        (Kind::Interval { min, max }, Ok(Value::Millis(ms))) => {
            assert!((min..=max).contains(&ms) || (ms == 0 && text == b"all"))
        }
        (Kind::Choice(words), Ok(Value::Choice(word))) => assert!(words.contains(&word)),
        (Kind::Names(words), Ok(Value::Names(bits))) => assert!(bits < 1 << words.len()),
        (Kind::Path | Kind::Socket, Ok(Value::Path(path))) => assert!(!path.is_empty()),
        (_, Ok(value)) => panic!("{} has the value {value:?}", option.name),
        (_, Err(rejected)) => assert!(rejected.to_string().starts_with("expected ")),
    }
}

/// A request to `neap serve`.
pub fn http(bytes: &[u8]) {
    // A request may arrive in pieces: an incomplete one must not be taken for a whole one.
    let whole = serve::parsed(bytes);
    let half = serve::parsed(&bytes[..bytes.len() / 2]);
    if let (Ok(Some(half)), Ok(Some(whole))) = (&half, &whole) {
        assert_eq!(half, whole);
    }
    if let Ok(Some(request)) = whole {
        let _ = (
            serve::is_local(&request.host),
            serve::Asked::of(&request).is_ok(),
        );
    }
}
