//! What a command found or did, for people or for programs.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::append::Appended;
use crate::create::Created;
use crate::diff::Compared;
use crate::extract::Extracted;
use crate::info::Info;
use crate::ls::Listing;
use crate::merge::Merged;
use crate::verify::Verified;

/// The outcome of a command that ran to its end.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// Of `create`.
    Created(Created),
    /// Of `info`.
    Info(Box<Info>),
    /// Of `verify`.
    Verified(Verified),
    /// Of `extract`.
    Extracted(Extracted),
    /// Of `ls`, which is written line by line.
    #[serde(skip)]
    Listing(Listing),
    /// Of `diff`.
    Compared(Compared),
    /// Of `merge`.
    Merged(Merged),
    /// Of `append`.
    Appended(Appended),
    /// Text for a program other than ours.
    Text(String),
}

impl Report {
    /// 0; 1 when `diff` found a difference, or `verify` could not read everything; 3 when it found damage; 5 when files of
    /// the source were written to since they were packed; 4 when samples were left out.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Verified(verified) if !verified.is_whole() => 3,
            Self::Verified(verified) if verified.is_unread() => 1,
            Self::Created(created) if created.is_touched() => 5,
            Self::Appended(appended) if appended.changes.touched.count > 0 => 5,
            Self::Created(created) if !created.bad.is_empty() => 4,
            Self::Appended(appended) if !appended.bad.is_empty() => 4,
            Self::Compared(compared) if !compared.same => 1,
            _ => 0,
        }
    }

    /// Whether it is lines, of which a reader may want the first only.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        matches!(self, Self::Listing(_))
    }

    /// Writes it as text or, but for what has lines of its own, as one JSON object.
    ///
    /// # Errors
    /// `out` refuses.
    pub fn write(&self, json: bool, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Listing(listing) => return listing.write(out),
            report if json => serde_json::to_writer(&mut *out, report)?,
            report => write!(out, "{report}")?,
        }
        out.write_all(b"\n")?;
        out.flush()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created(created) => created.fmt(f),
            Self::Info(info) => info.fmt(f),
            Self::Verified(verified) => verified.fmt(f),
            Self::Extracted(extracted) => extracted.fmt(f),
            Self::Listing(_) => Ok(()),
            Self::Compared(compared) => compared.fmt(f),
            Self::Merged(merged) => merged.fmt(f),
            Self::Appended(appended) => appended.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Writes a path as text, so that one that is not UTF-8 does not cost the report.
pub(crate) fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// `bytes` in the largest unit that leaves at least 1.
#[must_use]
pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Megabytes (10^6 bytes) a second.
#[must_use]
pub(crate) fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people; 53 bits are plenty")]
    let megabytes = bytes as f64 / 1e6;
    if seconds > 0.0 { megabytes / seconds } else { 0.0 }
}
