//! What is shown, and how keys change it.

use super::feed::{Entry, Feed, Look, Order, entries};
use super::pace::{Pace, Stop};
use crate::attach::StatusPage;
use crate::choice::Choice;
use crate::failure::Failure;
use crate::view::used;
use neap_shared::stats::{Bytes, ClassFigures};
use std::collections::VecDeque;
use std::time::Duration;

/// Most figures kept for the sparkline; no terminal is wider.
const REMEMBERED: usize = 1024;
/// How long the screen waits for a purge; a purge thread wakes once a second.
const PATIENCE: Duration = Duration::from_millis(1200);

/// The whole state of the screen.
pub struct State {
    /// The interval and the number of ticks.
    pub pace: Pace,
    /// The current page.
    pub page: Page,
    /// The result of the last key.
    pub message: String,
}

/// A page.
pub enum Page {
    /// The list of processes.
    List(List),
    /// One process.
    One(Box<One>),
    /// Help for the keys and words of the page behind it.
    Help(Box<Page>),
}

/// The list of processes.
#[derive(Default)]
pub struct List {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Their order.
    pub order: Order,
    /// Index of the selected one.
    pub chosen: usize,
}

/// One process.
pub struct One {
    feed: Feed,
    /// The last figures.
    pub look: Option<Look>,
    /// Resident bytes of the whole process, oldest first.
    pub residents: VecDeque<u64>,
    /// Order of the size classes.
    pub order: ClassOrder,
    /// Index of the first class shown.
    pub first: usize,
}

choice! {
    /// The order of size classes.
    #[derive(Default)]
    pub enum ClassOrder {
        /// Most live bytes first.
        #[default]
        Live = "bytes live",
        /// Most free bytes first.
        Free = "bytes free",
        /// Smallest first.
        Size = "size",
    }
}

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ends the program.
    Quit,
    /// Returns to the list; from there, ends the program.
    Back,
    /// Opens the selected process.
    Open,
    /// Has the process purge its free memory.
    Purge,
    /// Changes to the next order.
    Sort,
    /// Shows the help.
    Help,
    /// Moves this many lines down, or up if negative.
    Move(isize),
}

impl State {
    /// Starts with one process, or with the list.
    ///
    /// # Errors
    ///
    /// There is no /proc.
    pub fn new(feed: Option<Feed>, pace: Pace) -> Result<State, Failure> {
        let page = match feed {
            Some(feed) => Page::One(Box::new(One::new(feed))),
            None => Page::List(List::new()?),
        };
        Ok(State {
            pace,
            page,
            message: String::new(),
        })
    }

    /// Takes new figures. The end of the process shown leads back to the list.
    pub fn tick(&mut self) -> Result<(), Failure> {
        if let Some(ended) = self.page.tick()? {
            self.message = format!("{ended} has ended");
            self.page = Page::List(List::new()?);
        }
        Ok(())
    }

    /// Performs a key's action.
    pub fn perform(&mut self, act: Act) -> Result<Option<Stop>, Failure> {
        self.message.clear();
        match (act, &mut self.page) {
            (Act::Help, _) | (Act::Back, Page::Help(_)) => self.turn_help(),
            (Act::Quit, _) | (Act::Back, Page::List(_)) => return Ok(Some(Stop::Asked)),
            (Act::Back, Page::One(_)) => self.page = Page::List(List::new()?),
            (Act::Open, Page::List(_)) => self.open(),
            (Act::Open, Page::One(_)) => {}
            (Act::Open | Act::Purge | Act::Sort | Act::Move(_), Page::Help(_)) => {}
            (Act::Purge, _) => self.message = self.purge(),
            (Act::Sort, Page::List(list)) => {
                list.order = list.order.next();
                list.tick()?;
            }
            (Act::Sort, Page::One(one)) => one.order = one.order.next(),
            (Act::Move(by), Page::List(list)) => {
                list.chosen = moved(list.chosen, by, list.entries.len());
            }
            (Act::Move(by), Page::One(one)) => {
                one.first = moved(one.first, by, one.classes().len())
            }
        }
        Ok(None)
    }

    /// Opens the help, or goes back to the page behind it.
    fn turn_help(&mut self) {
        let shown = std::mem::replace(&mut self.page, Page::List(List::default()));
        self.page = match shown {
            Page::Help(behind) => *behind,
            page => Page::Help(Box::new(page)),
        };
    }

    fn open(&mut self) {
        let Page::List(list) = &self.page else { return };
        let Some(entry) = list.entries.get(list.chosen) else {
            return;
        };
        let feed = StatusPage::open(entry.pid)
            .and_then(|status_page| Feed::new(status_page, self.pace.interval));
        match feed {
            Ok(feed) => self.page = Page::One(Box::new(One::new(feed))),
            Err(failure) => self.message = failure.to_string(),
        }
    }

    fn purge(&self) -> String {
        let purged = match &self.page {
            Page::One(one) => purge(one.feed.status_page()),
            Page::List(list) => list
                .entries
                .get(list.chosen)
                .map_or(Ok(String::new()), |entry| {
                    purge(&StatusPage::open(entry.pid)?)
                }),
            Page::Help(_) => Ok(String::new()),
        };
        purged.unwrap_or_else(|failure| failure.to_string())
    }
}

fn purge(status_page: &StatusPage) -> Result<String, Failure> {
    let title = status_page.title();
    Ok(match status_page.purge(PATIENCE)? {
        Some(bytes) => format!("{title} gave {} back", Bytes(bytes)),
        None => format!("pending: {title}: {}", status_page.silence().why),
    })
}

/// An index into a list of `count`, moved within its bounds.
fn moved(place: usize, by: isize, count: usize) -> usize {
    place.saturating_add_signed(by).min(count.saturating_sub(1))
}

impl Page {
    /// Takes new figures, also for the page behind the help. The title of a process that has ended.
    fn tick(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Page::List(list) => list.tick().map(|()| None),
            Page::One(one) => one.tick(),
            Page::Help(behind) => behind.tick(),
        }
    }
}

impl List {
    fn new() -> Result<List, Failure> {
        let mut list = List::default();
        list.tick()?;
        Ok(list)
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let pid = self.entries.get(self.chosen).map(|entry| entry.pid);
        self.entries = entries(self.order)?;
        // The selection follows the process, even if its place changes.
        let place = self.entries.iter().position(|entry| Some(entry.pid) == pid);
        self.chosen = place.unwrap_or_else(|| moved(self.chosen, 0, self.entries.len()));
        Ok(())
    }
}

impl One {
    /// A process without figures yet.
    pub fn new(feed: Feed) -> One {
        One {
            feed,
            look: None,
            residents: VecDeque::new(),
            order: ClassOrder::default(),
            first: 0,
        }
    }

    fn tick(&mut self) -> Result<Option<String>, Failure> {
        let Some(look) = self.feed.look()? else {
            return Ok(Some(self.title().to_owned()));
        };
        if self.residents.len() == REMEMBERED {
            self.residents.pop_front();
        }
        self.residents.push_back(look.view.kernel.process_rss);
        self.look = Some(look);
        self.first = moved(self.first, 0, self.classes().len());
        Ok(None)
    }

    /// The process's name.
    pub fn title(&self) -> &str {
        self.feed.title()
    }

    /// Size classes in use, in order.
    pub fn classes(&self) -> Vec<ClassFigures> {
        let figures = self.look.as_ref().and_then(|look| look.view.figures);
        let mut classes: Vec<ClassFigures> = figures.iter().flat_map(used).copied().collect();
        match self.order {
            ClassOrder::Live => {
                classes.sort_by_key(|class| std::cmp::Reverse(bytes(class, ClassFigures::live)))
            }
            ClassOrder::Free => {
                classes.sort_by_key(|class| std::cmp::Reverse(bytes(class, |class| class.free)))
            }
            ClassOrder::Size => classes.sort_by_key(|class| class.bytes),
        }
        classes
    }
}

/// Bytes of a class's blocks.
pub fn bytes(class: &ClassFigures, blocks: impl Fn(&ClassFigures) -> u64) -> u64 {
    blocks(class).saturating_mul(class.bytes)
}

#[cfg(test)]
mod tests {
    use super::moved;

    #[test]
    fn places_stay_within_their_list() {
        assert_eq!(moved(0, -1, 5), 0);
        assert_eq!(moved(3, 10, 5), 4);
        assert_eq!(moved(7, 0, 0), 0);
    }
}
