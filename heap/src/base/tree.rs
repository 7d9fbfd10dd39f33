//! An ordered set of nodes that carry their own links: no allocation, no recursion.
//!
//! A treap: a search tree by key, and a heap by a priority that is a hash of the node's address.
//! Its shape depends only on its nodes, and its expected depth is logarithmic.

use super::sync::plain::{AtomicPtr, Ordering};
use core::ptr::{NonNull, null_mut};

/// A child of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Smaller keys.
    Left,
    /// Larger keys.
    Right,
}

/// A type whose values can be nodes of a [`Tree`].
///
/// # Safety
/// - `link` returns the same two words of this node every time, and only the tree writes them while
///   the node is in it.
/// - `key` does not change while the node is in a tree, and no two nodes of a tree have the same
///   key.
pub unsafe trait Node: Sized {
    /// The tree's order.
    type Key: Ord + Copy;
    /// This node's key.
    fn key(&self) -> Self::Key;
    /// This node's link to its child on that side. Meaningless while the node is in no tree.
    fn link(&self, side: Side) -> &AtomicPtr<Self>;
}

/// An ordered set of nodes. The lock that guards the tree guards the nodes' links.
#[derive(Debug)]
pub struct Tree<T: Node> {
    root: AtomicPtr<T>,
}

/// The node behind a link.
///
/// # Safety
/// - `at` is null or a node of a tree whose insertion promised that it stays valid.
unsafe fn node<'a, T>(at: *mut T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }
}

fn load<T>(link: &AtomicPtr<T>) -> *mut T {
    link.load(Ordering::Relaxed)
}

fn store<T>(link: &AtomicPtr<T>, at: *mut T) {
    link.store(at, Ordering::Relaxed);
}

/// A hash of the address (the finalizer of splitmix64). The hash is a bijection, so two nodes never
/// tie.
fn priority<T>(node: *const T) -> u64 {
    let mut hash = node as usize as u64;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl<T: Node> Tree<T> {
    /// An empty tree.
    pub(crate) const fn new() -> Self {
        let root = AtomicPtr::new(null_mut());
        Self { root }
    }

    /// Inserts a node.
    ///
    /// # Safety
    /// - The node is in no tree, and stays valid and in place until it is removed from this one.
    /// - No node of this tree has its key.
    pub unsafe fn insert(&mut self, new: NonNull<T>) {
        // SAFETY: the caller's promise.
        let inserted = unsafe { new.as_ref() };
        let (key, rank) = (inserted.key(), priority(new.as_ptr()));
        let mut link = &self.root;
        // SAFETY: links of a tree lead to its nodes.
        while let Some(above) = unsafe { node(load(link)) } {
            if priority(above) < rank {
                break;
            }
            link = above.link(if key < above.key() {
                Side::Left
            } else {
                Side::Right
            });
        }
        let mut rest = load(link);
        store(link, new.as_ptr());
        // Split the subtree that hung here by key into the new node's two children.
        let (mut low, mut high) = (inserted.link(Side::Left), inserted.link(Side::Right));
        // SAFETY: as above.
        while let Some(below) = unsafe { node(rest) } {
            if below.key() < key {
                store(low, rest);
                low = below.link(Side::Right);
                rest = load(low);
            } else {
                store(high, rest);
                high = below.link(Side::Left);
                rest = load(high);
            }
        }
        store(low, null_mut());
        store(high, null_mut());
    }

    /// Removes a node.
    ///
    /// # Safety
    /// - The node is in this tree, its key unchanged since it was put in.
    pub unsafe fn remove(&mut self, old: NonNull<T>) {
        // SAFETY: the caller's promise.
        let removed = unsafe { old.as_ref() };
        let mut link = self.link_to(removed);
        debug_assert_eq!(load(link), old.as_ptr(), "the node is in this tree");
        let (mut low, mut high) = (
            load(removed.link(Side::Left)),
            load(removed.link(Side::Right)),
        );
        // Merge the two subtrees into the node's place.
        loop {
            // SAFETY: links of a tree lead to its nodes.
            let (Some(left), Some(right)) = (unsafe { node(low) }, unsafe { node(high) }) else {
                store(link, if low.is_null() { high } else { low });
                break;
            };
            if priority(left) > priority(right) {
                store(link, low);
                link = left.link(Side::Right);
                low = load(link);
            } else {
                store(link, high);
                link = right.link(Side::Left);
                high = load(link);
            }
        }
    }

    /// The link that leads to `target`.
    fn link_to<'a>(&'a self, target: &T) -> &'a AtomicPtr<T> {
        let key = target.key();
        let mut link = &self.root;
        // SAFETY: links of a tree lead to its nodes.
        while let Some(here) = unsafe { node(load(link)) } {
            if core::ptr::eq(here, target) {
                break;
            }
            link = here.link(if key < here.key() {
                Side::Left
            } else {
                Side::Right
            });
        }
        link
    }

    /// The node with the smallest key.
    pub fn first(&self) -> Option<NonNull<T>> {
        self.first_where(|_| true)
    }

    /// The node with the smallest key that is at least `key`.
    pub fn at_least(&self, key: T::Key) -> Option<NonNull<T>> {
        self.first_where(|other| other >= key)
    }

    /// The node with the smallest key above `key`.
    pub fn above(&self, key: T::Key) -> Option<NonNull<T>> {
        self.first_where(|other| other > key)
    }

    /// The first node whose key passes. If a key passes, all larger ones must pass.
    fn first_where(&self, passes: impl Fn(T::Key) -> bool) -> Option<NonNull<T>> {
        let (mut link, mut best) = (&self.root, None);
        // SAFETY: links of a tree lead to its nodes.
        while let Some(here) = unsafe { node(load(link)) } {
            link = if passes(here.key()) {
                best = NonNull::new(load(link));
                here.link(Side::Left)
            } else {
                here.link(Side::Right)
            };
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    struct Number {
        key: u32,
        links: [AtomicPtr<Number>; 2],
    }

    // SAFETY: two words of the node itself; the key never changes; the tests insert no key twice.
    unsafe impl Node for Number {
        type Key = u32;
        fn key(&self) -> u32 {
            self.key
        }
        fn link(&self, side: Side) -> &AtomicPtr<Self> {
            &self.links[side as usize]
        }
    }

    #[allow(clippy::vec_box, reason = "nodes must stay in place")]
    fn numbers(count: u32) -> Vec<Box<Number>> {
        let number = |key| {
            Box::new(Number {
                key,
                links: [const { AtomicPtr::new(null_mut()) }; 2],
            })
        };
        (0..count).map(number).collect()
    }

    fn key_of(found: Option<NonNull<Number>>) -> Option<u32> {
        // SAFETY: the tests keep their nodes alive.
        found.map(|node| unsafe { node.as_ref() }.key)
    }

    /// Computes the depth and checks the order of keys and priorities.
    fn depth(link: &AtomicPtr<Number>, low: Option<u32>, high: Option<u32>, rank: u64) -> usize {
        // SAFETY: the tests keep their nodes alive.
        let Some(here) = (unsafe { node(load(link)) }) else {
            return 0;
        };
        assert!(low.is_none_or(|low| low < here.key) && high.is_none_or(|high| here.key < high));
        assert!(priority(here) < rank);
        let left = depth(here.link(Side::Left), low, Some(here.key), priority(here));
        let right = depth(here.link(Side::Right), Some(here.key), high, priority(here));
        1 + left.max(right)
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..64), 0..300)) {
            let nodes = numbers(64);
            let mut tree = Tree::new();
            let mut model = BTreeSet::new();
            for (insert, key) in steps {
                let node = NonNull::from(&*nodes[key as usize]);
                // SAFETY: the model says whether the node is in the tree; `nodes` outlives it.
                unsafe {
                    if insert && model.insert(key) {
                        tree.insert(node);
                    } else if !insert && model.remove(&key) {
                        tree.remove(node);
                    }
                }
                prop_assert_eq!(key_of(tree.first()), model.first().copied());
                prop_assert_eq!(key_of(tree.at_least(key)), model.range(key..).next().copied());
                prop_assert_eq!(key_of(tree.above(key)), model.range(key + 1..).next().copied());
                depth(&tree.root, None, None, u64::MAX);
            }
            let first = tree.first();
            // SAFETY: nodes of the tree, which outlive it.
            let next = |at: &NonNull<Number>| tree.above(unsafe { at.as_ref() }.key);
            prop_assert_eq!(core::iter::successors(first, next).count(), model.len());
        }
    }

    #[test]
    fn ascending_keys_stay_shallow() {
        let nodes = numbers(10_000);
        let mut tree = Tree::new();
        // SAFETY: every node once, and `nodes` outlives the tree.
        nodes
            .iter()
            .for_each(|node| unsafe { tree.insert(NonNull::from(&**node)) });
        assert!(depth(&tree.root, None, None, u64::MAX) < 50);
        // SAFETY: every node is in the tree.
        nodes
            .iter()
            .for_each(|node| unsafe { tree.remove(NonNull::from(&**node)) });
        assert!(tree.first().is_none());
    }
}
