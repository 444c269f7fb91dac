//! What is said about writing an object.

use std::io;

use crate::answer::StoreFault;

/// Which one of all that an object has been, as far as the store says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The ETag.
    pub etag: Option<String>,
    /// What Google Cloud Storage calls generation.
    pub number: Option<String>,
}

/// An object as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its version.
    pub version: Version,
    /// The mark that it was written with, if any.
    pub mark: Option<String>,
}

/// When an object is written.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// In place of one that is there, too.
    Always,
    /// If there is none of this name.
    Absent,
    /// If the one that is there is still of this version.
    Still(&'a Version),
}

/// What became of a write under a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there, in this version.
    Done(Version),
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
