//! Writes objects below a prefix.
//!
//! What is asked here is asked again by the client itself for some minutes: nobody waits for a
//! write as a batch is waited for.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{Error, GetOptions, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use crate::address::Url;
use crate::answer::{Answer, Found, StoreFault};
use crate::objects::Objects;
use crate::settings::{Client, Retry, client};
use crate::upload::{Upload, UploadFault, When, Written};

/// Connections that stay open between requests.
const CONNECTIONS: usize = 64;
/// Bytes of a part. Stores take 5 MiB and more.
const PART_BYTES: u64 = 8 << 20;
/// Most parts of an object, by the limit of S3.
const PARTS_MAX: u64 = 10_000;
/// Parts of one object that are under way at a time.
const PARTS_AT_ONCE: usize = 4;

/// Objects below an address, to be written.
pub struct Uploads {
    objects: Objects,
    parts: Arc<dyn MultipartStore>,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uploads").field(&self.objects).finish()
    }
}

impl Uploads {
    /// A client that writes below `url`. Nothing is asked yet.
    ///
    /// # Errors
    /// Nothing can be written there, the settings in the environment make no client, or no thread
    /// can be started.
    pub fn open(url: &Url) -> Result<Self, StoreFault> {
        let Client { store, parts, prefix } = client(url, CONNECTIONS, Retry::Patient)?;
        let Some(parts) = parts else {
            let words =
                format!("{url}: a web server is only read: write to s3://, gs:// or az://, or to a folder");
            return Err(StoreFault { answer: Answer::Refused, status: None, wait: None, words });
        };
        let client = Client { store, parts: None, prefix };
        Ok(Self { objects: Objects::of_client(url, client)?, parts })
    }

    /// What lies there, to be read.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Writes a small object, whole or not at all, and waits until it is there.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn put(&self, name: &str, bytes: Vec<u8>, when: When<'_>) -> Result<Written, StoreFault> {
        let mode = match when {
            When::Always => PutMode::Overwrite,
            When::Absent => PutMode::Create,
            When::Still(etag) => {
                PutMode::Update(UpdateVersion { e_tag: Some(etag.to_owned()), version: None })
            }
        };
        let work = async {
            let options = PutOptions { mode, ..PutOptions::default() };
            match self.objects.store().put_opts(&self.objects.path(name), bytes.into(), options).await {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Written::Refused),
                put => Ok(Written::Done(put?.e_tag)),
            }
        };
        self.objects.wait(work)
    }

    /// Begins an object in parts; gives the upload's id. It must be [written](Self::write) or
    /// [given up](Self::give_up): stores keep its parts until then, and charge for them.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn begin(&self, name: &str) -> Result<String, StoreFault> {
        self.objects.wait(self.parts.create_multipart(&self.objects.path(name)))
    }

    /// Writes an object that was begun, from what `read` gives for ranges of it. Nobody sees it
    /// before it is whole. `stop` is looked at between parts. Gives its version.
    ///
    /// # Errors
    /// What the store answers instead, or `read` fails. The upload is still begun.
    pub fn write(
        &self,
        upload: Upload<'_>,
        read: impl Fn(Range<u64>) -> io::Result<Vec<u8>>,
        stop: impl Fn() -> bool,
    ) -> Result<Option<String>, UploadFault> {
        let (path, id) = (self.objects.path(upload.name), upload.id.to_owned());
        // What ends the work that is not the store's.
        let other = std::cell::RefCell::new(None);
        let work = async {
            let put = |(number, range): (usize, Range<u64>)| {
                let (path, id, other) = (&path, &id, &other);
                let bytes = match stop() {
                    true => Err(UploadFault::Stopped),
                    false => read(range).map_err(UploadFault::Read),
                };
                async move {
                    match bytes {
                        Ok(bytes) => self.parts.put_part(path, id, number, bytes.into()).await,
                        Err(fault) => {
                            *other.borrow_mut() = Some(fault);
                            Err(Error::NotImplemented {
                                operation: String::new(),
                                implementer: String::new(),
                            })
                        }
                    }
                }
            };
            let parts = futures_util::stream::iter(parts_of(upload.bytes).enumerate().map(put));
            let parts: Vec<PartId> = parts.buffered(PARTS_AT_ONCE).try_collect().await?;
            self.parts.complete_multipart(&path, &id, parts).await
        };
        let done = self.objects.wait(work);
        match (done, other.into_inner()) {
            (_, Some(fault)) => Err(fault),
            (Ok(put), None) => Ok(put.e_tag),
            (Err(fault), None) => Err(UploadFault::Store(fault)),
        }
    }

    /// Removes the parts of an upload. One that is over is fine.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn give_up(&self, name: &str, id: &str) -> Result<(), StoreFault> {
        let id = id.to_owned();
        gone(self.objects.wait(self.parts.abort_multipart(&self.objects.path(name), &id)))
    }

    /// Removes an object. One that is not there is fine.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn remove(&self, name: &str) -> Result<(), StoreFault> {
        gone(self.objects.wait(self.objects.store().delete(&self.objects.path(name))))
    }

    /// What is known of an object; `None` if there is none.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn look(&self, name: &str) -> Result<Option<Found>, StoreFault> {
        let work = async {
            let options = GetOptions { head: true, ..GetOptions::default() };
            match self.objects.store().get_opts(&self.objects.path(name), options).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => {
                    let meta = found?.meta;
                    Ok(Some(Found { name: name.to_owned(), bytes: meta.size, etag: meta.e_tag }))
                }
            }
        };
        self.objects.wait(work)
    }
}

/// What is not there was removed.
fn gone(removed: Result<(), StoreFault>) -> Result<(), StoreFault> {
    match removed {
        Err(fault) if fault.answer == Answer::NotFound => Ok(()),
        removed => removed,
    }
}

/// The parts of an object, by their bytes.
fn parts_of(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let part = PART_BYTES.max(bytes.div_ceil(PARTS_MAX));
    (0..bytes.div_ceil(part)).map(move |number| number * part..bytes.min((number + 1) * part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_an_object_and_as_many_as_stores_take() {
        for bytes in [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 1 << 30, (2 << 40) + 12_345] {
            let parts: Vec<_> = parts_of(bytes).collect();
            let joined = parts.iter().fold(0, |end, part| {
                assert!(part.start == end && part.end > end, "{bytes}: {part:?}");
                part.end
            });
            assert_eq!(joined, bytes);
            assert!(parts.len() as u64 <= PARTS_MAX, "{bytes}: {} parts", parts.len());
            let short = parts.iter().rev().skip(1).filter(|part| part.end - part.start < PART_BYTES).count();
            assert_eq!(short, 0, "{bytes}: only the last part may be short");
        }
    }
}
