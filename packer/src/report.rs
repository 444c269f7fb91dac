//! What a command did or found: text for people, one JSON object for programs.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use shade_formats::printable::Lines;

/// The result of a command that ran to its end.
pub trait Outcome {
    /// The exit code of the program; `shade-pack --help` says what it means.
    fn exit_code(&self) -> u8 {
        0
    }

    /// Whether it is a listing, whose reader may go away after the first lines.
    fn is_listing(&self) -> bool {
        false
    }

    /// Writes it as text, or as JSON.
    ///
    /// # Errors
    /// `out` refuses.
    fn write(&self, json: bool, out: &mut dyn Write) -> io::Result<()>;
}

/// An outcome that is printed once, when the command has ended.
pub(crate) trait Printed: Display + Serialize {
    fn exit_code(&self) -> u8 {
        0
    }
}

impl<R: Printed> Outcome for R {
    fn exit_code(&self) -> u8 {
        Printed::exit_code(self)
    }

    fn write(&self, json: bool, out: &mut dyn Write) -> io::Result<()> {
        if json {
            write_json(out, self)?;
        } else {
            write!(out, "{}", Lines(self))?;
        }
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// Writes one JSON object that a terminal does not obey either: JSON itself escapes only the first
/// control characters.
pub(crate) fn write_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    write!(out, "{}", Lines(serde_json::to_string(value)?))
}

/// How long a command took, and how fast it was.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Speed {
    /// Wall-clock time.
    seconds: f64,
    /// Megabytes (10^6 bytes) a second.
    mb_per_s: f64,
}

impl Speed {
    pub(crate) fn since(start: Instant, bytes: u64) -> Self {
        let seconds = start.elapsed().as_secs_f64();
        Self { seconds, mb_per_s: megabytes_per_second(bytes, seconds) }
    }
}

impl Speed {
    pub(crate) fn seconds(self) -> f64 {
        self.seconds
    }
}

impl Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s, {:.1} MB/s", self.seconds, self.mb_per_s)
    }
}

/// Writes a path as text, so that a report can name a path that is not UTF-8.
pub(crate) fn path_as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// `bytes` in the largest unit that leaves at least 1.
pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

pub(crate) fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people; 53 bits are plenty")]
    let megabytes = bytes as f64 / 1e6;
    if seconds > 0.0 { megabytes / seconds } else { 0.0 }
}
