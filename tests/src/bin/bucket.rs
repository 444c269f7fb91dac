//! A real S3 server for tests, s3s-fs, and before it what makes a store bad: answers that come
//! late, that refuse, that are cut, or that are of other bytes. For the Rust and the Python tests.
//!
//! `shade-test-bucket FOLDER [KEY=VALUE ...]`: each folder in FOLDER is a bucket. The first line of
//! its output is the endpoint. It ends when its standard input does. A line on its input that is a
//! list of KEY=VALUE changes how bad it is. It answers with the requests so far,
//! `connections=COUNT` for those that are open, and `KIND=COUNT` for each kind of badness that has
//! happened. A line `write NAME TEXT` makes `s3://photos/NAME` an object with this text and without
//! metadata, as somebody else would: another write of it is done before this one or after it. What
//! was late counts as `came_late` once it is done.
//!
//! With the variable `SHADE_TEST_PRODUCT` requests go to another store instead, by the variables of
//! its kind (`SHADE_TEST_SCHEME`, s3 by default), which is given what FOLDER holds at the start and
//! before each answer on standard output.
//!
//! | key | value |
//! |---|---|
//! | `latency_ms` | median of a lognormal latency of each request |
//! | `slow` | share of requests that take another second |
//! | `401` ... `599` | share of requests that are answered so |
//! | `cut` | share of answers whose connection ends in the middle |
//! | `wrong` | share of answers that are of the bytes behind those asked for |
//! | `flipped` | share of answers with one byte changed; the next answer with that byte has none |
//! | `lost` | share of writes and removals that are done, and whose answer never comes |
//! | `again` | share of those that are done twice; the second answer comes |
//! | `late` | share of those whose connection ends at once, and that are done a second later |
//! | `held:NAME` | 1: objects of this name are not written, and nobody is told |
//! | `silent:NAME` | 1: nobody hears anything once this object is written; 2: one answer comes |
//! | `unconditional` | 1: writes under a condition are answered 501 |
//! | `seed` | of all these |
//! | `keys` | at the start: it gives keys itself, good for these seconds, and takes no others |
//! | `anonymous` | 1 at the start: it takes requests without keys, and no others |
//! | `host` | at the start: the address that it listens at, 127.0.0.1 by default |
//! | `port` | at the start: the port there, a free one by default |
//! | `tls` | at the start: it speaks TLS, with `server.crt` and `server.key` in this folder |
//!
//! A file whose name has `@@` is listed with `//` there, as an object that no path can have.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test's server fails by panicking")]

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use md5::{Digest, Md5};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use shade_tests::{KEY_ID, KeyServices, Product, SECRET, SESSION_TOKEN};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{RwLock, watch};
use tokio_rustls::TlsAcceptor;

/// Spread of the logarithm of latencies, as measured at object stores.
const SIGMA: f64 = 0.4;
/// Longer answers are passed on as they come; shorter ones go out whole, in one piece.
const WHOLE_BYTES_MAX: usize = 1 << 20;

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;
/// A request with all of its body: it may be done twice, or later.
type Whole = Request<Full<Bytes>>;

/// Makes writes of an object atomic, as those of a store are: s3s-fs has an object's bytes in place
/// before its metadata.
type Objects = Mutex<BTreeMap<String, Arc<RwLock<()>>>>;

/// An object's file as it was when its ETag was computed.
#[derive(PartialEq)]
struct Known {
    inode: u64,
    bytes: u64,
    written: (i64, i64),
}

/// s3s-fs, and what it lacks to be as a store.
struct Files {
    service: S3Service,
    /// Where its buckets are.
    folder: PathBuf,
    objects: Objects,
    /// What was listed, by its path.
    etags: Mutex<BTreeMap<PathBuf, (Known, String)>>,
}

impl Files {
    /// What those hold who read or write the object at this path of an address.
    fn lock_of(&self, path: &str) -> Arc<RwLock<()>> {
        Arc::clone(self.objects.lock().unwrap().entry(path.to_owned()).or_default())
    }

    /// The ETag of the object at `path`. It may be gone since it was listed.
    fn etag(&self, path: PathBuf) -> String {
        let now = std::fs::metadata(&path).map(|found| Known {
            inode: found.ino(),
            bytes: found.len(),
            written: (found.mtime(), found.mtime_nsec()),
        });
        let mut etags = self.etags.lock().unwrap();
        if let (Ok(now), Some((known, etag))) = (&now, etags.get(&path))
            && now == known
        {
            return etag.clone();
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        let etag: String = Md5::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if let Ok(now) = now {
            etags.insert(path, (now, etag.clone()));
        }
        etag
    }

    /// A list with the ETag of each object, as stores have it: s3s-fs says it only with the object.
    fn with_etags(&self, listed: &str, bucket: &Path) -> String {
        let mut pieces = listed.split("</Key>");
        let mut text = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let key = text.rsplit("<Key>").next().unwrap_or_default();
            let escapes = ["&lt;<", "&gt;>", "&quot;\"", "&apos;'", "&amp;&"];
            let key = escapes.iter().fold(key.to_owned(), |key, pair| {
                let (escaped, plain) = pair.split_at(pair.len() - 1);
                key.replace(escaped, plain)
            });
            let etag = self.etag(bucket.join(key));
            text += &format!("</Key><ETag>&quot;{etag}&quot;</ETag>{piece}");
        }
        text.replace("@@", "//")
    }
}

/// What has the objects.
enum Backend {
    /// s3s-fs, in this process.
    Files(Files),
    Product(Box<Product>),
}

impl Backend {
    /// Does what a request asks for. What has begun is done whole, though its client may go.
    async fn call(self: &Arc<Self>, request: Whole) -> Result<Response<Body>, std::io::Error> {
        let own = Arc::clone(self);
        tokio::spawn(async move { own.call_to_its_end(request).await }).await.unwrap()
    }

    /// Waits for the end of what has begun.
    async fn settle(&self) {
        if let Self::Files(files) = self {
            let begun: Vec<_> = files.objects.lock().unwrap().values().cloned().collect();
            for object in begun {
                drop(object.write().await);
            }
        }
    }

    /// Makes `text` the object `name` in the bucket of photos.
    async fn write(&self, folder: &Path, name: &str, text: &str) {
        let object = match self {
            Self::Files(files) => files.lock_of(&format!("/photos/{name}")),
            // Is given to it, as all of the folder.
            Self::Product(_) => Arc::default(),
        };
        let _writes = object.write().await;
        std::fs::write(folder.join("photos").join(name), text).unwrap();
        let known = format!(".bucket-{}.object-{}", base64_url(b"photos"), base64_url(name.as_bytes()));
        for kind in ["metadata", "internal"] {
            let _ = std::fs::remove_file(folder.join(format!("{known}.{kind}.json")));
        }
    }

    async fn call_to_its_end(&self, request: Whole) -> Result<Response<Body>, std::io::Error> {
        match self {
            Self::Files(files) => {
                let object = files.lock_of(request.uri().path());
                let (_reads, _writes) = match is_write(&request) {
                    true => (None, Some(object.write().await)),
                    false => (Some(object.read().await), None),
                };
                let is_list = request.uri().query().is_some_and(|query| query.contains("list-type=2"));
                let bucket = files.folder.join(request.uri().path().trim_matches('/'));
                let (parts, body) = request.into_parts();
                let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
                let answer = files.service.call(Request::from_parts(parts, s3s::Body::from(body))).await;
                let answer = answer.map_err(|error| std::io::Error::other(format!("{error:?}")))?;
                let (mut parts, body) = answer.into_parts();
                let body = body.map_err(std::io::Error::other).boxed_unsync();
                if !is_list || !parts.status.is_success() {
                    return Ok(Response::from_parts(parts, body));
                }
                let listed = first_bytes(body, usize::MAX).await?;
                let listed = files.with_etags(&String::from_utf8_lossy(&listed), &bucket);
                parts.headers.insert("content-length", listed.len().into());
                let body = Full::new(Bytes::from(listed));
                Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
            }
            Self::Product(product) => {
                let answer = product.call(request).await?;
                Ok(answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
            }
        }
    }
}

/// How bad the store is.
#[derive(Clone, Default, PartialEq)]
struct Badness {
    shares: BTreeMap<String, f64>,
}

impl Badness {
    fn share(&self, key: &str) -> f64 {
        self.shares.get(key).copied().unwrap_or_default()
    }

    /// The value of `KIND:NAME` for a request of an object of that name.
    fn of_object(&self, kind: &str, request: &Whole) -> Option<f64> {
        let name = request.uri().path().rsplit('/').next()?;
        self.shares.get(&format!("{kind}:{name}")).copied()
    }
}

/// What happens to one request.
#[derive(Default)]
struct Fate {
    wait: Duration,
    status: Option<u16>,
    cut: bool,
    wrong: bool,
    flipped: bool,
    lost: bool,
    again: bool,
    late: bool,
}

/// A byte of an object.
#[derive(PartialEq, Eq, Hash)]
struct Byte {
    object: String,
    offset: u64,
}

/// The range that an answer is about, by its `Content-Range`.
fn range_of(answer: &Parts) -> Option<Range<u64>> {
    let range = answer.headers.get("content-range")?.to_str().ok()?.strip_prefix("bytes ")?;
    let (first, last) = range.split_once('/')?.0.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
}

struct Store {
    backend: Arc<Backend>,
    keys: Option<KeyServices>,
    badness: watch::Sender<Badness>,
    random: Mutex<StdRng>,
    requests: AtomicU64,
    /// Those that are open.
    connections: AtomicU64,
    /// The answers that are given yet before it falls silent, if it does.
    answers_left: Mutex<Option<u64>>,
    happened: Mutex<BTreeMap<String, u64>>,
    /// What was flipped and has not been given as it is since then.
    flipped: Mutex<HashSet<Byte>>,
}

impl Store {
    fn fate(&self) -> Fate {
        let badness = self.badness.borrow().clone();
        let random = &mut *self.random.lock().unwrap();
        let mut fate = Fate::default();
        let median_ms = badness.share("latency_ms");
        if median_ms > 0.0 {
            let ms = LogNormal::new(median_ms.ln(), SIGMA).unwrap().sample(random);
            fate.wait = Duration::from_secs_f64(ms / 1e3);
        }
        let mut happens = |key: &str| random.random_bool(badness.share(key));
        if happens("slow") {
            fate.wait += Duration::from_secs(1);
        }
        fate.status = badness
            .shares
            .keys()
            .filter_map(|key| key.parse().ok())
            .find(|status: &u16| happens(&status.to_string()));
        fate.cut = happens("cut");
        fate.wrong = happens("wrong");
        fate.flipped = happens("flipped");
        fate.lost = happens("lost");
        fate.again = happens("again");
        fate.late = happens("late");
        fate
    }

    /// Is as bad as that from now on.
    fn be(&self, badness: Badness) {
        self.badness.send_if_modified(|before| {
            let has_changed = *before != badness;
            if has_changed {
                *before = badness;
                *self.answers_left.lock().unwrap() = None;
            }
            has_changed
        });
    }

    fn happens(&self, kind: &str) {
        *self.happened.lock().unwrap().entry(kind.to_owned()).or_default() += 1;
    }

    /// Whether the byte in the middle of a whole answer is changed. A record whose bytes are wrong
    /// twice is damaged, so a byte that was changed is given as it is the next time.
    fn flips(&self, object: &str, range: Option<Range<u64>>, fate: &Fate) -> bool {
        let Some(range) = range.filter(|_| !fate.cut && !fate.wrong) else { return false };
        let mut flipped = self.flipped.lock().unwrap();
        let before = flipped.len();
        flipped.retain(|byte| byte.object != object || !range.contains(&byte.offset));
        let flips = fate.flipped && flipped.len() == before;
        if flips {
            flipped.insert(Byte { object: object.to_owned(), offset: range.start.midpoint(range.end) });
        }
        flips
    }

    /// The requests so far, and what happened to them; and the connections.
    fn told(&self) -> String {
        let happened = self.happened.lock().unwrap();
        let counts: String = happened.iter().map(|(kind, count)| format!(" {kind}={count}")).collect();
        let [requests, connections] =
            [&self.requests, &self.connections].map(|count| count.load(Ordering::Relaxed));
        format!("{requests} connections={connections}{counts}")
    }

    /// What becomes of a write or a removal; `None` if nothing odd does, and the request is done as
    /// any other.
    async fn written(
        self: &Arc<Self>,
        request: &Whole,
        fate: &Fate,
    ) -> Option<std::io::Result<Response<Body>>> {
        let badness = self.badness.borrow().clone();
        if !is_write(request) {
            return None;
        }
        let conditions = ["if-match", "if-none-match"];
        let has_condition = conditions.iter().any(|name| request.headers().contains_key(*name));
        if has_condition && badness.share("unconditional") > 0.0 {
            self.happens("unconditional");
            return Some(Ok(made_answer(501)));
        }
        let lost = || Some(Err(std::io::Error::other("lost")));
        if fate.late {
            self.happens("late");
            let (backend, request) = (Arc::clone(&self.backend), request.clone());
            let store = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = backend.call(request).await;
                store.happens("came_late");
            });
            return lost();
        }
        if fate.lost || fate.again {
            self.happens(if fate.lost { "lost" } else { "again" });
            let first = self.backend.call(request.clone()).await;
            // It is done when its body has come.
            let done = first.map(|answer| first_bytes(answer.into_body(), usize::MAX));
            let _ = done.ok()?.await;
            if fate.lost {
                return lost();
            }
        }
        fate.again.then_some(())?;
        Some(self.backend.call(request.clone()).await)
    }

    /// The answer to a request for keys, or to one that is not signed by such.
    fn answer_of_keys(&self, request: &Whole) -> Option<Response<Body>> {
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        let (uri, keys) = (request.uri(), self.keys.as_ref()?);
        let query = uri.query().unwrap_or_default();
        if let Some((status, text)) = keys.answer(request.method().as_str(), uri.path(), query, header) {
            self.happens("keys");
            return Some(answer_of(status, text));
        }
        (header("x-amz-security-token") != Some(SESSION_TOKEN)).then(|| made_answer(403))
    }

    /// Keeps a request without an answer until the store is good again, or bad in another way.
    async fn silence(&self, mut badness: watch::Receiver<Badness>) -> std::io::Error {
        self.happens("silent");
        // Its sender lives as long as the store.
        let _ = badness.changed().await;
        std::io::Error::other("silent")
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let request = Request::from_parts(parts, Full::new(body));
        if let Some(answer) = self.answer_of_keys(&request) {
            return Ok(answer);
        }
        let mut changes = self.badness.subscribe();
        let badness = changes.borrow_and_update().clone();
        let is_held = is_write(&request) && badness.of_object("held", &request).is_some();
        if is_held || *self.answers_left.lock().unwrap() == Some(0) {
            return Err(self.silence(changes).await);
        }
        let silent_from = badness.of_object("silent", &request).filter(|_| makes_object(&request));
        let answer = self.done(request).await?;
        let is_silent = {
            let mut left = self.answers_left.lock().unwrap();
            if let Some(first) = silent_from.filter(|_| answer.status().is_success()) {
                *left = Some(whole(first) - 1);
            }
            let is_silent = *left == Some(0);
            *left = left.map(|left| left.saturating_sub(1));
            is_silent
        };
        if is_silent { Err(self.silence(changes).await) } else { Ok(answer) }
    }

    /// Does what a request asks for, well or badly.
    async fn done(self: &Arc<Self>, request: Whole) -> Result<Response<Body>, std::io::Error> {
        let fate = self.fate();
        if fate.wait >= Duration::from_secs(1) {
            self.happens("slow");
        }
        tokio::time::sleep(fate.wait).await;
        if let Some(status) = fate.status {
            self.happens(&status.to_string());
            return Ok(made_answer(status));
        }
        if let Some(answer) = self.written(&request, &fate).await {
            return answer;
        }
        let object = request.uri().path().to_owned();
        let (mut parts, body) = self.backend.call(request).await?.into_parts();
        let flips = self.flips(&object, range_of(&parts), &fate);
        if fate.wrong
            && let Some(range) = parts.headers.get_mut("content-range")
        {
            self.happens("wrong");
            // "bytes 512-1023/4096" becomes another range of the same length.
            let text = range.to_str().unwrap().replacen("bytes ", "bytes 1", 1);
            *range = text.parse().unwrap();
        }
        let length = parts.headers.get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(usize::MAX);
        if (WHOLE_BYTES_MAX..usize::MAX).contains(&length) && !fate.cut && !flips {
            return Ok(Response::from_parts(parts, passed_on(body, length)));
        }
        let mut bytes = first_bytes(body, length).await?;
        let middle = bytes.len() / 2;
        if flips && let Some(byte) = bytes.get_mut(middle) {
            self.happens("flipped");
            *byte ^= 0x10;
        }
        let mut frames = vec![Ok(Frame::data(Bytes::from(bytes)))];
        if fate.cut {
            self.happens("cut");
            frames = vec![
                frames.remove(0).map(|frame| Frame::data(frame.into_data().unwrap().slice(..middle))),
                Err(std::io::Error::other("cut")),
            ];
        }
        Ok(Response::from_parts(parts, StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()))
    }
}

/// The encoding of names by s3s-fs: base64 for URLs, without padding.
#[expect(clippy::indexing_slicing, reason = "by a number of six bits")]
fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let of_three = |three: &[u8]| {
        let bits =
            (0..3).fold(0, |bits, at| bits << 8 | usize::from(three.get(at).copied().unwrap_or_default()));
        (0..=three.len()).map(|at| char::from(LETTERS[bits >> (18 - 6 * at) & 63])).collect::<String>()
    };
    bytes.chunks(3).map(of_three).collect()
}

fn is_write(request: &Whole) -> bool {
    ![Method::GET, Method::HEAD].contains(request.method())
}

/// Whether a request, if it is done, leaves an object: with many parts, the last one.
fn makes_object(request: &Whole) -> bool {
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::PUT => !["partNumber=", "blockid="].iter().any(|part| query.contains(part)),
        Method::POST => query.contains("uploadId="),
        _ => false,
    }
}

/// An answer that no store gave.
fn made_answer(status: u16) -> Response<Body> {
    let text = format!("<Error><Code>Made{status}</Code><Message>by the test</Message></Error>");
    answer_of(status, text)
}

fn answer_of(status: u16, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// The bytes of an answer, as many as it promises: s3s-fs reads on to the end of the object.
async fn first_bytes(mut body: Body, length: usize) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Some(Err(error)) => return Err(std::io::Error::other(error.to_string())),
        }
    }
    Ok(bytes)
}

/// The same bytes, as they come.
fn passed_on(body: Body, length: usize) -> Body {
    let pieces = futures_util::stream::unfold((body, length), |(mut body, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = body.frame().await?.map(|frame| {
            let data = frame.into_data().unwrap_or_default();
            data.slice(..data.len().min(left))
        });
        let left = piece.as_ref().map_or(0, |data| left - data.len());
        Some((piece.map(Frame::data), (body, left)))
    });
    StreamBody::new(pieces).boxed_unsync()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// "cut=0.1 503=0.02".
fn badness_of<'a>(words: impl Iterator<Item = &'a str>) -> Badness {
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("'{word}' is no KEY=VALUE"));
        (key.to_owned(), value.parse().unwrap())
    };
    Badness { shares: words.map(pair).collect() }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap());
    let mut words: Vec<String> = arguments.collect();
    let mut text_of = |key: &str| {
        let at = words.iter().position(|word| word.starts_with(&format!("{key}=")))?;
        words.remove(at).split_once('=').map(|(_, value)| value.to_owned())
    };
    let host = text_of("host").unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = text_of("port").map_or(0, |port| port.parse().unwrap());
    let tls = text_of("tls").map(|folder| acceptor(Path::new(&folder)));
    let badness = badness_of(words.iter().map(String::as_str));
    let store = Arc::new(Store {
        backend: Arc::new(backend(&folder, badness.share("anonymous") > 0.0)),
        keys: (badness.share("keys") > 0.0).then(|| KeyServices::new(whole(badness.share("keys")))),
        random: Mutex::new(StdRng::seed_from_u64(whole(badness.share("seed")))),
        badness: watch::Sender::new(badness),
        requests: AtomicU64::new(0),
        connections: AtomicU64::new(0),
        answers_left: Mutex::default(),
        happened: Mutex::default(),
        flipped: Mutex::default(),
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind((host, port))).unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    println!("{scheme}://{}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    runtime.spawn(serve(listener, tls, Arc::clone(&store)));
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        match line.strip_prefix("write ").and_then(|order| order.split_once(' ')) {
            Some((name, text)) => runtime.block_on(store.backend.write(&folder, name, text)),
            None => store.be(badness_of(line.split_whitespace())),
        }
        if let Backend::Product(product) = &*store.backend {
            product.take(&folder);
        }
        // What the last of the connections had asked for goes on without them.
        let told = store.told();
        runtime.block_on(store.backend.settle());
        println!("{told}");
        std::io::stdout().flush().unwrap();
    }
}

fn backend(folder: &Path, is_anonymous: bool) -> Backend {
    if let Some(product) = Product::of_environment() {
        product.clear(folder);
        product.take(folder);
        return Backend::Product(Box::new(product));
    }
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).unwrap());
    if !is_anonymous {
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
    }
    Backend::Files(Files {
        service: builder.build(),
        folder: folder.to_owned(),
        objects: Objects::default(),
        etags: Mutex::default(),
    })
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain = CertificateDer::pem_file_iter(folder.join("server.crt")).unwrap().map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain.collect(), key);
    Arc::new(config.unwrap()).into()
}

async fn serve(listener: tokio::net::TcpListener, tls: Option<TlsAcceptor>, store: Arc<Store>) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (tls, store) = (tls.clone(), Arc::clone(&store));
        tokio::spawn(async move {
            store.connections.fetch_add(1, Ordering::Relaxed);
            match tls {
                None => answer_all(socket, &store).await,
                // A client that does not trust it goes.
                Some(tls) => {
                    if let Ok(secure) = tls.accept(socket).await {
                        answer_all(secure, &store).await;
                    }
                }
            }
            store.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Answers the requests of a connection.
async fn answer_all(connection: impl AsyncRead + AsyncWrite + Unpin + 'static, store: &Arc<Store>) {
    let service = hyper::service::service_fn(move |request| {
        let store = Arc::clone(store);
        async move { store.answer(request).await }
    });
    // A client may go at any moment.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(connection), service).await;
}
