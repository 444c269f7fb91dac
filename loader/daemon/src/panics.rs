//! Panics: each is a defect of this program, and becomes an error.
//!
//! Where a thread can go on, [`caught`] runs the work and returns the panic as an error. Any other
//! panic is told to the receiver of [`watch`], as the ended thread would be waited for without end.
//! A thread that the daemon needs says by [`give_up`] why it ends.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::log::{Rate, Throttle};

type Receiver = Arc<dyn Fn(String) + Send + Sync>;

/// The receiver that [`watch`] has set.
static RECEIVER: Mutex<Option<Receiver>> = Mutex::new(None);

thread_local! {
    /// Whether [`caught`] returns a panic of this thread.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and returns its panic as an error. State that `work` may have left half-changed must
/// not be used any more.
///
/// # Errors
/// The panic's message.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = IS_CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "no message".to_owned())
    })
}

/// From now on logs this process's panics, and tells `receiver` of those that are not caught.
/// Caught ones, which may come with every record, are logged as a [`Throttle`] admits.
pub(crate) fn watch(receiver: impl Fn(String) + Send + Sync + 'static) {
    let caught = Mutex::new(Throttle::new(Rate::FAULTS, Instant::now()));
    let receiver: Receiver = Arc::new(receiver);
    *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&receiver));
    set_hook(Box::new(move |panic| {
        let text = describe(panic);
        if !IS_CAUGHT.get() {
            tracing::error!("{text}");
            receiver(text);
            return;
        }
        // The lock is released before logging, which could panic too.
        let admitted = caught.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
        if let Some(left_out) = admitted {
            tracing::error!("{text}{left_out}");
        }
    }));
}

/// Logs why this thread ends, and tells the receiver of [`watch`], as for a panic.
pub(crate) fn give_up(text: String) {
    tracing::error!("{text}");
    let receiver = RECEIVER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(receiver) = receiver {
        receiver(text);
    }
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = panic.location().map_or_else(|| "?".to_owned(), ToString::to_string);
    let message = panic.payload_as_str().unwrap_or("no message");
    format!("a defect of shade-load: thread {} panicked at {place}: {message}", thread.name().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let panicked = |text: &str| Err::<(), _>(text.to_owned());
        assert_eq!(caught(|| panic!("at byte {}", 7)), panicked("at byte 7"));
        assert_eq!(caught(|| panic!("plain")), panicked("plain"));
        assert_eq!(caught(|| std::panic::panic_any(5_u8)), panicked("no message"));
        assert_eq!(caught(|| 3), Ok(3));
    }

    #[test]
    fn what_is_caught_inside_leaves_the_outside_as_it_was() {
        let inner = caught(|| {
            assert_eq!(caught(|| panic!("inner")), Err::<(), _>("inner".to_owned()));
            IS_CAUGHT.get()
        });
        assert_eq!(inner, Ok(true));
        assert!(!IS_CAUGHT.get());
    }
}
