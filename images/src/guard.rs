//! Panics as errors. A decoder that panics on an image has a defect; the defect must cost that
//! image only, and be told with its name, not end the program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

thread_local! {
    /// Whether [`caught`] returns a panic of this thread.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// The place of this thread's last panic that was caught.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs `work` and returns its panic as an error. Nothing is printed. State that `work` may have
/// left half-changed must not be used any more.
///
/// # Errors
/// The panic's message, with its source file and line.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| if is_caught() { note(panic) } else { others(panic) }));
    });
    let outer = IS_CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let place = PLACE.take().map(|place| format!(" ({place})")).unwrap_or_default();
        format!("{}{place}", text.as_deref().unwrap_or("no message"))
    })
}

/// Whether [`caught`] would return a panic of this thread: a panic hook has nothing to tell then.
#[must_use]
pub fn is_caught() -> bool {
    IS_CAUGHT.get()
}

fn note(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|place| {
        let file = Path::new(place.file()).file_name().unwrap_or_default();
        format!("{}:{}", file.display(), place.line())
    });
    PLACE.set(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panicked(work: impl FnOnce()) -> String {
        caught(work).unwrap_err()
    }

    #[test]
    fn a_panic_is_an_error_with_its_message_and_place() {
        let line = line!() + 1;
        assert_eq!(panicked(|| panic!("at byte {}", 7)), format!("at byte 7 (guard.rs:{line})"));
        assert!(panicked(|| panic!("plain")).starts_with("plain (guard.rs:"));
        // Such a panic runs no hook.
        assert_eq!(panicked(|| std::panic::resume_unwind(Box::new(5_u8))), "no message");
        assert_eq!(caught(|| 3), Ok(3));
    }

    #[test]
    fn what_is_caught_inside_leaves_the_outside_as_it_was() {
        let inner = caught(|| {
            assert!(panicked(|| panic!("inner")).starts_with("inner ("));
            is_caught()
        });
        assert_eq!(inner, Ok(true));
        assert!(!is_caught());
    }
}
