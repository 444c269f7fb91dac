//! Sees what servers answer. The errors of `object_store` are texts where a rule needs the status.

use std::cell::Cell;
use std::time::Duration;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

tokio::task_local! {
    /// The last answer to a request of this task.
    static LAST: Cell<Option<Seen>>;
}

/// What came back for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    /// An answer, with how long it asks to wait.
    Status { status: u16, wait: Option<Duration> },
    /// None.
    Failed(HttpErrorKind),
}

/// Makes clients that remember what they saw.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    reqwest: ReqwestConnector,
}

#[derive(Debug)]
struct Watched(HttpClient);

impl HttpConnector for Watch {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watched(self.reqwest.connect(options)?)))
    }
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.execute(request).await;
        let seen = match &answer {
            Ok(response) => {
                let after = response.headers().get("retry-after");
                let seconds = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Seen::Status { status: response.status().as_u16(), wait: seconds.map(Duration::from_secs) }
            }
            Err(error) => Seen::Failed(error.kind()),
        };
        // A request outside of `watching` is nobody's to judge.
        let _ = LAST.try_with(|last| last.set(Some(seen)));
        answer
    }
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
