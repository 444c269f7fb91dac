//! What is said about writing an object.

use std::io;

use crate::answer::StoreFault;

/// When an object is written.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// In place of one that is there, too.
    Always,
    /// If there is none of this name.
    Absent,
    /// If the one that is there is still of this version.
    Still(&'a str),
}

/// What became of a write under a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there, in this version if the store says one.
    Done(Option<String>),
    /// The condition does not hold; nothing was written.
    Refused,
}

/// Why an object was not written.
#[derive(Debug)]
pub enum UploadFault {
    /// The store does not take it.
    Store(StoreFault),
    /// Its bytes cannot be read.
    Read(io::Error),
    /// It was to stop.
    Stopped,
}

/// An object in parts that is being written.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// Its name below the address.
    pub name: &'a str,
    /// What the store calls this upload, by [`begin`](crate::Uploads::begin).
    pub id: &'a str,
    /// Its length in bytes, not 0.
    pub bytes: u64,
}
