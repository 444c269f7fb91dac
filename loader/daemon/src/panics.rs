//! Panics: each is a defect of this program, and becomes an error.
//!
//! Where a thread can go on, `shade_images::caught` runs the work and returns the panic as an
//! error, with its place, for the caller to tell. Any other panic is told to the receiver of
//! [`watch`], as the ended thread would be waited for without end. A thread that the daemon needs
//! says by [`give_up`] why it ends.

use std::panic::{PanicHookInfo, set_hook};
use std::sync::{Arc, Mutex, PoisonError};

use shade_images::is_caught;

type Receiver = Arc<dyn Fn(String) + Send + Sync>;

/// The receiver that [`watch`] has set.
static RECEIVER: Mutex<Option<Receiver>> = Mutex::new(None);

/// From now on logs this process's panics that are not caught, and tells `receiver` of them.
pub(crate) fn watch(receiver: impl Fn(String) + Send + Sync + 'static) {
    let receiver: Receiver = Arc::new(receiver);
    *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&receiver));
    set_hook(Box::new(move |panic| {
        if !is_caught() {
            let text = describe(panic);
            tracing::error!("{text}");
            receiver(text);
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
