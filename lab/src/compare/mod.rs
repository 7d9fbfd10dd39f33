//! The user's own program under the C library, Neap and every other allocator of this machine, in
//! interleaved rounds: is Neap worth it?
//!
//! | file | contents |
//! |---|---|
//! | `run` | one run, from its start to its end |
//! | `views` | the verdict, the table and the page |

mod run;
mod views;

use std::fs::OpenOptions;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::cases::allocators::{GLIBC, NEAP};
use crate::cases::{picture, tree};
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, Kept, PLAIN, available_peers, write};
use crate::engine::settings::{self, Settings};
use crate::peers::locate::Ready;
use run::{Program, is_asked_to_end, once};

/// The comparison.
pub const EXPERIMENT: Experiment = Experiment {
    name: "compare",
    about: "Run a program of yours under every allocator of this machine (neap compare)",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::rounds().default_value("5"),
            settings::seconds(),
            settings::text("load", "COMMAND").help("What to run beside it once it waits"),
            settings::number("rest", "SECONDS", (0, 3_600)).default_value("5"),
            settings::path("html", "FILE").help("Also write a page with the picture"),
            settings::switch("quiet", "Show no progress"),
            settings::seed(),
            clap::Arg::new(PROGRAM)
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true),
        ]
    },
    kept: Kept::Never,
    run: carry_out,
    tables: |record, _| views::text(record),
    picture: |record, _| Some(picture(record, 1, SIZE)),
    derived: |record, _| views::derived(record),
    ..PLAIN
};

const PROGRAM: &str = "PROGRAM";
/// The picture's size.
const SIZE: (f64, f64) = (900.0, 360.0);

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let program = Program {
        words: settings.names(PROGRAM),
        load: Some(settings.text("load")).filter(|load| !load.is_empty()),
        rest: Duration::from_secs(settings.number("rest")),
    };
    let page = settings.path("html");
    // Before the work instead of after it.
    if let Some(page) = &page {
        let file = OpenOptions::new().append(true).create(true).open(page);
        file.with_context(|| format!("cannot write {}", page.display()))?;
    }
    let mut allocators = available_peers(settings)?;
    tree::adopt_orphans();
    run::heed_signals();
    campaign.progress.phase("a first run, which does not count");
    let own = allocators.iter().find(|allocator| allocator.name == GLIBC);
    let first = once(&program, own.context("glibc is not here")?)?;
    ensure!(!is_asked_to_end(), "interrupted");
    if let Some(stranger) = &first.stranger {
        bail!(
            "cannot compare: under glibc, {stranger}: the program needs this machine's C library"
        );
    }
    if let Some(objection) = &first.objection {
        campaign.leave_out(format!(
            "glibc's malloc: {objection}, so the row glibc shows that"
        ));
    }
    if first.is_python {
        let rows: Vec<Ready> = allocators.iter().filter_map(without_pymalloc).collect();
        allocators.extend(rows);
    }
    campaign.record.head = vec![("program".into(), program.words.join(" "))];
    let (name, rounds) = (program.name(), settings.number("rounds") as u32);
    campaign.rounds(rounds, (&[name.as_str()], &allocators), |_, allocator| {
        once(&program, allocator)?.judged(&first)
    });
    ensure!(!is_asked_to_end(), "interrupted");
    campaign.record.push(&name, GLIBC, 0, first.places());
    if let Some(page) = page {
        let picture = picture(&campaign.record, 1, SIZE);
        write(&page, &views::html(&campaign.record, &picture))?;
        eprintln!("the page is {}", page.display());
    }
    Ok(Ended::Measured)
}

/// The C library and Neap, which then also serve Python's small objects.
fn without_pymalloc(allocator: &Ready) -> Option<Ready> {
    let name = match allocator.name {
        GLIBC => "glibc without pymalloc",
        NEAP => "neap without pymalloc",
        _ => return None,
    };
    let row = allocator.with_setting("PYTHONMALLOC", "malloc".into());
    Some(Ready { name, ..row })
}
