//! A product or an emulator of one, in place of the server that the tests bring: it is given their
//! objects and asked what they ask.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use shade_dataset::{Address, Found, Uploads, When};

use crate::Cloud;

/// The product at the address that [`Cloud`]'s variables say, which has the buckets of the tests.
pub struct Product {
    endpoint: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
    /// When each file that it was given was written.
    given: Mutex<HashMap<PathBuf, SystemTime>>,
}

/// A bucket of the tests, and the folder that stands for it.
struct TestBucket {
    path: PathBuf,
    uploads: Uploads,
}

fn buckets(folder: &Path) -> Vec<TestBucket> {
    let folders = fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let of = |entry: fs::DirEntry| TestBucket {
        path: entry.path(),
        uploads: opened(&format!("s3://{}", entry.file_name().display())),
    };
    folders.map(of).collect()
}

fn opened(url: &str) -> Uploads {
    let Ok(Address::Url(url)) = Address::parse(&Cloud::tested().given(url)) else {
        panic!("{url} is no address")
    };
    Uploads::open(&url).unwrap()
}

impl Product {
    /// The one that the variable `SHADE_TEST_PRODUCT` asks for; `None` without it.
    ///
    /// # Panics
    /// When the variables say no address.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        std::env::var_os("SHADE_TEST_PRODUCT")?;
        let (variable, _) = Cloud::tested().at("");
        let endpoint = std::env::var(variable).unwrap().parse().unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Some(Self { endpoint, client, given: Mutex::default() })
    }

    /// Its answer. The request's signature stays true: it covers the `Host` that the client wrote,
    /// which stays, too.
    ///
    /// # Errors
    /// None comes.
    pub async fn call(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        // The path is whole: where an endpoint has one, requests begin with it.
        let mut parts = self.endpoint.clone().into_parts();
        parts.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(parts).map_err(Error::other)?;
        self.client.request(request).await.map_err(Error::other)
    }

    /// Removes all objects of its buckets that folders in `folder` stand for: those of other tests.
    ///
    /// # Panics
    /// When it does not.
    pub fn clear(&self, folder: &Path) {
        for uploads in buckets(folder).into_iter().map(|bucket| bucket.uploads) {
            for found in uploads.objects().list().unwrap() {
                uploads.remove(&found.name).unwrap();
            }
        }
    }

    /// What it has below `s3://photos/NAME`, which a command has made, by names; `None` where the
    /// tests' own server is used.
    ///
    /// # Panics
    /// When it does not give that, or an object has not the mark of the command's work.
    #[must_use]
    pub fn objects_at(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        std::env::var_os("SHADE_TEST_PRODUCT")?;
        let uploads = opened(&format!("s3://photos/{name}"));
        let listed = uploads.objects().list().unwrap();
        let got = |found: Found| {
            let known = uploads.look(&found.name).unwrap().unwrap();
            assert!(known.mark.is_some(), "{}: {known:?}", found.name);
            let (bytes, _) = uploads.get(&found.name, u64::MAX).unwrap().unwrap();
            (found.name, bytes)
        };
        Some(listed.into_iter().map(got).collect())
    }

    /// Gives it the files below `folder` that are new: each folder in it is a bucket.
    ///
    /// # Panics
    /// When it does not take them.
    pub fn take(&self, folder: &Path) {
        for TestBucket { path, uploads } in buckets(folder) {
            self.take_below(&path, &path, &uploads);
        }
    }

    fn put(&self, uploads: &Uploads, name: &str, bytes: Vec<u8>) {
        if Cloud::tested() != Cloud::Google {
            uploads.put(name, bytes, When::Always).unwrap();
            return;
        }
        // The emulator takes objects only as Google's own library sends them, which shade has not.
        let name: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (endpoint, bucket) = (&self.endpoint, uploads.objects().url().bucket());
        let uri = format!("{endpoint}upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}");
        let request = Request::post(uri).header("content-type", "application/octet-stream");
        let request = request.body(Full::new(Bytes::from(bytes))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = runtime.block_on(client.request(request)).unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    fn take_below(&self, bucket: &Path, folder: &Path, uploads: &Uploads) {
        for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                self.take_below(bucket, &path, uploads);
                continue;
            }
            let written = path.metadata().unwrap().modified().unwrap();
            let before =
                self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone(), written);
            if before != Some(written) {
                let name = path.strip_prefix(bucket).unwrap().to_str().unwrap();
                self.put(uploads, name, fs::read(&path).unwrap());
            }
        }
    }
}
