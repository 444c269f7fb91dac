//! What calls return: codes, and the text of each thread's last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use shade_client::{ClientError, PartError};

/// Done.
pub const SHADE_OK: c_int = 0;
/// The epoch has no further batch.
pub const SHADE_END: c_int = 1;
/// Nothing came in time. Call again, or give up.
pub const SHADE_TIMEOUT: c_int = 2;
/// The daemon ended, was killed, or could not be started.
pub const SHADE_GONE: c_int = 3;
/// A record is damaged or cannot be read; the text names it.
pub const SHADE_RECORD: c_int = 4;
/// An argument is impossible; the text names it.
pub const SHADE_USAGE: c_int = 5;
/// Anything else: the system, the daemon's refusal, a defect of shade.
pub const SHADE_SYSTEM: c_int = 6;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

impl Fault {
    /// An impossible argument.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { code: SHADE_USAGE, text: text.into() }
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        let code = match error {
            ClientError::DaemonGone { .. }
            | ClientError::NoDaemon { .. }
            | ClientError::Launch { .. }
            | ClientError::HungUp { .. } => SHADE_GONE,
            ClientError::Record { .. } | ClientError::Fields { .. } => SHADE_RECORD,
            ClientError::Argument { .. }
            | ClientError::Spec(_)
            | ClientError::Index(_)
            | ClientError::Forked { .. }
            | ClientError::NotStarted
            | ClientError::AnotherStart => SHADE_USAGE,
            ClientError::Timeout { .. } => SHADE_TIMEOUT,
            _ => SHADE_SYSTEM,
        };
        Self { code, text: error.with_causes() }
    }
}

impl From<PartError> for Fault {
    fn from(error: PartError) -> Self {
        let code = match error {
            PartError::Kind(_) | PartError::Row { .. } | PartError::View { .. } => SHADE_USAGE,
            PartError::Damaged(_) | PartError::Record(_) => SHADE_SYSTEM,
        };
        Self { code, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of this thread's last failure.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A call's code: what `work` returns, or its failure's, whose text is kept. A panic is one.
pub(crate) fn answer(work: impl FnOnce() -> Result<c_int, Fault>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(panic.as_ref())));
    done.unwrap_or_else(|Fault { code, text }| {
        let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
        // Without a thread's memory, as at its end, there is only the code.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        code
    })
}

fn of_panic(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
    Fault { code: SHADE_SYSTEM, text: format!("a defect of shade: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_with_its_text() {
        assert_eq!(answer(|| panic!("row {}", 7)), SHADE_SYSTEM);
        LAST.with(|last| assert_eq!(last.borrow().to_str(), Ok("a defect of shade: row 7")));
        assert_eq!(answer(|| Err(Fault::usage("one\0two"))), SHADE_USAGE);
        LAST.with(|last| assert_eq!(last.borrow().to_str(), Ok("one?two")));
    }
}
