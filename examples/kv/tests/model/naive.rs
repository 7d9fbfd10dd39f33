//! The naive model of the store.

use std::collections::BTreeMap;

/// A value, or the null string, as RESP.
pub fn bulk(text: Option<&str>) -> String {
    match text {
        Some(text) => format!("${}\r\n{text}\r\n", text.len()),
        None => "$-1\r\n".into(),
    }
}

#[derive(Clone, Debug)]
pub struct SetOptions {
    pub condition: Option<&'static str>,
    pub expiry: Option<(&'static str, u64)>,
    pub get: bool,
}

/// The obvious implementation.
#[derive(Debug, Default)]
pub struct Model {
    pub entries: BTreeMap<String, (String, Option<u64>)>,
    pub now: u64,
}

impl Model {
    pub fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let now = self.now;
        self.entries
            .retain(|_, (_, deadline)| deadline.is_none_or(|time| time > now));
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|(value, _)| value.as_str())
    }

    pub fn put(&mut self, key: &str, value: &str, deadline: Option<u64>) {
        self.entries.insert(key.into(), (value.into(), deadline));
    }

    pub fn deadline(&self, key: &str) -> Option<u64> {
        self.entries.get(key).and_then(|entry| entry.1)
    }

    pub fn set(&mut self, key: &str, value: &str, options: &SetOptions) -> String {
        let old = self.get(key).map(String::from);
        let wanted = match options.condition {
            Some("NX") => old.is_none(),
            Some("XX") => old.is_some(),
            _ => true,
        };
        if wanted {
            let deadline = match options.expiry {
                Some(("KEEPTTL", _)) => self.deadline(key),
                Some(("EX", amount)) => Some(self.now + amount * 1_000),
                Some((_, amount)) => Some(self.now + amount),
                None => None,
            };
            self.put(key, value, deadline);
        }
        match (options.get, wanted) {
            (true, _) => bulk(old.as_deref()),
            (false, true) => "+OK\r\n".into(),
            (false, false) => bulk(None),
        }
    }

    pub fn add(&mut self, key: &str, amount: i64) -> String {
        // Like redis: only a number in canonical form, so not "00" or "+1".
        let text = self.get(key).unwrap_or("0");
        let old = text
            .parse::<i64>()
            .ok()
            .filter(|old| old.to_string() == text);
        let Some(old) = old else {
            return "-ERR value is not an integer or out of range\r\n".into();
        };
        let Some(sum) = old.checked_add(amount) else {
            return "-ERR increment or decrement would overflow\r\n".into();
        };
        let deadline = self.deadline(key);
        self.put(key, &sum.to_string(), deadline);
        format!(":{sum}\r\n")
    }

    pub fn expire(&mut self, key: &str, amount: i64) -> String {
        let Some(entry) = self.entries.get_mut(key) else {
            return ":0\r\n".into();
        };
        entry.1 = Some(self.now.saturating_add_signed(amount));
        self.pass(0);
        ":1\r\n".into()
    }

    pub fn pttl(&self, key: &str) -> String {
        match self.entries.get(key) {
            None => ":-2\r\n".into(),
            Some((_, None)) => ":-1\r\n".into(),
            Some((_, Some(time))) => format!(":{}\r\n", time - self.now),
        }
    }

    pub fn persist(&mut self, key: &str) -> String {
        let entry = self.entries.get_mut(key);
        let had = entry.and_then(|entry| entry.1.take()).is_some();
        format!(":{}\r\n", u8::from(had))
    }
}
