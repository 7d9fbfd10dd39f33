//! Every way over every size, within a time budget.

use std::io;
use std::time::{Duration, Instant};

use super::block::Block;
use super::measure::{Price, Priced, Terms, measure};
use super::pagemap::{Pagemap, open_and_close};
use super::record::{Row, Subject};
use super::ways::{Act, CALLS, Call, Size, WAYS, Way};
use crate::machine;
use crate::work::pagemap::page_size;

/// What to measure, and for how long.
#[derive(Debug)]
pub struct Plan {
    pub sizes: Vec<Size>,
    /// Time for one price.
    pub each: Duration,
    /// No price is begun after this.
    pub budget: Duration,
}

impl Plan {
    /// The number of prices.
    pub fn steps(&self) -> u64 {
        (CALLS.len() + self.sizes.len() * WAYS.len()) as u64
    }
}

/// Measures everything, and calls `done` after every price.
pub fn carry_out(plan: &Plan, done: impl Fn(&Row)) -> Vec<Row> {
    let terms = Terms {
        each: plan.each,
        deadline: Instant::now() + plan.budget,
    };
    let map = Pagemap::open();
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        done(&row);
        rows.push(row);
    };
    for call in CALLS {
        let map = map.as_ref();
        add(row(&terms, Subject::Call(call), || {
            measure(&terms, &mut Asked { call, map })
        }));
    }
    for &size in &plan.sizes {
        each_way(&terms, size, &map, &mut add);
    }
    rows
}

/// All ways over a block, ordered by the state that they need.
fn each_way(terms: &Terms, size: Size, map: &io::Result<Pagemap>, add: &mut impl FnMut(Row)) {
    let mut ways = WAYS;
    ways.sort_by_key(|way| (way.holding, !way.repeats()));
    let mut block = room(size).and_then(|()| Block::new(size.bytes));
    for way in ways {
        let subject = Subject::Way { way, size };
        add(row(terms, subject, || {
            let block = block.as_mut().map_err(|error| again(error))?;
            let map = map.as_ref();
            measure(terms, &mut Case { way, block, map })
        }));
    }
}

/// An error if the machine has too little free memory for a size.
fn room(size: Size) -> io::Result<()> {
    let wanted = size.bytes as u64 + size.bytes as u64 / 4;
    match machine::available_bytes() {
        Ok(available) if available < wanted => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Ok(()),
    }
}

fn row(terms: &Terms, subject: Subject, price: impl FnOnce() -> io::Result<Price>) -> Row {
    let in_time = Instant::now() < terms.deadline;
    let price = match in_time {
        true => price().map_err(|error| reason(&error)),
        false => Err("time is up".into()),
    };
    Row { subject, price }
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

/// Counts of pages that cannot be right; the price is then of a different operation.
pub fn contradictions(rows: &[Row]) -> Vec<String> {
    rows.iter().filter_map(contradiction).collect()
}

fn contradiction(row: &Row) -> Option<String> {
    let (Subject::Way { way, size }, Ok(price)) = (row.subject, &row.price) else {
        return None;
    };
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
    use super::super::ways::{Holding, SIZES};
    use super::*;

    fn small() -> Plan {
        Plan {
            sizes: SIZES[..2].to_vec(),
            each: Duration::ZERO,
            budget: Duration::from_secs(3_600),
        }
    }

    #[test]
    fn every_price_is_asked_for_once() {
        let plan = small();
        let told = std::cell::Cell::new(0);
        let rows = carry_out(&plan, |_| told.set(told.get() + 1));
        assert_eq!((rows.len() as u64, told.get()), (plan.steps(), rows.len()));
        let different: std::collections::HashSet<String> = rows
            .iter()
            .map(|row| format!("{:?}", row.subject))
            .collect();
        assert_eq!(different.len(), rows.len());
        assert_eq!(contradictions(&rows), [""; 0]);
    }

    #[test]
    fn touching_what_was_given_back_faults_every_page() {
        let rows = carry_out(&small(), |_| {});
        let touch = |row: &&Row| {
            matches!(row.subject, Subject::Way { way, size }
            if way.act == Act::Touch && size == SIZES[1])
        };
        let price = rows.iter().find(touch).unwrap().price.clone().unwrap();
        // Other tests' threads cause faults as well.
        assert!(price.pages.unwrap() >= SIZES[1].bytes as u64 / page_size());
    }

    #[test]
    fn a_budget_of_nothing_leaves_all_out_and_says_so() {
        let plan = Plan {
            budget: Duration::ZERO,
            ..small()
        };
        let rows = carry_out(&plan, |_| {});
        assert_eq!(rows.len() as u64, plan.steps());
        assert!(rows.iter().all(|row| row.price == Err("time is up".into())));
    }

    #[test]
    fn what_is_not_to_be_had_says_why() {
        let (terms, absent) = (
            Terms {
                each: Duration::ZERO,
                deadline: Instant::now() + Duration::from_secs(3_600),
            },
            Err(io::Error::from_raw_os_error(libc::ENOENT)),
        );
        let mut rows = Vec::new();
        each_way(&terms, SIZES[0], &absent, &mut |row| rows.push(row));
        let absent: Vec<&Row> = rows.iter().filter(|row| row.price.is_err()).collect();
        // The four scans and the two rows of words.
        assert_eq!(
            absent.len(),
            6 + usize::from(cfg!(not(target_arch = "x86_64")))
        );
        assert_eq!(absent[0].price, Err("no /proc".into()));
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
    fn a_count_that_cannot_be_is_told() {
        let mut rows = carry_out(&small(), |_| {});
        let nothing = |row: &&mut Row| {
            matches!(row.subject, Subject::Way { way, .. }
            if way.holding == Holding::Nothing && way.act == Act::ReadWords)
        };
        let row = rows.iter_mut().find(nothing).unwrap();
        row.price.as_mut().unwrap().pages = Some(3);
        let told = contradictions(&rows);
        assert_eq!(
            told,
            ["pread of the pagemap of 64K with nothing populated: 3 pages"]
        );
    }
}
