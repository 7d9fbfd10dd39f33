//! A bounded number of things at a time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A number of seats. Clones share them.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<usize>,
    changed: Condvar,
}

/// A taken seat. Dropping it frees it.
#[derive(Debug)]
pub struct Seat(Seats);

impl Seats {
    /// Free seats.
    pub fn new(most: usize) -> Seats {
        Seats(Arc::new(Shared {
            most,
            taken: Mutex::new(0),
            changed: Condvar::new(),
        }))
    }

    /// Takes a seat if one is free.
    pub fn try_take(&self) -> Option<Seat> {
        let mut taken = self.taken();
        let is_free = *taken < self.0.most;
        is_free.then(|| {
            *taken += 1;
            Seat(self.clone())
        })
    }

    /// Waits for a free seat and takes it.
    pub fn take(&self) -> Seat {
        let full = |taken: &mut usize| *taken >= self.0.most;
        let taken = self.0.changed.wait_while(self.taken(), full);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Seat(self.clone())
    }

    /// Waits until all seats are free, at most this long.
    pub fn wait_until_free(&self, patience: Duration) {
        let some = |taken: &mut usize| *taken > 0;
        // The caller goes on in either case.
        let _ = self
            .0
            .changed
            .wait_timeout_while(self.taken(), patience, some);
    }

    fn taken(&self) -> MutexGuard<'_, usize> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.taken() -= 1;
        self.0.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_again_when_it_is_dropped() {
        let seats = Seats::new(2);
        let (one, two) = (seats.take(), seats.try_take());
        assert!(two.is_some() && seats.try_take().is_none());
        let waiting = seats.clone();
        let waiter = std::thread::spawn(move || drop(waiting.take()));
        drop(one);
        waiter.join().unwrap();
        drop(two);
        seats.wait_until_free(Duration::from_secs(60));
        assert_eq!(*seats.taken(), 0);
    }
}
