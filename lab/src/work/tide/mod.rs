//! The worker of `neap-lab tide`: performs one action per line of its standard input, and reports
//! the result on standard output. Between two lines it is blocked in `read`.

mod blocks;
mod coroutines;
pub mod protocol;
pub mod sizes;
pub mod stacks;

use std::io::{BufRead as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::machine;
use crate::work::tide::protocol::{Action, Done, Heap};
use crate::work::tide::sizes::Sizes;
pub use coroutines::thousands;

use coroutines::Crowd;
use stacks::{Own, Shared, Source, StackKind};

/// Serves standard input to its end.
///
/// # Errors
/// If a line is no action, the heap has no memory, or there are no such stacks.
pub fn serve(kind: StackKind, sizes: &Sizes) -> anyhow::Result<()> {
    match kind {
        StackKind::Own => serve_on(&Own, sizes),
        StackKind::Neap => serve_on(&Shared::find()?, sizes),
    }
}

fn serve_on<S: Source>(source: &S, sizes: &Sizes) -> anyhow::Result<()> {
    let mut crowd = Crowd::new(source, sizes.stack_bytes);
    tell(&format!(
        "heap={}",
        crate::work::identity::own_heap()?.display()
    ))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let action = Action::find(&line).with_context(|| format!("no action {line:?}"))?;
        let answer = match action {
            Action::Tell => heap_now()?.line(),
            _ => carry_out(action, sizes, &mut crowd)?.line(),
        };
        tell(&answer)?;
    }
    // The process ends here with all of them, because ending each would take longer.
    std::mem::forget(crowd);
    Ok(())
}

fn tell(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn carry_out<S: Source>(
    action: Action,
    sizes: &Sizes,
    crowd: &mut Crowd<'_, S>,
) -> anyhow::Result<Done> {
    let (faults, start) = (machine::own_faults().0, Instant::now());
    let mut full_kib = 0;
    let mut note = String::new();
    match action {
        Action::Allocate => full_kib = blocks::come_and_go(sizes)?,
        Action::Create => note = crowd.create(sizes.coroutines),
        Action::Close => crowd.close(),
        Action::Tell => bail!("nothing to carry out"),
    }
    let elapsed = start.elapsed();
    Ok(Done {
        faults: machine::own_faults().0 - faults,
        ns: elapsed.as_nanos() as u64,
        full_kib,
        live_kib: crowd.live_bytes() / 1_024,
        coroutines: crowd.len() as u64,
        note,
    })
}

/// The heap's own figures; none unless it is Neap.
fn heap_now() -> anyhow::Result<Heap> {
    match stacks::is_neap() {
        true => Heap::parse_page(&stats_page()?),
        false => Ok(Heap::default()),
    }
}

/// The text that `malloc_stats` writes to standard error.
fn stats_page() -> anyhow::Result<String> {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::{AsRawFd as _, FromRawFd as _};

    unsafe extern "C" {
        safe fn malloc_stats();
    }
    let os = || std::io::Error::last_os_error();
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"stats".as_ptr(), libc::MFD_CLOEXEC) };
    anyhow::ensure!(fd >= 0, "memfd_create: {}", os());
    // SAFETY: the descriptor was just made, and only this file owns it.
    let mut page = unsafe { std::fs::File::from_raw_fd(fd) };
    // SAFETY: descriptors only; standard error is this worker's own, and comes back below.
    let saved = unsafe { libc::dup(2) };
    anyhow::ensure!(saved >= 0, "dup: {}", os());
    // SAFETY: as above.
    unsafe { libc::dup2(page.as_raw_fd(), 2) };
    malloc_stats();
    // SAFETY: as above; the copy is no longer in use.
    unsafe {
        libc::dup2(saved, 2);
        libc::close(saved);
    }
    let mut text = String::new();
    page.rewind()?;
    page.read_to_string(&mut text)?;
    Ok(text)
}
