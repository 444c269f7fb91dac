//! Writes objects below a prefix.
//!
//! What is asked here is asked again by the client itself for some minutes: nobody waits for a
//! write as a batch is waited for. So a request may be done twice, or when its answer was lost: an
//! object that has the own mark and the content is there, whatever was answered.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, Error, GetOptions, ObjectMeta, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, UpdateVersion,
};
use reqwest::header::{HeaderValue, IF_MATCH, IF_NONE_MATCH};
use xxhash_rust::xxh3::xxh3_64;

use crate::address::Url;
use crate::answer::{Answer, StoreFault};
use crate::objects::Objects;
use crate::settings::{Parts, Retry, client};
use crate::upload::{Looked, Mark, Upload, UploadFault, Version, When, Written};
use crate::watched::{Besides, is_unknown, with_header};

/// Connections that stay open between requests.
const CONNECTIONS: usize = 64;
/// Bytes of a part. Stores take 5 MiB and more.
const PART_BYTES: u64 = 8 << 20;
/// Most parts of an object, by the limit of S3.
const PARTS_MAX: u64 = 10_000;
/// Parts of one object that are under way at a time.
const PARTS_AT_ONCE: usize = 4;
/// The metadata that an object's mark is kept in: letters only, for Azure.
const MARK: &str = "shadepack";
/// Times that a write under a condition is begun: the answer may be lost, and a store may answer
/// 409 while another request is under way.
const TRIES_MAX: u32 = 8;
/// Times that a store refuses a condition that is seen to hold. Then it is one that judges them
/// wrongly, as Ceph 16 does with If-Match, and the write is repeated without.
const REFUSED_MAX: u32 = 2;
/// Wait before the second of these; it doubles.
const WAIT: Duration = Duration::from_millis(100);

/// Objects below an address, to be written.
pub struct Uploads {
    objects: Objects,
    parts: Parts,
    /// Whether the end of an object in parts may have a condition.
    has_conditions: bool,
    work: Option<String>,
}

/// A part of an object.
struct Part {
    number: usize,
    bytes: Vec<u8>,
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
    /// The settings in the environment make no client, or no thread can be started.
    pub fn open(url: &Url) -> Result<Self, StoreFault> {
        let client = client(url, CONNECTIONS, Retry::Patient)?;
        let (parts, has_conditions) = (client.parts.clone(), client.has_conditions);
        Ok(Self { objects: Objects::of_client(url, client)?, parts, has_conditions, work: None })
    }

    /// Writes beside each object from now on, where the store can, whose work it is: some letters
    /// and digits.
    pub fn mark_with(&mut self, work: String) {
        self.work = Some(work);
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
        let content = xxh3_64(&bytes);
        let bytes = PutPayload::from(bytes);
        self.under_condition(name, when, content, |when| self.put_once(name, &bytes, when, content))
    }

    fn put_once(
        &self,
        name: &str,
        bytes: &PutPayload,
        when: When<'_>,
        content: u64,
    ) -> Result<Written, StoreFault> {
        let mode = match when {
            When::Always => PutMode::Overwrite,
            When::Absent => PutMode::Create,
            When::Still(version) => PutMode::Update(UpdateVersion {
                e_tag: version.etag.clone(),
                version: version.number.clone(),
            }),
        };
        let is_bare = matches!(mode, PutMode::Overwrite);
        let work = async {
            let (path, attributes) = (self.objects.path(name), self.attributes(content));
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            match self.objects.store().put_opts(&path, bytes.clone(), options.clone()).await {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Written::Refused),
                // The user has turned conditions off, or the store has none.
                Err(error) if !is_bare && has_no_conditions(&error) => {
                    let options = PutOptions { mode: PutMode::Overwrite, ..options };
                    let put = self.objects.store().put_opts(&path, bytes.clone(), options).await;
                    Ok(Written::Done(version(put?)))
                }
                put => Ok(Written::Done(version(put?))),
            }
        };
        self.objects.wait(work)
    }

    /// Writes by `write`, under a condition. Where no answer says that it was done, this looks what
    /// became of it, and writes again if nothing did.
    fn under_condition(
        &self,
        name: &str,
        when: When<'_>,
        content: u64,
        write: impl Fn(When<'_>) -> Result<Written, StoreFault>,
    ) -> Result<Written, StoreFault> {
        let (mut wait, mut refused) = (WAIT, 0);
        for _ in 1..TRIES_MAX {
            let written = write(if refused < REFUSED_MAX { when } else { When::Always });
            match &written {
                Ok(Written::Refused) => refused += 1,
                Err(fault) if is_lost(fault.answer) => {}
                Ok(Written::Done(_)) | Err(_) => return written,
            }
            let there = self.look(name)?;
            if let Some(own) = there.as_ref().filter(|there| self.is_own(there, content)) {
                return Ok(Written::Done(own.version.clone()));
            }
            if !when.holds(there.as_ref()) {
                return Ok(Written::Refused);
            }
            std::thread::sleep(wait);
            wait *= 2;
        }
        write(when)
    }

    /// Whether an object has the mark of this work, and this content.
    fn is_own(&self, there: &Looked, content: u64) -> bool {
        let mark = there.mark.as_ref();
        mark.is_some_and(|mark| Some(&mark.work) == self.work.as_ref() && mark.content == content)
    }

    /// Begins an object in parts, whose bytes have the hash `content`; gives the upload's id. It
    /// must be [written](Self::write) or [given up](Self::give_up): stores keep its parts until
    /// then, and charge for them. The id is empty where nothing was begun.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn begin(&self, name: &str, content: u64) -> Result<String, StoreFault> {
        let parts = match &self.parts {
            Parts::Uploads(parts) => parts,
            Parts::Blocks => return Ok(String::new()),
            Parts::None => return Err(self.takes_no_parts()),
        };
        let path = self.objects.path(name);
        self.objects.wait(parts.create_multipart_opts(&path, self.options_of_parts(content)))
    }

    /// Writes an object that was begun, from what `read` gives for ranges of it. Nobody sees it
    /// before it is whole. `stop` is looked at between parts. Only S3 knows a condition here: with
    /// others, what appears while parts are sent is replaced.
    ///
    /// # Errors
    /// What the store answers instead, or `read` fails. The upload is still begun.
    pub fn write(
        &self,
        upload: Upload<'_>,
        when: When<'_>,
        read: impl Fn(Range<u64>) -> io::Result<Vec<u8>>,
        stop: impl Fn() -> bool,
    ) -> Result<Written, UploadFault> {
        let (path, id) = (self.objects.path(upload.name), upload.id.to_owned());
        let next = |range| match stop() {
            true => Err(UploadFault::Stopped),
            false => read(range).map_err(UploadFault::Read),
        };
        match &self.parts {
            Parts::Uploads(store) => {
                let put = |part: Part| store.put_part(&path, &id, part.number, part.bytes.into());
                let parts: Vec<PartId> = self.send(upload.bytes, next, put)?;
                let end = |when: When<'_>| self.end(&**store, &path, &id, &parts, self.condition(when));
                self.ended(upload, when, end).map_err(UploadFault::Store)
            }
            Parts::Blocks => {
                let begun =
                    self.objects.store().put_multipart_opts(&path, self.options_of_parts(upload.content));
                let mut blocks = self.objects.wait(begun).map_err(UploadFault::Store)?;
                let _: Vec<()> = self.send(upload.bytes, next, |part| blocks.put_part(part.bytes.into()))?;
                let end = |_: When<'_>| Ok(Written::Done(version(self.objects.wait(blocks.complete())?)));
                self.ended(upload, when, end).map_err(UploadFault::Store)
            }
            Parts::None => Err(UploadFault::Store(self.takes_no_parts())),
        }
    }

    /// Sends all parts of an object of `bytes` bytes by `put`, some at a time.
    fn send<T, Sent: Future<Output = Result<T, Error>>>(
        &self,
        bytes: u64,
        next: impl Fn(Range<u64>) -> Result<Vec<u8>, UploadFault>,
        mut put: impl FnMut(Part) -> Sent,
    ) -> Result<Vec<T>, UploadFault> {
        // What ends the work that is not the store's.
        let other = std::cell::RefCell::new(None);
        let work = async {
            let part = |(number, range): (usize, Range<u64>)| {
                let sent = match next(range) {
                    Ok(bytes) => Some(put(Part { number, bytes })),
                    Err(fault) => {
                        *other.borrow_mut() = Some(fault);
                        None
                    }
                };
                async {
                    let ended =
                        Error::NotImplemented { operation: String::new(), implementer: String::new() };
                    sent.ok_or(ended)?.await
                }
            };
            let parts = futures_util::stream::iter(parts_of(bytes).enumerate().map(part));
            parts.buffered(PARTS_AT_ONCE).try_collect().await
        };
        let parts = self.objects.wait(work);
        other.into_inner().map_or(parts.map_err(UploadFault::Store), Err)
    }

    /// The header of a condition, where it is not `object_store` that writes it.
    fn condition(&self, when: When<'_>) -> Option<Besides> {
        match when {
            _ if !self.has_conditions => None,
            When::Always => None,
            When::Absent => Some(Besides { name: IF_NONE_MATCH, value: HeaderValue::from_static("*") }),
            When::Still(version) => {
                let value = HeaderValue::from_str(version.etag.as_deref()?).ok()?;
                Some(Besides { name: IF_MATCH, value })
            }
        }
    }

    /// Makes an object of its parts.
    fn end(
        &self,
        store: &dyn MultipartStore,
        path: &Path,
        id: &String,
        parts: &[PartId],
        condition: Option<Besides>,
    ) -> Result<Written, StoreFault> {
        let work = async {
            let end = || store.complete_multipart(path, id, parts.to_vec());
            let ended = match condition {
                None => end().await,
                Some(header) => match with_header(header, end()).await {
                    Err(_) if is_unknown() => end().await,
                    ended => ended,
                },
            };
            match ended {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Written::Refused),
                ended => Ok(Written::Done(version(ended?))),
            }
        };
        self.objects.wait(work)
    }

    /// Ends an upload. Where no answer says that it was done, this looks what became of it.
    fn ended(
        &self,
        upload: Upload<'_>,
        when: When<'_>,
        mut end: impl FnMut(When<'_>) -> Result<Written, StoreFault>,
    ) -> Result<Written, StoreFault> {
        let ended = end(when);
        match &ended {
            Ok(Written::Done(_)) => return ended,
            Ok(Written::Refused) => {}
            // Blocks are gone once they are an object, so a second request is a bad one.
            Err(fault) if fault.answer == Answer::Refused && matches!(self.parts, Parts::Blocks) => {}
            // A second request to end an upload finds none, which some stores call forbidden.
            Err(fault) if matches!(fault.answer, Answer::NotFound | Answer::Forbidden) => {}
            Err(fault) if is_lost(fault.answer) => {}
            Err(_) => return ended,
        }
        match self.look(upload.name)? {
            Some(there) if there.bytes == upload.bytes && self.is_own(&there, upload.content) => {
                Ok(Written::Done(there.version))
            }
            // A store that judges conditions wrongly.
            there if matches!(ended, Ok(Written::Refused)) && when.holds(there.as_ref()) => end(When::Always),
            _ => ended,
        }
    }

    /// Removes the parts of an upload. One that is over is fine.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn give_up(&self, name: &str, id: &str) -> Result<(), StoreFault> {
        match &self.parts {
            Parts::Uploads(parts) => {
                gone(self.objects.wait(parts.abort_multipart(&self.objects.path(name), &id.to_owned())))
            }
            // Azure forgets blocks without an object after a week.
            Parts::Blocks => Ok(()),
            Parts::None => Err(self.takes_no_parts()),
        }
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
    pub fn look(&self, name: &str) -> Result<Option<Looked>, StoreFault> {
        let work = async {
            let options = GetOptions { head: true, ..GetOptions::default() };
            match self.objects.store().get_opts(&self.objects.path(name), options).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => {
                    let found = found?;
                    let mark = found.attributes.get(&Attribute::Metadata(MARK.into()));
                    let mark = mark.and_then(|mark| Mark::of_text(mark.as_ref()));
                    let (bytes, version) = (found.meta.size, version_of(found.meta));
                    Ok(Some(Looked { bytes, version, mark }))
                }
            }
        };
        self.objects.wait(work)
    }

    /// Reads a whole object of at most `bytes_max` bytes, and its version; `None` if there is none.
    ///
    /// # Errors
    /// What the store answers instead, or it is longer.
    pub fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Vec<u8>, Version)>, StoreFault> {
        let url = self.objects.url().join(name);
        let work = async {
            match self.objects.store().get_opts(&self.objects.path(name), GetOptions::default()).await {
                Err(Error::NotFound { .. }) => Ok(None),
                got => {
                    let got = got?;
                    let (bytes, meta) = (got.meta.size, got.meta.clone());
                    if bytes > bytes_max {
                        return Ok(Some(Err(bytes)));
                    }
                    Ok(Some(Ok((got.bytes().await?.to_vec(), version_of(meta)))))
                }
            }
        };
        match self.objects.wait(work)? {
            None => Ok(None),
            Some(Ok(got)) => Ok(Some(got)),
            Some(Err(bytes)) => {
                let words = format!("{url} has {bytes} bytes, expected at most {bytes_max}");
                Err(StoreFault { answer: Answer::Wrong, status: None, wait: None, words })
            }
        }
    }

    fn takes_no_parts(&self) -> StoreFault {
        let words = format!("{}: a web server takes no objects in parts", self.objects.url());
        StoreFault { answer: Answer::Refused, status: None, wait: None, words }
    }

    fn options_of_parts(&self, content: u64) -> PutMultipartOptions {
        PutMultipartOptions { attributes: self.attributes(content), ..PutMultipartOptions::default() }
    }

    fn attributes(&self, content: u64) -> Attributes {
        let marks = self.work.iter().map(|work| Mark { work: work.clone(), content });
        marks.map(|mark| (Attribute::Metadata(MARK.into()), AttributeValue::from(mark.text()))).collect()
    }
}

/// Whether a request may have been done although this came back.
fn is_lost(answer: Answer) -> bool {
    matches!(answer, Answer::Cut | Answer::TimedOut)
}

fn has_no_conditions(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. } | Error::NotSupported { .. }) || is_unknown()
}

fn version(put: PutResult) -> Version {
    Version { etag: put.e_tag, number: put.version }
}

fn version_of(meta: ObjectMeta) -> Version {
    Version { etag: meta.e_tag, number: meta.version }
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
