//! In place of a client that writes, in a build that has none.

use std::io;
use std::ops::Range;

use crate::address::Url;
use crate::answer::StoreFault;
use crate::objects::Objects;
use crate::upload::{Looked, Upload, UploadFault, Version, When, Written};

/// Objects below an address, to be written: there are none in this build.
#[derive(Debug)]
pub enum Uploads {}

impl Uploads {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn open(url: &Url) -> Result<Self, StoreFault> {
        match Objects::open(url, 1)? {}
    }

    /// What lies there.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        match *self {}
    }

    /// Writes a small object.
    ///
    /// # Errors
    /// None.
    pub fn put(&self, _name: &str, _bytes: Vec<u8>, _when: When<'_>) -> Result<Written, StoreFault> {
        match *self {}
    }

    /// Begins an object in parts.
    ///
    /// # Errors
    /// None.
    pub fn begin(&self, _name: &str, _content: u64) -> Result<String, StoreFault> {
        match *self {}
    }

    /// Writes an object that was begun.
    ///
    /// # Errors
    /// None.
    pub fn write(
        &self,
        _upload: Upload<'_>,
        _when: When<'_>,
        _read: impl Fn(Range<u64>) -> io::Result<Vec<u8>>,
        _stop: impl Fn() -> bool,
    ) -> Result<Written, UploadFault> {
        match *self {}
    }

    /// Removes the parts of an upload.
    ///
    /// # Errors
    /// None.
    pub fn give_up(&self, _name: &str, _id: &str) -> Result<(), StoreFault> {
        match *self {}
    }

    /// Removes an object.
    ///
    /// # Errors
    /// None.
    pub fn remove(&self, _name: &str) -> Result<(), StoreFault> {
        match *self {}
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// None.
    pub fn look(&self, _name: &str) -> Result<Option<Looked>, StoreFault> {
        match *self {}
    }

    /// Marks objects.
    pub fn mark_with(&mut self, _work: String) {
        match *self {}
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// None.
    pub fn get(&self, _name: &str, _bytes_max: u64) -> Result<Option<(Vec<u8>, Version)>, StoreFault> {
        match *self {}
    }
}
