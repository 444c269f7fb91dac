//! Reads objects below a prefix.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::{Path, PathPart};
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::address::Url;
use crate::answer::{Answer, Found, StoreFault};
use crate::insecure::Insecure;
use crate::settings::{Client, Retry, client};
use crate::watched::{Seen, Watching, cause, watching};

/// Threads that sockets and TLS are served by. One carries some thousand requests a second.
const THREADS: usize = 2;
/// Words of a store that an error repeats at most, in bytes.
const WORDS_MAX: usize = 300;

/// The objects below an address. Threads and tasks may share it.
pub struct Objects {
    url: Url,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    threads: Handle,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Objects {
    /// The last user may be a task on these threads, which cannot wait for themselves.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.url.as_str()).finish()
    }
}

impl Objects {
    /// A client for the objects below `url`, which keeps at most `connections` open between
    /// requests. Nothing is asked yet.
    ///
    /// # Errors
    /// The settings in the environment make no client, or no thread can be started.
    pub fn open(url: &Url, connections: usize) -> Result<Self, StoreFault> {
        Self::of_client(url, client(url, connections, Retry::Never)?)
    }

    /// The objects that this client talks about.
    pub(crate) fn of_client(url: &Url, client: Client) -> Result<Self, StoreFault> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).max_blocking_threads(4);
        let runtime =
            builder.thread_name("shade-objects").enable_all().build().map_err(|error| StoreFault {
                answer: Answer::Unasked,
                status: None,
                wait: None,
                words: format!("cannot start a thread: {error}"),
            })?;
        let threads = runtime.handle().clone();
        let (store, prefix) = (client.store, client.prefix);
        Ok(Self { url: url.clone(), store, prefix, threads, runtime: Some(runtime) })
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Runs `task` on the client's threads.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.threads.spawn(task));
    }

    /// Waits, in a task on the client's threads.
    pub async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Reads the bytes `range` of an object and hands them to `take` in their order. With `etag`
    /// only of that version of it. All of the range has come when it returns.
    ///
    /// # Errors
    /// What the store answers instead. Some bytes may have come before.
    pub async fn read(
        &self,
        name: &str,
        range: Range<u64>,
        etag: Option<&str>,
        mut take: impl FnMut(&[u8]) + Send,
    ) -> Result<Found, StoreFault> {
        let (wanted, end) = (range.end.saturating_sub(range.start), range.end);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: etag.map(str::to_owned),
            ..GetOptions::default()
        };
        let work = async {
            let mut got = 0;
            let answer = self.store.get_opts(&self.path(name), options).await?;
            let found = found(name, &answer);
            let mut pieces = answer.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                got += piece.len() as u64;
                if got > wanted {
                    break;
                }
                take(&piece);
            }
            Ok((found, got))
        };
        let (found, got) = judged(watching(work).await)?;
        if got == wanted {
            return Ok(found);
        }
        let (answer, what) = match got < wanted {
            true if found.bytes < end => (Answer::OutOfRange, "only"),
            true => (Answer::Cut, "only"),
            false => (Answer::Wrong, "more than"),
        };
        let words = format!("{what} {got} of {wanted} bytes came");
        Err(StoreFault { answer, status: None, wait: None, words })
    }

    /// As [`read`](Self::read), and waits for it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_now(
        &self,
        name: &str,
        range: Range<u64>,
        etag: Option<&str>,
        take: impl FnMut(&[u8]) + Send,
    ) -> Result<Found, StoreFault> {
        self.threads.block_on(self.read(name, range, etag, take))
    }

    /// Reads a whole object of at most `bytes_max` bytes, and waits for it; nothing if the object
    /// is still of the version `etag`.
    ///
    /// # Errors
    /// What the store answers instead, or it is longer.
    pub fn get_if_new(
        &self,
        name: &str,
        etag: Option<&str>,
        bytes_max: u64,
    ) -> Result<Option<(Vec<u8>, Found)>, StoreFault> {
        let options = GetOptions { if_none_match: etag.map(str::to_owned), ..GetOptions::default() };
        let work = async {
            let answer = match self.store.get_opts(&self.path(name), options).await {
                Err(Error::NotModified { .. }) => return Ok(None),
                answer => answer?,
            };
            let found = found(name, &answer);
            let mut bytes = Vec::new();
            let mut pieces = answer.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                if (bytes.len() + piece.len()) as u64 > bytes_max {
                    break;
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Some((bytes, found)))
        };
        let Some((bytes, found)) = judged(self.threads.block_on(watching(work)))? else { return Ok(None) };
        if bytes.len() as u64 == found.bytes {
            return Ok(Some((bytes, found)));
        }
        let words =
            format!("{} has {} bytes, expected at most {bytes_max}", self.url.join(name), found.bytes);
        Err(StoreFault { answer: Answer::Wrong, status: None, wait: None, words })
    }

    /// All objects below the address, in the order of their names.
    ///
    /// # Errors
    /// What the store answers instead.
    pub fn list(&self) -> Result<Vec<Found>, StoreFault> {
        let mut all = Vec::new();
        self.list_behind(None, |found| all.push(found))?;
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The objects in a folder below the address, and in those below that. Nothing else is asked
    /// for: other keys may be no business of these credentials, and many.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn list_in(&self, folder: &str) -> Result<Vec<Found>, StoreFault> {
        let prefix = self.path(folder);
        let work =
            async { self.store.list(Some(&prefix)).map_ok(|object| self.listed(object)).try_collect().await };
        self.wait(work)
    }

    /// As [`list`](Self::list), the first `most` that the store names.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn list_some(&self, most: usize) -> Result<Vec<Found>, StoreFault> {
        let work = async {
            let objects = self.store.list(Some(&self.prefix)).take(most);
            objects.map_ok(|object| self.listed(object)).try_collect().await
        };
        let mut all: Vec<Found> = self.wait(work)?;
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Hands the objects below the address to `take` as the store lists them, a thousand or so with
    /// each answer: those behind the name `after`, if one is given. Most stores list in the order
    /// of names, so that a list which was cut can go on.
    ///
    /// # Errors
    /// What the store answers instead. Some objects may have come before.
    pub fn list_behind(&self, after: Option<&str>, mut take: impl FnMut(Found)) -> Result<(), StoreFault> {
        let work = async {
            let mut objects = match after {
                Some(after) => self.store.list_with_offset(Some(&self.prefix), &self.path(after)),
                None => self.store.list(Some(&self.prefix)),
            };
            while let Some(object) = objects.next().await {
                take(self.listed(object?));
            }
            Ok(())
        };
        self.wait(work)
    }

    /// Waits for some work that asks the store.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, StoreFault> {
        judged(self.threads.block_on(watching(work)))
    }

    fn listed(&self, object: ObjectMeta) -> Found {
        let mut parts = object.location.prefix_match(&self.prefix).into_iter().flatten();
        let first = parts.next().map(|part| part.as_ref().to_owned()).unwrap_or_default();
        let name = parts.fold(first, |name, part| format!("{name}/{}", part.as_ref()));
        Found { name, bytes: object.size, etag: object.e_tag }
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// The object of this name: as it is, since a name such as `a~1.jpg` that went through the
    /// crate's own encoding would be another one.
    pub(crate) fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| match PathPart::parse(part) {
            Ok(part) => path.join(part),
            Err(_) => path.join(part),
        })
    }
}

fn found(name: &str, answer: &GetResult) -> Found {
    Found { name: name.to_owned(), bytes: answer.meta.size, etag: answer.meta.e_tag.clone() }
}

/// The result of some work, with the last answer that was seen meanwhile.
fn judged<T>(work: Watching<Result<T, Error>>) -> Result<T, StoreFault> {
    let error = match work.done {
        Ok(done) => return Ok(done),
        Err(Error::InvalidPath { source }) => return Err(odd_name(&source)),
        Err(error) => error,
    };
    let words = match (cause::<Insecure>(&error), root_of(&error)) {
        (Some(why), _) => why.to_string(),
        (None, Some(root)) if !error.to_string().contains(&root) => {
            format!("{}: {root}", words_of(&error.to_string()))
        }
        _ => words_of(&error.to_string()),
    };
    let (answer, status, wait) = match work.seen {
        Some(Seen::Status { status, wait }) if status >= 300 => {
            (Answer::of_status(status), Some(status), wait)
        }
        Some(Seen::Failed(kind)) => (failed(kind), None, None),
        Some(Seen::Insecure) => (Answer::Insecure, None, None),
        Some(Seen::NoKeys) => (Answer::NoKeys, None, None),
        // A good answer about many objects, of which this is none: Azure removes them so.
        Some(Seen::Status { .. }) if matches!(error, Error::NotFound { .. }) => {
            (Answer::NotFound, None, None)
        }
        // A good answer, whose body ended early or was not what was asked for.
        Some(Seen::Status { .. }) => match cause(&error).map(HttpError::kind) {
            Some(HttpErrorKind::Timeout) => (Answer::TimedOut, None, None),
            Some(_) => (Answer::Cut, None, None),
            None => (Answer::Wrong, None, None),
        },
        None => (Answer::Unasked, None, None),
    };
    Err(StoreFault { answer, status, wait, words })
}

/// What the store or the connection said, without the request: code and message of an error of S3,
/// or what follows the request.
fn words_of(text: &str) -> String {
    let tag = |name: &str| {
        let from = text.split_once(&format!("<{name}>"))?.1;
        Some(from.split_once(&format!("</{name}>"))?.0.trim())
    };
    let mut words = match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => text.rsplit(" - ").next().unwrap_or(text).to_owned(),
    };
    // Azure's messages have several lines.
    words = words.replace(['\n', '\t'], " ");
    words.retain(|c| !c.is_control());
    if words.len() > WORDS_MAX {
        let end = (0..=WORDS_MAX).rev().find(|&at| words.is_char_boundary(at)).unwrap_or_default();
        words.truncate(end);
        words.push_str(" ...");
    }
    words
}

fn failed(kind: HttpErrorKind) -> Answer {
    match kind {
        HttpErrorKind::Connect => Answer::Unreachable,
        HttpErrorKind::Timeout => Answer::TimedOut,
        _ => Answer::Cut,
    }
}

/// The innermost cause of an error.
fn root_of(error: &Error) -> Option<String> {
    let mut root = std::error::Error::source(error)?;
    while let Some(deeper) = root.source() {
        root = deeper;
    }
    Some(root.to_string())
}

fn odd_name(error: &object_store::path::Error) -> StoreFault {
    use object_store::path::Error;
    let mut words = match error {
        Error::EmptySegment { path } | Error::BadSegment { path, .. } => path.clone(),
        error => error.to_string(),
    };
    words.retain(|c| !c.is_control());
    StoreFault { answer: Answer::OddName, status: None, wait: None, words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn the_last_user_may_be_one_of_its_own_tasks() {
        let Ok(Address::Url(url)) = Address::parse("http://127.0.0.1:9/data") else { panic!("an address") };
        let objects = Arc::new(Objects::open(&url, 1).unwrap());
        let (own, (ended_in, ended)) = (Arc::clone(&objects), std::sync::mpsc::channel());
        objects.spawn(async move {
            while Arc::strong_count(&own) > 1 {
                tokio::task::yield_now().await;
            }
            drop(own);
            ended_in.send(()).unwrap();
        });
        drop(objects);
        ended.recv().expect("the task ended without a panic");
    }

    #[test]
    fn the_store_s_words_are_short_and_plain() {
        let s3 = "Generic S3 error: Error performing GET http://h/b/k in 2ms - Server returned non-2xx status code: \
                  403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>No\u{1b}[31m \
                  entry</Message></Error>";
        assert_eq!(words_of(s3), "AccessDenied: No[31m entry");
        assert_eq!(
            words_of("Error performing GET http://h/ in 1ms - HTTP error: refused"),
            "HTTP error: refused"
        );
        assert_eq!(words_of("<Code>SlowDown</Code>"), "SlowDown");
        assert_eq!(words_of("<Code>A</Code><Message>None.\r\nId:1\n</Message>"), "A: None. Id:1");
        let long = words_of(&"\u{e4}".repeat(1000));
        assert!(long.len() <= WORDS_MAX + 4 && long.ends_with(" ..."), "{long}");
    }
}
