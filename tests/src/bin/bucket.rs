//! A real S3 server for tests, s3s-fs, and before it what makes a store bad: answers that come
//! late, that refuse, that are cut, or that are of other bytes. For the Rust and the Python tests.
//!
//! `shade-test-bucket FOLDER [KEY=VALUE ...]`: each folder in FOLDER is a bucket. The first line of
//! its output is the endpoint. It ends when its standard input does. A line on its input that is a
//! list of KEY=VALUE changes how bad it is; it answers with the requests so far.
//!
//! | key | value |
//! |---|---|
//! | `latency_ms` | median of a lognormal latency of each request |
//! | `slow` | share of requests that take another second |
//! | `401` ... `599` | share of requests that are answered so |
//! | `cut` | share of answers whose connection ends in the middle |
//! | `wrong` | share of answers that are of the bytes behind those asked for |
//! | `flipped` | share of answers with one byte changed |
//! | `seed` | of all these |
//! | `anonymous` | 1 at the start: it takes requests without keys, and no others |
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test's server fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use md5::{Digest, Md5};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};

/// The keys that it takes.
const KEY_ID: &str = "shade";
const SECRET: &str = "a secret of shade's tests";
/// Spread of the logarithm of latencies, as measured at object stores.
const SIGMA: f64 = 0.4;

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

/// How bad the store is.
#[derive(Clone, Default)]
struct Badness {
    shares: BTreeMap<String, f64>,
}

impl Badness {
    fn share(&self, key: &str) -> f64 {
        self.shares.get(key).copied().unwrap_or_default()
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
}

struct Store {
    service: S3Service,
    /// Where its buckets are.
    folder: PathBuf,
    badness: Mutex<Badness>,
    random: Mutex<StdRng>,
    requests: AtomicU64,
}

impl Store {
    fn fate(&self) -> Fate {
        let badness = self.badness.lock().unwrap().clone();
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
        fate
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let fate = self.fate();
        tokio::time::sleep(fate.wait).await;
        if let Some(status) = fate.status {
            let text = format!("<Error><Code>Made{status}</Code><Message>by the test</Message></Error>");
            let body =
                http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
            return Ok(Response::builder().status(status).body(body).unwrap());
        }
        let is_list = request.uri().query().is_some_and(|query| query.contains("list-type=2"));
        let bucket = request.uri().path().trim_matches('/').to_owned();
        let answer = hyper::service::Service::call(&self.service, request).await;
        let (mut parts, mut body) =
            answer.map_err(|error| std::io::Error::other(format!("{error:?}")))?.into_parts();
        if is_list && parts.status.is_success() {
            let listed = first_bytes(body, usize::MAX).await?;
            let listed = with_etags(&String::from_utf8_lossy(&listed), &self.folder.join(bucket));
            parts.headers.insert("content-length", listed.len().into());
            body = s3s::Body::from(listed);
        }
        if fate.wrong
            && let Some(range) = parts.headers.get_mut("content-range")
        {
            // "bytes 512-1023/4096" becomes another range of the same length.
            let text = range.to_str().unwrap().replacen("bytes ", "bytes 1", 1);
            *range = text.parse().unwrap();
        }
        let length = parts.headers.get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(usize::MAX);
        let mut bytes = first_bytes(body, length).await?;
        let middle = bytes.len() / 2;
        if fate.flipped
            && let Some(byte) = bytes.get_mut(middle)
        {
            *byte ^= 0x10;
        }
        let mut frames = vec![Ok(Frame::data(Bytes::from(bytes)))];
        if fate.cut {
            frames = vec![
                frames.remove(0).map(|frame| Frame::data(frame.into_data().unwrap().slice(..middle))),
                Err(std::io::Error::other("cut")),
            ];
        }
        Ok(Response::from_parts(parts, StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()))
    }
}

/// A list with the ETag of each object, as stores have it: s3s-fs says it only with the object.
fn with_etags(listed: &str, bucket: &Path) -> String {
    let mut pieces = listed.split("</Key>");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let key = text.rsplit("<Key>").next().unwrap_or_default();
        let key =
            ["&lt;<", "&gt;>", "&quot;\"", "&apos;'", "&amp;&"].iter().fold(key.to_owned(), |key, pair| {
                let (escaped, plain) = pair.split_at(pair.len() - 1);
                key.replace(escaped, plain)
            });
        // It may be gone since.
        let bytes = std::fs::read(bucket.join(key)).unwrap_or_default();
        let etag: String = Md5::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("</Key><ETag>&quot;{etag}&quot;</ETag>{piece}");
    }
    text
}

/// The bytes of an answer, as many as it promises: s3s-fs reads on to the end of the object.
async fn first_bytes(mut body: s3s::Body, length: usize) -> Result<Vec<u8>, std::io::Error> {
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
    let words: Vec<String> = arguments.collect();
    let badness = badness_of(words.iter().map(String::as_str));
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(&folder).unwrap());
    if badness.share("anonymous") == 0.0 {
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
    let seed = badness.share("seed") as u64;
    let store = Arc::new(Store {
        service: builder.build(),
        folder,
        badness: Mutex::new(badness),
        random: Mutex::new(StdRng::seed_from_u64(seed)),
        requests: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    runtime.spawn(serve(listener, Arc::clone(&store)));
    for line in std::io::stdin().lock().lines() {
        *store.badness.lock().unwrap() = badness_of(line.unwrap().split_whitespace());
        println!("{}", store.requests.load(Ordering::Relaxed));
        std::io::stdout().flush().unwrap();
    }
}

async fn serve(listener: tokio::net::TcpListener, store: Arc<Store>) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let store = Arc::clone(&store);
                async move { store.answer(request).await }
            });
            // A client may go at any moment.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
