//! Sees what servers answer, and asks for what `object_store` cannot ask for. Its errors are texts
//! where a rule needs the status.

use std::cell::Cell;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use reqwest::StatusCode;
use reqwest::header::{HeaderName, HeaderValue};

use crate::insecure::Insecure;

tokio::task_local! {
    /// The last answer to a request of this task.
    static LAST: Cell<Option<Seen>>;
    /// What a request of this task asks for besides.
    static BESIDES: Besides;
}

/// A header that a request is sent with. Signatures need not cover it.
#[derive(Clone, Debug)]
pub(crate) struct Besides {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

/// What came back for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// An answer, with how long it asks to wait.
    Status { status: u16, wait: Option<Duration> },
    /// None.
    Failed(HttpErrorKind),
    /// No connection, as its certificate is not trusted, for example.
    Insecure,
    /// The machine has no keys of its own.
    NoKeys,
}

/// Makes clients that remember what they saw.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    reqwest: ReqwestConnector,
}

/// Requests that no server is there for, before one has ever answered. Then there is none at this
/// address, and nobody waits minutes for it.
const UNREACHABLE_MAX: u32 = 8;
/// How long a request of a patient client is asked again. A store that gives no good answer for as
/// long is asked once only: what follows, as cleaning up, would wait as long each time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
struct Watched {
    client: HttpClient,
    /// A server has answered.
    has_answered: AtomicBool,
    /// Requests before that which reached none.
    unreachable: AtomicU32,
    /// Since when no answer was good.
    down_since: Mutex<Option<Instant>>,
}

impl HttpConnector for Watch {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.reqwest.connect(options)?;
        let (has_answered, unreachable) = (AtomicBool::default(), AtomicU32::default());
        let down_since = Mutex::default();
        Ok(HttpClient::new(Watched { client, has_answered, unreachable, down_since }))
    }
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Outside of `with_header` there is none.
        let _ = BESIDES.try_with(|Besides { name, value }| {
            request.headers_mut().insert(name.clone(), value.clone());
        });
        let is_for_keys = is_for_keys(request.uri().path());
        let is_plain = request.uri().scheme_str() == Some("http");
        let mut answer = self.client.execute(request).await;
        // What will not pass is not asked for minutes.
        if let Err(error) = &answer
            && let Some(why) = Insecure::of(error, is_plain)
        {
            answer = Err(HttpError::new(HttpErrorKind::Unknown, why));
        }
        let is_hopeless = !is_for_keys && self.is_hopeless(&answer);
        let seen = match &mut answer {
            Ok(response) if is_for_keys && says_none(response.status()) => Seen::NoKeys,
            Ok(response) => {
                let after = response.headers().get("retry-after");
                let seconds = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Seen::Status { status: response.status().as_u16(), wait: seconds.map(Duration::from_secs) }
            }
            Err(error) if is_for_keys => {
                *error = HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(error.to_string()));
                Seen::NoKeys
            }
            Err(error) if cause::<Insecure>(error).is_some() => Seen::Insecure,
            Err(error) => Seen::Failed(error.kind()),
        };
        // A request outside of `watching` is nobody's to judge.
        let _ = LAST.try_with(|last| last.set(Some(seen)));
        // A store that has no such request never will: `object_store` would ask for minutes.
        match answer {
            Ok(mut response) if is_hopeless || response.status() == StatusCode::NOT_IMPLEMENTED => {
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                Ok(response)
            }
            // It stays the cause, whose words are told.
            Err(error) if is_hopeless => Err(HttpError::new(HttpErrorKind::Unknown, error)),
            answer => answer,
        }
    }
}

impl Watched {
    /// Whether this answer, with those before it, says that asking again is of no use.
    fn is_hopeless(&self, answer: &Result<HttpResponse, HttpError>) -> bool {
        let mut down_since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(response) => {
                self.has_answered.store(true, Ordering::Relaxed);
                let status = response.status();
                if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    *down_since = None;
                    return false;
                }
            }
            Err(error) if !self.has_answered.load(Ordering::Relaxed) => {
                let is_counted = matches!(error.kind(), HttpErrorKind::Connect | HttpErrorKind::Timeout);
                return is_counted && self.unreachable.fetch_add(1, Ordering::Relaxed) + 1 >= UNREACHABLE_MAX;
            }
            Err(_) => {}
        }
        down_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
    }
}

/// Whether a request is for the keys of a cloud's instance: at Amazon, Microsoft, or Google.
fn is_for_keys(path: &str) -> bool {
    const PLACES: [&str; 4] = [
        "/latest/api/token",
        "/latest/meta-data/iam/security-credentials",
        "/metadata/identity/oauth2/token",
        "/computeMetadata/v1/instance/service-accounts",
    ];
    PLACES.iter().any(|place| path.starts_with(place))
}

/// Whether this is how a machine says that it has no keys, and not that it is busy.
fn says_none(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// The cause of this type of an error, or the error itself.
pub(crate) fn cause<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Whether the last answer to a request of this task was that the store knows no such request.
pub(crate) fn is_unknown() -> bool {
    let last = LAST.try_with(Cell::get).ok().flatten();
    matches!(last, Some(Seen::Status { status, .. }) if status == StatusCode::NOT_IMPLEMENTED.as_u16())
}

/// Runs `work`, whose requests are sent with a header more.
pub(crate) async fn with_header<T>(header: Besides, work: impl Future<Output = T>) -> T {
    BESIDES.scope(header, work).await
}

/// Some work that is done, and the last answer that it saw.
pub(crate) struct Watching<T> {
    pub(crate) done: T,
    pub(crate) seen: Option<Seen>,
}

/// Runs `work`.
pub(crate) async fn watching<T>(work: impl Future<Output = T>) -> Watching<T> {
    LAST.scope(Cell::new(None), async {
        let done = work.await;
        Watching { done, seen: LAST.with(Cell::get) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_keys_are_told_from_those_for_objects() {
        for path in ["/latest/api/token", "/metadata/identity/oauth2/token"] {
            assert!(is_for_keys(path), "{path}");
        }
        for path in ["/latest/train/dataset.shade", "/photos/latest/api/token", "/metadata/identity", "/"] {
            assert!(!is_for_keys(path), "{path}");
        }
    }
}
