//! The allocators, and Neap in each of its modes.

use crate::engine::campaign::Named;
use crate::peers::Ready;

/// The modes of Neap: the name of the contender, and the variable that chooses it.
const MODES: [(&str, Option<&str>); 3] = [
    ("neap", None),
    ("neap check", Some("NEAP_CHECK")),
    ("neap hardened", Some("NEAP_HARDEN")),
];

/// An allocator in one of its modes.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    /// What is preloaded, with the mode's variable.
    pub ready: Ready,
}

impl Contender {
    /// A peer; Neap in each of its modes.
    pub fn of(ready: Ready) -> Vec<Contender> {
        if ready.name != "neap" {
            let name = ready.name.to_string();
            return vec![Contender { name, ready }];
        }
        let in_mode = |(name, variable): (&str, Option<&'static str>)| Contender {
            name: name.to_string(),
            ready: match variable {
                Some(variable) => ready.with_setting(variable, "1".to_string()),
                None => ready.clone(),
            },
        };
        MODES.map(in_mode).into()
    }
}

impl Named for Contender {
    fn name(&self) -> String {
        self.name.clone()
    }
}
