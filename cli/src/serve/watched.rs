//! The served processes and their figures.

use crate::attach::{Process, StatusPage, Target, Under};
use crate::failure::Failure;
use crate::view::{State, View};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a scrape waits for a process: a purge thread wakes once a second. For a sleeping
/// process, the scrape returns older figures.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Processes asked in parallel.
const AT_ONCE: usize = 128;
/// Sessions in parallel. Each keeps what its process had sampled before, up to 19 MB.
pub const MOST_SESSIONS: usize = 4;

/// Which processes are served.
#[derive(Debug)]
pub enum Scope {
    /// These processes.
    Named(Vec<Under>),
    /// All processes of the user, or of all users for root.
    All,
}

/// The processes that are served.
#[derive(Debug)]
pub struct Watched {
    scope: Scope,
    /// Held during a scrape, so that concurrent requests take turns.
    turn: Mutex<()>,
    /// Each session has a clone.
    sessions: Arc<()>,
}

impl Watched {
    /// Serves these processes.
    pub fn new(scope: Scope) -> Watched {
        Watched {
            scope,
            turn: Mutex::new(()),
            sessions: Arc::default(),
        }
    }

    /// The processes that have not ended.
    pub fn targets(&self) -> Result<Vec<Target>, Failure> {
        let alive = |under: &&Under| !under.status_page.has_ended();
        Ok(match &self.scope {
            Scope::Named(named) => named.iter().filter(alive).map(target).collect(),
            Scope::All => Under::all()?.iter().map(target).collect(),
        })
    }

    /// Views of this process now, or of all. Those that end meanwhile are left out. `None` for a
    /// client that has left while it waited for its turn; otherwise a slow process would make a
    /// queue of them.
    pub fn views(
        &self,
        pid: Option<i32>,
        has_left: impl Fn() -> bool,
    ) -> Result<Option<Vec<View>>, Failure> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                if has_left() {
                    return Ok(None);
                }
                turn
            }
        };
        Ok(Some(match &self.scope {
            Scope::Named(named) => views(named, pid),
            Scope::All => views(&Under::all()?, pid),
        }))
    }

    /// One more session, which ends when it is dropped; `None` if there are [`MOST_SESSIONS`].
    pub fn session(&self) -> Option<Arc<()>> {
        let session = Arc::clone(&self.sessions);
        (Arc::strong_count(&session) <= 1 + MOST_SESSIONS).then_some(session)
    }

    /// The status page of a served process.
    ///
    /// # Errors
    ///
    /// The process is not served, or has ended.
    pub fn status_page(&self, pid: i32) -> Result<StatusPage, Failure> {
        let user = Process::open(pid)?.user().unwrap_or(u32::MAX);
        let is_served = match &self.scope {
            Scope::Named(named) => named
                .iter()
                .any(|under| under.target.pid == pid && !under.status_page.has_ended()),
            Scope::All => crate::attach::may_watch(user),
        };
        if is_served {
            StatusPage::open(pid)
        } else {
            Err(failure!("process {pid} is not served here"))
        }
    }
}

fn target(under: &Under) -> Target {
    under.target.clone()
}

/// Views of those with this PID, or of all.
fn views(all: &[Under], pid: Option<i32>) -> Vec<View> {
    let is_wanted = |under: &&Under| pid.is_none_or(|pid| pid == under.target.pid);
    let wanted: Vec<&Under> = all.iter().filter(is_wanted).collect();
    let ask = |under: &Under| {
        let asked = View::ask(&under.status_page, PATIENCE);
        // Unreadable figures are no reason to hide the kernel's count.
        asked
            .or_else(|_| View::look(&under.status_page, State::Pending))
            .ok()
    };
    let mut views = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|under| scope.spawn(move || ask(under)))
                .collect();
            let done = threads.into_iter().filter_map(|thread| thread.join().ok());
            views.extend(done.flatten());
        });
    }
    views
}
