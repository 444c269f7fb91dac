//! The object `dataset.changing`: as the file of this name in a folder, see [`crate::claim`].
//!
//! Stores that refuse to write an object that is there let one command have it. With one that
//! cannot refuse, two commands that begin at the same moment both go on until one looks again.

use shade_dataset::{Uploads, When, Written};

use super::object::{fault, get};
use crate::claim::{CLAIM_FILE, is_claim};
use crate::error::Error;
use crate::owner::Owner;

/// Attempts to take a claim that appears and disappears meanwhile.
const LOOKS_MAX: usize = 4;
/// More than a claim's lines have.
const CLAIM_BYTES_MAX: u64 = 4096;

/// The right to write into a folder below an address.
#[derive(Debug)]
pub(super) struct ObjectClaim {
    /// The object's name below the address.
    name: String,
}

impl ObjectClaim {
    /// Takes the right to write beside the object `name`. A dead command of this machine loses it.
    ///
    /// # Errors
    /// Another command has it: usage. Or the store does not answer.
    pub(super) fn take(uploads: &Uploads, name: String) -> Result<Self, Error> {
        let own = Owner::current().text();
        let url = uploads.objects().url().join(&name);
        let claim = Self { name };
        for _ in 0..LOOKS_MAX {
            let there = get(uploads, &claim.name, CLAIM_BYTES_MAX)?;
            let when = match &there {
                None => When::Absent,
                // The answer to a write of ours was lost.
                Some(got) if got.text() == own => return Ok(claim),
                Some(got) if is_of_the_dead(&got.text()) => When::still(&got.version),
                Some(got) if is_claim(&got.text()) => break,
                Some(_) => {
                    let text = format!(
                        "{url} is in the way, an object that no command of this program made: remove it"
                    );
                    return Err(Error::Usage(text));
                }
            };
            match uploads.put(&claim.name, own.clone().into_bytes(), when) {
                Ok(Written::Done(_)) => return Ok(claim),
                Ok(Written::Refused) => {}
                Err(refused) => {
                    claim.give_back(uploads);
                    return Err(fault("write", &url)(refused));
                }
            }
        }
        Err(Error::Usage(format!(
            "another command is writing there. If it was killed, on another machine or in another container, remove {url}"
        )))
    }

    /// Refuses to go on when another command has it by now: usage.
    pub(super) fn check(&self, uploads: &Uploads) -> Result<(), Error> {
        let there = get(uploads, &self.name, CLAIM_BYTES_MAX)?;
        if there.is_some_and(|got| got.text() == Owner::current().text()) {
            return Ok(());
        }
        let url = uploads.objects().url().join(&self.name);
        Err(Error::Usage(format!(
            "{url} was removed, or another command has it: not going on, it may be at work there"
        )))
    }

    /// The folder that it is for, as the beginning of names.
    pub(super) fn folder(&self) -> &str {
        self.name.strip_suffix(CLAIM_FILE).unwrap_or_default()
    }

    /// Gives the right back, if it is still ours.
    pub(super) fn give_back(&self, uploads: &Uploads) {
        let there = get(uploads, &self.name, CLAIM_BYTES_MAX);
        if matches!(there, Ok(Some(got)) if got.text() == Owner::current().text()) {
            // A claim that stays says the truth: this process is gone.
            let _ = uploads.remove(&self.name);
        }
    }
}

fn is_of_the_dead(text: &str) -> bool {
    is_claim(text) && Owner::current().knows_to_be_gone(text)
}
