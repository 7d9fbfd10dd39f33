//! Every way over every size, within a time budget.

use std::io;
use std::time::{Duration, Instant};

use super::block::Block;
use super::measure::{Price, Priced, Terms, measure};
use super::pagemap::{Pagemap, open_and_close};
use super::ways::{self, Act, CALLS, Call, SIZES, Size, WAYS, Way};
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::figure::Figure;
use crate::engine::record::Record;
use crate::engine::settings::{JSON, QUICK, RECORDS, SECONDS, Setting, Settings};
use crate::engine::table::{duration, section};
use crate::machine;
use crate::work::pagemap::page_size;

/// The cost of detecting zeroed memory, and of zeroing it.
pub const EXPERIMENT: Experiment = Experiment {
    name: "prices",
    about: "What it costs on this machine to detect and to make zeroed memory",
    settings: &[
        Setting::names("only", "Only these sizes (64K 128K 256K 1M 10M 100M 1000M)"),
        Setting::number("milliseconds", "NUMBER", (0, 1 << 32))
            .default("100")
            .about("Time per price; slow ones take longer"),
        SECONDS
            .default("20")
            .about("Begin no price after this many seconds"),
        QUICK,
        JSON,
        RECORDS,
    ],
    run: carry_out,
    tables: |record, _| tables(record),
    ..PLAIN
};

/// The largest size of a quick run.
const LARGEST_QUICK: usize = 1 << 20;

/// In place of a size, for the calls without one.
const NO_SIZE: &str = "any size";
const MEDIAN: &str = "median";
const LEAST: &str = "least";
/// Why there is no price.
const ABSENT: &str = "absent";

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let (only, quick) = (settings.names("only"), settings.is_quick());
    let mut sizes = ways::sizes(&only)?;
    sizes.retain(|size| !quick || !only.is_empty() || size.bytes <= LARGEST_QUICK);
    let milliseconds = if quick {
        1
    } else {
        settings.number("milliseconds")
    };
    let options = [
        ("milliseconds a price", milliseconds.to_string()),
        ("seconds at most", settings.number("seconds").to_string()),
    ];
    campaign.head(&options, &[]);
    let each = Duration::from_millis(milliseconds);
    measure_all(
        campaign,
        &sizes,
        Terms {
            each,
            deadline: Instant::now() + settings.budget(),
        },
    );
    Ok(Ended::Measured)
}

fn measure_all(campaign: &mut Campaign, sizes: &[Size], terms: Terms) {
    campaign
        .progress
        .expect((CALLS.len() + sizes.len() * WAYS.len()) as u64);
    let map = Pagemap::open();
    for call in CALLS {
        let map = map.as_ref();
        let price = in_time(&terms, || measure(&terms, &mut Asked { call, map }));
        campaign.note((call.name(), NO_SIZE, 0), Ok(figures(None, price)));
    }
    for &size in sizes {
        each_way(campaign, &terms, size, &map);
    }
}

/// All ways over a block, ordered by the state that they need.
fn each_way(campaign: &mut Campaign, terms: &Terms, size: Size, map: &io::Result<Pagemap>) {
    campaign.progress.phase(size.name);
    let mut ways = WAYS;
    ways.sort_by_key(|way| (way.holding, !way.repeats()));
    let mut block = room(size).and_then(|()| Block::new(size.bytes));
    for way in ways {
        let price = in_time(terms, || {
            let block = block.as_mut().map_err(|error| again(error))?;
            let map = map.as_ref();
            measure(terms, &mut Case { way, block, map })
        });
        if let Some(told) = price
            .as_ref()
            .ok()
            .and_then(|price| contradiction(way, size, price))
        {
            campaign.fail(told);
        }
        campaign.note((&way.name(), size.name, 0), Ok(figures(Some(size), price)));
    }
}

fn in_time(terms: &Terms, price: impl FnOnce() -> io::Result<Price>) -> Result<Price, String> {
    match Instant::now() < terms.deadline {
        true => price().map_err(|error| reason(&error)),
        false => Err("time is up".into()),
    }
}

/// A price, or a short reason why there is none.
fn figures(size: Option<Size>, price: Result<Price, String>) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(size.map(|size| Figure::count("bytes", size.bytes as u64)));
    match price {
        Ok(price) => {
            figures.extend([
                Figure::count("readings", price.readings as u64),
                Figure::count("times", u64::from(price.times)),
                Figure::nanoseconds(MEDIAN, price.ns_median),
                Figure::nanoseconds(LEAST, price.ns_least),
            ]);
            figures.extend(price.pages.map(|pages| Figure::count("pages", pages)));
        }
        Err(reason) => figures.push(Figure::text(ABSENT, reason)),
    }
    figures
}

/// Every table.
fn tables(record: &Record) -> String {
    let (calls, ways) = (CALLS.map(Call::name), WAYS.map(Way::name));
    let has = |size: &&str| record.rows.iter().any(|row| row.peer == **size);
    let sizes: Vec<&str> = SIZES.iter().map(|size| size.name).filter(has).collect();
    let cell = |case: &str, size: &str, figure: &str| {
        let price = record.median(case, size, figure).map(duration);
        price.or_else(|| record.text(case, size, ABSENT).map(str::to_string))
    };
    let of_sizes = |title: &str, figure: &str| {
        section(title, "way; populated", (&ways, &sizes), |way, size| {
            cell(way, size, figure)
        })
    };
    let of_calls = section(
        "Once, whatever the size",
        "call",
        (&calls, &[MEDIAN, LEAST]),
        |call, figure| cell(call, NO_SIZE, figure),
    );
    let median = of_sizes("The median reading", MEDIAN);
    of_calls + &median + &of_sizes("The least reading", LEAST)
}

/// An error if the machine has too little free memory for a size.
fn room(size: Size) -> io::Result<()> {
    let wanted = size.bytes as u64 + size.bytes as u64 / 4;
    match machine::available_bytes() {
        Ok(available) if available < wanted => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Ok(()),
    }
}

/// Why a way is not available, in a few words for a cell.
fn reason(error: &io::Error) -> String {
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::ENOTTY), _) => "needs Linux 6.7".into(),
        (_, io::ErrorKind::NotFound) => "no /proc".into(),
        (_, io::ErrorKind::OutOfMemory) => "no memory".into(),
        (_, io::ErrorKind::Unsupported) => "n/a".into(),
        _ => error.to_string(),
    }
}

/// A copy of an error, which has no `clone`.
fn again(error: &io::Error) -> io::Error {
    let number = error.raw_os_error().map(io::Error::from_raw_os_error);
    number.unwrap_or_else(|| error.kind().into())
}

/// A call and its subject.
struct Asked<'a> {
    call: Call,
    map: Result<&'a Pagemap, &'a io::Error>,
}

impl Priced for Asked<'_> {
    fn ready(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn act(&mut self) -> io::Result<Option<u64>> {
        match self.call {
            Call::ParentId => {
                // SAFETY: the call has no precondition.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            Call::Status => self.map.map_err(again)?.status()?,
            Call::OpenAndClose => open_and_close()?,
        }
        Ok(None)
    }

    fn count(&mut self) -> io::Result<Option<u64>> {
        self.act()
    }

    fn repeats(&self) -> bool {
        true
    }
}

/// A way and its block.
struct Case<'a> {
    way: Way,
    block: &'a mut Block,
    map: Result<&'a Pagemap, &'a io::Error>,
}

impl Priced for Case<'_> {
    fn ready(&mut self) -> io::Result<()> {
        self.block.hold(self.way.holding)
    }

    fn act(&mut self) -> io::Result<Option<u64>> {
        let addresses = self.block.addresses();
        match self.way.act {
            Act::Scan => return self.map.map_err(again)?.scan(addresses).map(Some),
            Act::ReadWords => return self.map.map_err(again)?.read_words(addresses).map(Some),
            Act::Discard => self.block.discard()?,
            Act::Touch => self.block.touch_all(),
            Act::Memset => self.block.memset(),
            Act::Stream if !self.block.stream() => return Err(io::ErrorKind::Unsupported.into()),
            Act::Stream => {}
        }
        Ok(None)
    }

    fn count(&mut self) -> io::Result<Option<u64>> {
        let before = machine::own_faults().0;
        let told = self.act()?;
        let faults = machine::own_faults().0 - before;
        Ok(told.or((self.way.act == Act::Touch).then_some(faults)))
    }

    fn repeats(&self) -> bool {
        self.way.repeats()
    }
}

/// A count of pages that cannot be right; the price is then of a different operation.
fn contradiction(way: Way, size: Size, price: &Price) -> Option<String> {
    let (told, held) = (price.pages?, way.holding.bytes(size.bytes) as u64);
    let is_possible = match way.act {
        // A kernel may serve a fault with several pages.
        Act::Touch => told > 0,
        _ => told * page_size() == held,
    };
    let (act, held) = (way.act.name(), way.holding.name());
    let what = format!("{act} of {} with {held} populated", size.name);
    (!is_possible).then(|| format!("{what}: {told} pages"))
}

#[cfg(test)]
mod tests {
    use super::super::ways::Holding;
    use super::*;

    fn small(budget: Duration) -> Campaign {
        let mut campaign = Campaign::for_test();
        let terms = Terms {
            each: Duration::ZERO,
            deadline: Instant::now() + budget,
        };
        measure_all(&mut campaign, &SIZES[..2], terms);
        campaign
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn every_price_is_measured_once_and_touching_what_was_given_back_faults_every_page() {
        let campaign = small(HOUR);
        let runs: Vec<_> = campaign.record.runs().collect();
        assert_eq!(runs.len(), CALLS.len() + 2 * WAYS.len());
        let (touch, size) = ("touch every page; given back", SIZES[1]);
        let pages = campaign.record.median(touch, size.name, "pages").unwrap();
        // Other tests' threads cause faults as well.
        assert!(pages as u64 >= size.bytes as u64 / page_size());
        assert_eq!(campaign.failures(), [""; 0]);
        assert!(tables(&campaign.record).contains("│ memset; all"));
    }

    #[test]
    fn a_budget_of_nothing_leaves_all_out_and_says_so() {
        let campaign = small(Duration::ZERO);
        let reasons = campaign
            .record
            .rows
            .iter()
            .filter(|row| row.figure.name == ABSENT);
        assert_eq!(reasons.count(), CALLS.len() + 2 * WAYS.len());
        let cells = 2 * (CALLS.len() + 2 * WAYS.len());
        assert_eq!(
            tables(&campaign.record).matches("time is up").count(),
            cells
        );
    }

    #[test]
    fn an_unavailable_way_says_why() {
        let mut campaign = Campaign::for_test();
        let terms = Terms {
            each: Duration::ZERO,
            deadline: Instant::now() + HOUR,
        };
        let absent = Err(io::Error::from_raw_os_error(libc::ENOENT));
        each_way(&mut campaign, &terms, SIZES[0], &absent);
        let reasons = campaign
            .record
            .rows
            .iter()
            .filter_map(|row| row.figure.as_text());
        let reasons: Vec<&str> = reasons.collect();
        // The four scans and the two rows of words.
        let stores = usize::from(cfg!(not(target_arch = "x86_64")));
        assert_eq!((reasons.len(), reasons[0]), (6 + stores, "no /proc"));
        let number = |number| reason(&io::Error::from_raw_os_error(number));
        assert_eq!(number(libc::ENOTTY), "needs Linux 6.7");
        assert_eq!(number(libc::ENOMEM), "no memory");
        assert!(number(libc::EPERM).contains("not permitted"));
    }

    #[test]
    fn a_size_beyond_the_machine_has_no_price() {
        let size = Size {
            name: "1 EiB",
            bytes: 1 << 60,
        };
        assert_eq!(reason(&room(size).unwrap_err()), "no memory");
        assert!(room(SIZES[0]).is_ok());
    }

    #[test]
    fn an_impossible_count_is_told() {
        let price = Price {
            ns_least: 1.0,
            ns_median: 1.0,
            readings: 1,
            times: 1,
            pages: Some(3),
        };
        let way = Way {
            act: Act::ReadWords,
            holding: Holding::Nothing,
        };
        let told = contradiction(way, SIZES[0], &price).unwrap();
        assert_eq!(
            told,
            "pread of the pagemap of 64K with nothing populated: 3 pages"
        );
        assert_eq!(
            contradiction(
                way,
                SIZES[0],
                &Price {
                    pages: Some(0),
                    ..price
                }
            ),
            None
        );
    }
}
