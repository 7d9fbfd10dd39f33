//! Carries out the shapes of the workloads.

use super::outcome::Outcome;
use super::{churn, grow, live, sharing, single};
use crate::workloads::Shape;

/// Carries out about `ops` operations of `shape` in this process.
///
/// # Errors
/// If the shape is another project's program, or the process cannot read its own resident size.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn carry_out(shape: Shape, ops: u64) -> anyhow::Result<Outcome> {
    match shape {
        Shape::Pair { size } => Ok(single::pair(size, ops)),
        Shape::Batch { size, count, order } => Ok(single::batch(size, count, order, ops)),
        Shape::List { size, length } => Ok(single::list(size, length, ops)),
        Shape::Churn { live, threads } => Ok(churn::churn(live, threads, ops)),
        Shape::Server {
            live,
            threads,
            life,
        } => Ok(churn::server(live, threads, life, ops)),
        Shape::Handoff { size } => Ok(sharing::handoff(size, ops)),
        Shape::FalseSharing(sharing) => Ok(sharing::false_sharing(sharing, ops)),
        Shape::Grow { limit, growth } => Ok(grow::grow(limit, growth, ops)),
        Shape::Live { size } => live::live(size, ops),
        Shape::Redis | Shape::PythonJson => anyhow::bail!("{shape:?} is run by the harness"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::heap;
    use super::*;
    use crate::workloads;
    use std::time::Duration;

    #[test]
    fn every_shape_of_ours_runs_and_counts_its_operations() {
        for workload in workloads::ALL.iter().filter(|w| w.is_ours()) {
            let outcome = carry_out(workload.shape, workload.quick).unwrap();
            let ratio = outcome.ops as f64 / workload.quick as f64;
            assert!(
                (0.9..=1.1).contains(&ratio),
                "{}: {outcome:?}",
                workload.name
            );
            assert!(outcome.elapsed > Duration::ZERO, "{}", workload.name);
        }
    }

    #[test]
    fn programs_of_others_are_refused() {
        assert!(carry_out(Shape::Redis, 1).is_err());
    }

    #[test]
    #[should_panic(expected = "overwritten")]
    fn an_overwritten_block_is_noticed() {
        let block = heap::Block::take(64, 1);
        // SAFETY: the block is live and has 64 bytes.
        unsafe { block.start().add(63).write(0xff) };
        // SAFETY: the block was taken above and not given.
        unsafe { block.give(1) };
    }
}
