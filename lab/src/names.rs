//! Items that are chosen by their names.

use anyhow::bail;

/// The items whose names are in `names`, or all if there are none, in their own order. `what` is the
/// word for one of them.
///
/// # Errors
/// If a name is none of theirs.
pub fn choose<T: Copy>(
    what: &str,
    names: &[String],
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> anyhow::Result<Vec<T>> {
    let is_known = |name: &&String| all.iter().any(|item| name_of(*item) == **name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(|item| name_of(*item)).collect();
        bail!("no {what} {name:?}; there are {}", known.join(", "));
    }
    let is_chosen = |item: &T| names.is_empty() || names.iter().any(|n| n == name_of(*item));
    Ok(all.iter().copied().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_in_the_order_of_the_items_and_unknown_ones_are_refused() {
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            choose("letter", &names, &["a", "b", "c"], |item| item)
        };
        assert_eq!(choose(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(choose(&["c", "a"]).unwrap(), ["a", "c"]);
        let told = choose(&["a", "d"]).unwrap_err().to_string();
        assert_eq!(told, "no letter \"d\"; there are a, b, c");
    }
}
