//! In place of a client, in a build that has none.

use std::ops::Range;
use std::time::Duration;

use crate::address::Url;
use crate::answer::{Answer, Found, StoreFault};

/// The objects below an address: there are none in this build.
#[derive(Debug)]
pub enum Objects {}

impl Objects {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn open(url: &Url, _connections: usize) -> Result<Self, StoreFault> {
        let words =
            format!("{url}: this build reads no object stores: it was made without the feature objects");
        Err(StoreFault { answer: Answer::Unasked, status: None, wait: None, words })
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &Url {
        match *self {}
    }

    /// Runs `task`.
    pub fn spawn(&self, _task: impl Future<Output = ()> + Send + 'static) {
        match *self {}
    }

    /// Waits, in a task on the client's threads.
    pub async fn pause(&self, _time: Duration) {
        match *self {}
    }

    /// Reads some bytes of an object.
    ///
    /// # Errors
    /// None.
    pub async fn read(
        &self,
        _name: &str,
        _range: Range<u64>,
        _etag: Option<&str>,
        _take: impl FnMut(&[u8]) + Send,
    ) -> Result<Found, StoreFault> {
        match *self {}
    }

    /// Reads a whole object, or nothing if it is of the version `etag`.
    ///
    /// # Errors
    /// None.
    pub fn get_if_new(
        &self,
        _name: &str,
        _etag: Option<&str>,
        _bytes_max: u64,
    ) -> Result<Option<(Vec<u8>, Found)>, StoreFault> {
        match *self {}
    }

    /// All objects below the address.
    ///
    /// # Errors
    /// None.
    pub fn list(&self) -> Result<Vec<Found>, StoreFault> {
        match *self {}
    }

    /// The objects in a folder below the address.
    ///
    /// # Errors
    /// None.
    pub fn list_in(&self, _folder: &str) -> Result<Vec<Found>, StoreFault> {
        match *self {}
    }

    /// Some objects below the address.
    ///
    /// # Errors
    /// None.
    pub fn list_some(&self, _most: usize) -> Result<Vec<Found>, StoreFault> {
        match *self {}
    }

    /// The objects below the address, as they are listed.
    ///
    /// # Errors
    /// None.
    pub fn list_behind(&self, _after: Option<&str>, _take: impl FnMut(Found)) -> Result<(), StoreFault> {
        match *self {}
    }

    /// Reads some bytes of an object, and waits for them.
    ///
    /// # Errors
    /// None.
    pub fn read_now(
        &self,
        _name: &str,
        _range: Range<u64>,
        _etag: Option<&str>,
        _take: impl FnMut(&[u8]) + Send,
    ) -> Result<Found, StoreFault> {
        match *self {}
    }
}
