//! Two threads that live as long as the fuzzer, and perform what they are told, in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// The threads.
pub struct Crew {
    members: [Mutex<Sender<Work>>; 2],
    /// Whether a member was told anything since the last rest.
    is_told: AtomicBool,
}

/// The one crew.
pub fn crew() -> &'static Crew {
    static CREW: OnceLock<Crew> = OnceLock::new();
    CREW.get_or_init(|| Crew {
        members: [member(), member()],
        is_told: AtomicBool::new(false),
    })
}

fn member() -> Mutex<Sender<Work>> {
    let (sender, inbox) = channel::<Work>();
    thread::spawn(move || inbox.into_iter().for_each(|work| work()));
    Mutex::new(sender)
}

impl Crew {
    /// Has a member perform `work` some time.
    pub fn tell(&self, member: u8, work: impl FnOnce() + Send + 'static) {
        self.is_told.store(true, Ordering::Relaxed);
        let member = &self.members[usize::from(member) % 2];
        let sender = member.lock().expect("no member panics");
        sender.send(Box::new(work)).expect("members never end");
    }

    /// Has a member perform `work`, and waits for the result.
    pub fn ask<T: Send + 'static>(
        &self,
        member: u8,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, result) = channel();
        self.tell(member, move || {
            let _ = sender.send(work());
        });
        result.recv().expect("no member panics")
    }

    /// Waits until both have done everything.
    pub fn rest(&self) {
        if !self.is_told.load(Ordering::Relaxed) {
            return;
        }
        self.ask(0, || ());
        self.ask(1, || ());
        self.is_told.store(false, Ordering::Relaxed);
    }
}
