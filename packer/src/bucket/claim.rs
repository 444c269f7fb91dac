//! The object `dataset.changing`: as the file of this name in a folder, see [`crate::claim`].
//!
//! Stores that refuse to write an object that is there let one command have it. With one that
//! cannot refuse, two commands that begin at the same moment both go on.

use shade_dataset::{Uploads, When, Written};

use super::object::{fault, get};
use crate::claim::{CLAIM_FILE, is_claim};
use crate::error::Error;
use crate::owner::Owner;

/// Attempts to take a claim that appears and disappears meanwhile.
const LOOKS_MAX: usize = 4;
/// More than a claim's lines have.
const CLAIM_BYTES_MAX: u64 = 4096;

/// Takes the right to write there. Says whether a dead process of this machine had it.
///
/// # Errors
/// Another command has it: usage. Or the store does not answer.
pub(super) fn take(uploads: &Uploads) -> Result<bool, Error> {
    let own = Owner::current().text();
    let url = uploads.objects().url().join(CLAIM_FILE);
    let put = |when: When<'_>| {
        let put = uploads.put(CLAIM_FILE, own.clone().into_bytes(), when);
        put.map_err(fault("write", &url))
    };
    for _ in 0..LOOKS_MAX {
        let there = get(uploads.objects(), CLAIM_FILE, CLAIM_BYTES_MAX)?.map(|got| (got.text(), got.etag));
        let (put, of_the_dead) = match &there {
            None => (put(When::Absent)?, false),
            Some((text, Some(etag))) if is_of_the_dead(text) => (put(When::Still(etag))?, true),
            Some((text, None)) if is_of_the_dead(text) => (put(When::Always)?, true),
            Some((text, _)) if is_claim(text) => break,
            Some(_) => {
                let text =
                    format!("{url} is in the way, an object that no command of this program made: remove it");
                return Err(Error::Usage(text));
            }
        };
        if matches!(put, Written::Done(_)) {
            return Ok(of_the_dead);
        }
    }
    Err(Error::Usage(format!(
        "another command is writing there. If it was killed, on another machine or in another container, remove {url}"
    )))
}

fn is_of_the_dead(text: &str) -> bool {
    is_claim(text) && Owner::current().knows_to_be_gone(text)
}

/// Gives the right back, if it is still ours.
pub(super) fn give_back(uploads: &Uploads) {
    let there = get(uploads.objects(), CLAIM_FILE, CLAIM_BYTES_MAX);
    if matches!(there, Ok(Some(got)) if got.text() == Owner::current().text()) {
        // A claim that stays says the truth: this process is gone.
        let _ = uploads.remove(CLAIM_FILE);
    }
}
