//! Items that are chosen by their names.

use anyhow::bail;

/// An enumeration whose items have names, for the command line, the records and the lists.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident { $($(#[$doc:meta])* $item:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $vis enum $type { $($(#[$doc])* #[serde(rename = $name)] $item,)+ }

        #[allow(dead_code, reason = "not every enumeration needs all of it")]
        impl $type {
            /// All, in order.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$item),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $($type::$item => $name),+ }
            }

            /// The one with that name.
            pub fn find(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|item| item.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.name())
            }
        }

    };
}
pub(crate) use named;

/// The items whose names are in `names`, or all if there are none, in their own order. `what` is
/// the word for one of them.
///
/// # Errors
/// If a name is none of theirs.
pub fn choose<T>(
    what: &str,
    names: &[String],
    mut all: Vec<T>,
    name_of: impl Fn(&T) -> &str,
) -> anyhow::Result<Vec<T>> {
    let is_known = |name: &&String| all.iter().any(|item| name_of(item) == **name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(name_of).collect();
        bail!("no {what} {name:?}; there are {}", known.join(", "));
    }
    all.retain(|item| names.is_empty() || names.iter().any(|name| name == name_of(item)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_in_the_order_of_the_items_and_unknown_ones_are_refused() {
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            choose("letter", &names, vec!["a", "b", "c"], |item| item)
        };
        assert_eq!(choose(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(choose(&["c", "a"]).unwrap(), ["a", "c"]);
        let told = choose(&["a", "d"]).unwrap_err().to_string();
        assert_eq!(told, "no letter \"d\"; there are a, b, c");
    }
}
