//! What a store can answer instead of the bytes.

use std::fmt;
use std::time::Duration;

/// The kinds of answers that are no bytes. `rules` of `shade-dataset` has what follows from each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 401, 403: these keys may not read it, or there are none.
    Forbidden,
    /// 404, 410: there is no such object.
    NotFound,
    /// 412: the object has another ETag than the one that was opened.
    Changed,
    /// 416: the object ends before the range.
    OutOfRange,
    /// 429, 503: the store asks for fewer requests.
    SlowDown,
    /// Any other 5xx that may pass.
    Broken,
    /// The connection ended before the answer did.
    Cut,
    /// No answer in time.
    TimedOut,
    /// The host has no address, or refuses connections.
    Unreachable,
    /// Its certificate is not trusted, or it speaks no TLS that is spoken here.
    Insecure,
    /// No keys are set, and the machine has none of its own.
    NoKeys,
    /// An answer that is not what was asked for: other bytes, or the whole object.
    Wrong,
    /// Any other status, 400 or 501 for example.
    Refused,
    /// A list names an object that no path can have.
    OddName,
    /// Nothing was asked: settings make no client, or a file of keys cannot be read.
    Unasked,
}

/// An answer, with the store's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// Its kind.
    pub answer: Answer,
    /// The status of the HTTP answer, if there was one.
    pub status: Option<u16>,
    /// How long the store asks to wait (`Retry-After`).
    pub wait: Option<Duration>,
    /// What the store or the connection said.
    pub words: String,
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name below the address.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its version, if the store says one.
    pub etag: Option<String>,
}

impl Answer {
    /// The answer that a status other than 2xx is.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            412 => Self::Changed,
            416 => Self::OutOfRange,
            408 => Self::TimedOut,
            429 | 503 => Self::SlowDown,
            // A web server that has no lists says so: that does not pass.
            501 | 505 => Self::Refused,
            500.. => Self::Broken,
            _ => Self::Refused,
        }
    }

    /// Whether a store that has never answered well says so where address, keys or certificate are
    /// wrong. That is told at once.
    #[must_use]
    pub fn may_be_a_mistake(self) -> bool {
        matches!(self, Self::Forbidden | Self::NoKeys | Self::NotFound | Self::Unreachable | Self::Insecure)
    }

    /// What it means, and what to do.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Forbidden => {
                "the store refuses these keys: see what they may do, and where they come from (AWS_ACCESS_KEY_ID, \
                 AWS_PROFILE, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY, ...)"
            }
            Self::NotFound => "there is no such object",
            Self::Changed => "the object was replaced while in use: start again",
            Self::OutOfRange => "the object ends before these bytes",
            Self::SlowDown => "the store asks for a slower pace",
            Self::Broken => "the store failed",
            Self::Cut => "the connection was cut",
            Self::TimedOut => "no answer in time",
            Self::Unreachable => "the store cannot be reached: see its address and DNS",
            Self::Insecure => "no secure connection to the store",
            Self::NoKeys => {
                "no keys for the store: set AWS_ACCESS_KEY_ID, AWS_PROFILE, GOOGLE_SERVICE_ACCOUNT or \
                 AZURE_STORAGE_ACCOUNT_KEY, or for what is public AWS_SKIP_SIGNATURE=true (GOOGLE_, AZURE_); this \
                 machine has none of its own"
            }
            Self::Wrong => "the store answered with other bytes than those that were asked for",
            Self::Refused => "the store refuses the request",
            Self::OddName => {
                "an object there has a name that is no path, with an empty part, '.', '..' or a control character: rename \
                 or remove it, or choose another prefix"
            }
            Self::Unasked => "the store was not asked",
        }
    }
}

impl StoreFault {
    /// Its status and what it means, in a few words: "503: asks for a slower pace".
    #[must_use]
    pub fn in_short(&self) -> String {
        let sentence = self.answer.sentence();
        let first = sentence.split(':').next().unwrap_or(sentence);
        let first = first.strip_prefix("the store ").unwrap_or(first);
        self.status.map_or_else(|| first.to_owned(), |status| format!("{status}: {first}"))
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.answer.sentence())?;
        match (self.status, self.words.is_empty()) {
            (Some(status), true) => write!(f, " ({status})"),
            (Some(status), false) => write!(f, " ({status}: {})", self.words),
            (None, true) => Ok(()),
            (None, false) => write!(f, " ({})", self.words),
        }
    }
}

impl std::error::Error for StoreFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let expected = [
            (400, Answer::Refused),
            (401, Answer::Forbidden),
            (403, Answer::Forbidden),
            (404, Answer::NotFound),
            (408, Answer::TimedOut),
            (412, Answer::Changed),
            (416, Answer::OutOfRange),
            (429, Answer::SlowDown),
            (500, Answer::Broken),
            (501, Answer::Refused),
            (502, Answer::Broken),
            (503, Answer::SlowDown),
            (504, Answer::Broken),
        ];
        for (status, answer) in expected {
            assert_eq!(Answer::of_status(status), answer, "{status}");
        }
    }

    #[test]
    fn a_fault_says_what_it_means_and_the_store_s_words() {
        let fault = StoreFault {
            answer: Answer::SlowDown,
            status: Some(503),
            wait: None,
            words: "SlowDown: reduce your request rate".to_owned(),
        };
        let text = fault.to_string();
        assert_eq!(text, "the store asks for a slower pace (503: SlowDown: reduce your request rate)");
    }
}
