//! Memory that a runtime keeps out of Neap's figures, and how to bring it in.

use crate::attach::kernel::KernelView;
use crate::attach::{Process, StatusPage};

/// CPython's own allocator.
pub const PYTHON: &str = "CPython keeps objects of up to 512 bytes to itself, in arenas from mmap, \
                          so they are not in these figures; run it with PYTHONMALLOC=malloc";

/// [`PYTHON`], for a column.
pub const SHORT: &str = "resident, elsewhere; Python: set PYTHONMALLOC=malloc";

/// The hint for a process most of whose resident memory is not in the heap.
pub fn of_status_page(status_page: &StatusPage, kernel: KernelView) -> Option<&'static str> {
    let mostly_foreign = kernel.foreign_rss() > kernel.process_rss / 2;
    let process = status_page.process().filter(|_| mostly_foreign)?;
    of_process(process)
}

fn of_process(process: &Process) -> Option<&'static str> {
    let is_python = [Some(process.name()), process.program()]
        .iter()
        .flatten()
        .any(|name| name.starts_with("python"));
    let environment = process.text("environ").ok().filter(|_| is_python)?;
    (!calls_malloc(&environment)).then_some(PYTHON)
}

/// Whether an environment has CPython allocate every object with malloc.
fn calls_malloc(environment: &str) -> bool {
    let value = environment
        .split('\0')
        .find_map(|variable| variable.strip_prefix("PYTHONMALLOC="));
    matches!(value, Some("malloc" | "malloc_debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_calls_malloc_only_if_told_to() {
        for (environment, is_told) in [
            ("", false),
            ("PYTHONMALLOC=malloc", true),
            ("A=B\0PYTHONMALLOC=malloc_debug\0C=D\0", true),
            ("PYTHONMALLOC=debug\0", false),
            ("PYTHONMALLOC=\0", false),
            ("MYPYTHONMALLOC=malloc\0", false),
        ] {
            assert_eq!(calls_malloc(environment), is_told, "{environment:?}");
        }
    }
}
