//! Models of the protocol, explored by loom: every interleaving within the stated bounds.
//!
//! Bounds: two threads (three in one model, with two preemptions), five preemptions
//! (`PREEMPTIONS`), one or two slabs of one word (64 blocks of 1,024 bytes, or 128 blocks of 512 in
//! two words), a pool of slices that all depots share, the program's and those of metadata. Each
//! model checks at every step that no block has two holders, that no give-back is mistaken for a
//! double free, and that a claimed block is of the depot that it was claimed from, whose tag its
//! slice has. At the end it checks that no block is lost, that every slab with free blocks is in
//! its depot's set, and that an empty slab beyond the warm one went back to the pool.

mod purges;
mod refills;
mod retirements;
mod world;

use crate::slab::class::Class;
use crate::slab::depot_id::{DepotId, User};

const PREEMPTIONS: usize = 5;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(PREEMPTIONS, model);
}

fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// 64 blocks, one word.
fn kilobyte() -> DepotId {
    DepotId::blocks(Class::of_size(1024))
}

/// 128 blocks, two words.
fn half_kilobyte() -> DepotId {
    DepotId::blocks(Class::of_size(512))
}

/// 8 blocks, which are fresh at first.
fn two_pages() -> DepotId {
    DepotId::blocks(Class::of_size(8192))
}

/// The heap's depot of the same class.
fn metadata(id: DepotId) -> DepotId {
    DepotId::of_user(id.class, User::Heap)
}
