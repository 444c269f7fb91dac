//! What comes from C's memory and goes there: texts, places for results, objects.
//!
//! The header is the contract: what is not null is valid while the call lasts.
#![expect(unsafe_code, reason = "C hands over texts and objects by address")]

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use crate::fault::{Fault, SHADE_OK, SHADE_SYSTEM, answer};

/// The error of an argument that is missing.
pub(crate) fn null(name: &str) -> Fault {
    Fault::usage(format!("{name} is null"))
}

/// A handle or a place that is there.
pub(crate) fn given<T>(handle: Option<T>, name: &str) -> Result<T, Fault> {
    handle.ok_or_else(|| null(name))
}

/// A text of the caller's.
pub(crate) fn text<'text>(text: *const c_char, name: &str) -> Result<&'text str, Fault> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: not null, hence by the header's contract a text that ends in a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Fault::usage(format!("{name}: {error}; expected UTF-8")))
}

/// Writes a result to its place.
pub(crate) fn put<T>(place: Option<&mut MaybeUninit<T>>, name: &str, value: T) -> Result<c_int, Fault> {
    given(place, name)?.write(value);
    Ok(SHADE_OK)
}

/// Writes a copy of a text to its place.
pub(crate) fn put_text(place: Option<&mut MaybeUninit<*mut c_char>>, text: &str) -> Result<c_int, Fault> {
    let place = given(place, "json")?;
    place.write(allocated(format!("{text}\0").as_bytes())?.cast());
    Ok(SHADE_OK)
}

/// A copy for `shade_free`.
pub(crate) fn allocated(bytes: &[u8]) -> Result<*mut u8, Fault> {
    // SAFETY: any length may be asked for.
    let memory = unsafe { libc::malloc(bytes.len()) }.cast::<u8>();
    if memory.is_null() {
        return Err(Fault { code: SHADE_SYSTEM, text: format!("no memory for {} bytes", bytes.len()) });
    }
    // SAFETY: new memory of this length.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
    Ok(memory)
}

/// Frees what `Box` made; null is nothing.
pub(crate) fn drop_box<T>(object: *mut T) {
    if !object.is_null() {
        answer(|| {
            // SAFETY: by the header's contract made by this library and not given back before.
            drop(unsafe { Box::from_raw(object) });
            Ok(SHADE_OK)
        });
    }
}
