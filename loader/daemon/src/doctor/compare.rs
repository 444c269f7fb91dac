//! `shade-load doctor --compare`: a DataLoader and shade side by side, on the user's own files.
//!
//! A DataLoader needs Python, so the package measures (`shade_load/doctor`) and prints one JSON
//! object. Here it is started, its object completed and shown.

use std::env;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::cli::{Doctor, DoctorError};
use super::interrupt::stopped_by_ctrl_c;
use super::path_facts;
use super::report::{line, write_paragraph};
use crate::proc::mountinfo::{self, Mount};
use crate::proc::text;

/// Exit codes of the measurement: it has printed why it cannot measure; after Ctrl-C.
const FAILED: i32 = 4;
const INTERRUPTED: i32 = 130;

/// Why it cannot measure.
#[derive(Deserialize)]
struct Failure {
    error: String,
}

/// What a DataLoader got, and what shade got.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Comparison {
    /// Version of shade.
    version: &'static str,
    /// The folder's mount.
    mount: Option<Mount>,
    #[serde(flatten)]
    measured: Measured,
}

/// What the package measured.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Measured {
    /// The folder of images.
    folder: String,
    /// The dataset that shade read; `None`: the same files, by an index of them.
    dataset: Option<String>,
    /// Images that both have.
    images: u32,
    /// Records of a cold round.
    set_records: u32,
    /// Samples in a batch, of both.
    batch_size: u32,
    /// Side that images were decoded to; `None`: bytes as they are, on both sides.
    image_size: Option<u32>,
    /// The other side in words: `DataLoader, 8 workers`.
    loader: String,
    /// Whether it was torch's DataLoader. Without torch it is a thread pool.
    has_torch: bool,
    /// The numbers of workers that were tried; the fastest one was compared.
    trials: Vec<Trial>,
    /// Files that were read one at a time.
    read_alone: u32,
    /// The median of their latencies, opening included.
    read_alone_p50_ms: f64,
    /// The longest of them.
    read_alone_max_ms: f64,
    /// Bytes of the dataset's records over those of their files.
    record_share: f64,
    /// Largest share of a cold set that was in the page cache; `None` where the kernel does not
    /// tell.
    cached_share: Option<f64>,
    /// How long it took.
    seconds: f64,
    /// Records that nobody had in memory on this machine.
    cold: Pair,
    /// Records that were read before: in the page cache, and in shade's cache.
    warm: Pair,
    /// What the figures cannot tell.
    notes: Vec<String>,
}

/// A DataLoader's number of workers in a trial.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Trial {
    /// Worker processes, or threads without torch.
    workers: u32,
    /// Its rate.
    records_per_s: f64,
}

/// Both sides, with the same records.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Pair {
    /// The DataLoader, or its stand-in.
    loader: Side,
    /// shade.
    shade: Side,
}

/// The medians of a side's rounds.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Side {
    /// Records a second.
    records_per_s: f64,
    /// Millions of bytes a second, by the sizes of the folder's files.
    mb_per_s: f64,
    /// CPU of all its processes.
    cpu_us_per_record: f64,
    /// Opened files and reads a second.
    operations_per_s: f64,
    /// From the epoch's start to its first batch.
    first_batch_ms: f64,
    /// Records a second of each round.
    rounds: Vec<f64>,
}

/// Compares on the folder, and writes the result to `out`.
///
/// # Errors
/// There is no such folder, the measurement cannot start or fails, or was interrupted.
pub(super) fn compare(args: &Doctor, folder: &Path, out: &mut impl Write) -> Result<(), DoctorError> {
    let no_folder = |source| DoctorError::Path { path: folder.to_owned(), source };
    let mounts = mountinfo::parse(&text("/proc/self/mountinfo"));
    let mount = path_facts::mount_of(&folder.canonicalize().map_err(no_folder)?, &mounts);
    let measured = measured(args, folder)?;
    let comparison = Comparison { version: env!("CARGO_PKG_VERSION"), mount, measured };
    if args.json {
        serde_json::to_writer(&mut *out, &comparison).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{comparison}")?;
    }
    Ok(())
}

/// Lets the package measure.
fn measured(args: &Doctor, folder: &Path) -> Result<Measured, DoctorError> {
    // Ctrl-C reaches the child, too, which ends by itself. It is waited for.
    let _asked = stopped_by_ctrl_c()?;
    let python = args.python.clone().unwrap_or_else(own_python);
    let mut command = Command::new(&python);
    command.args(["-m", "shade_load.doctor", "--seconds", &args.seconds.to_string()]);
    command.args(["--batch-size", &args.batch_size.to_string()]);
    let more = [("--image-size", args.image_size), ("--workers", args.workers)];
    for (name, value) in more {
        if let Some(value) = value {
            command.args([name, &value.to_string()]);
        }
    }
    command.arg("--").arg(folder).args(&args.path).stdin(Stdio::null()).stderr(Stdio::inherit());
    let failed = |what: String| DoctorError::Compare { python: python.clone(), what };
    let done = command.output().map_err(|error| failed(error.to_string()))?;
    match done.status.code() {
        Some(0) => serde_json::from_slice(&done.stdout).map_err(|error| failed(unlike(&error))),
        Some(FAILED) => match serde_json::from_slice(&done.stdout) {
            Ok(Failure { error }) => Err(failed(error)),
            Err(error) => Err(failed(unlike(&error))),
        },
        Some(INTERRUPTED) => Err(DoctorError::Interrupted),
        _ => Err(failed(format!("{}; it needs a Python with the package shade_load", done.status))),
    }
}

/// It prints other words than this program knows.
fn unlike(error: &serde_json::Error) -> String {
    format!("its shade_load is of another version: {error}")
}

/// The Python of the environment that this program is in, else the one on PATH.
fn own_python() -> PathBuf {
    let beside = env::current_exe().ok().map(|program| program.with_file_name("python3"));
    beside.filter(|python| python.exists()).unwrap_or_else(|| PathBuf::from("python3"))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mount, measured, .. } = self;
        let Measured { images, set_records, batch_size, read_alone, .. } = measured;
        let shade = measured.dataset.as_deref().unwrap_or("the same files, as they are");
        writeln!(f, "{} beside shade", measured.loader)?;
        line(f, "folder", &measured.folder)?;
        line(f, "shade reads", shade)?;
        if let Some(Mount { kind, source, mount_point, .. }) = mount {
            line(f, "mount", format_args!("{kind} {source} on {mount_point}"))?;
        }
        let what = measured.image_size.map_or("bytes, not decoded".to_owned(), |side| {
            format!("images, decoded, resized and cropped to {side} x {side}")
        });
        line(f, "batches", format_args!("{batch_size} {what}, in random order"))?;
        line(f, "rounds", format_args!("{set_records} of {images} images each, the same for both sides"))?;
        let (p50, max) = (measured.read_alone_p50_ms, measured.read_alone_max_ms);
        line(f, "a file", format_args!("{p50:.2} ms alone, at most {max:.2} ms ({read_alone} files)"))?;
        let tried =
            measured.trials.iter().map(|tried| format!("{}: {:.0}", tried.workers, tried.records_per_s));
        line(f, "workers", format_args!("{} records/s", tried.collect::<Vec<_>>().join(", ")))?;
        line(f, "page cache", measured.page_cache())?;
        for (name, pair) in [("cold", &measured.cold), ("warm", &measured.warm)] {
            write_pair(f, name, pair, measured.name())?;
        }
        writeln!(f, "\nso")?;
        for (name, pair) in [("cold", &measured.cold), ("warm", &measured.warm)] {
            write_paragraph(f, "- ", &format!("{name}: {}", pair.verdict(measured.name())))?;
        }
        for note in measured.limits() {
            write_paragraph(f, "- ", &note)?;
        }
        Ok(())
    }
}

impl Measured {
    /// The other side in a word.
    fn name(&self) -> &'static str {
        if self.has_torch { "DataLoader" } else { "threads" }
    }

    fn page_cache(&self) -> String {
        let found = self.cached_share.map_or("not known how much of it was there".to_owned(), |share| {
            format!("at most {:.0} % of a set was there", 100.0 * share)
        });
        format!("cold sets were taken out of it file by file, without root: {found}")
    }

    /// What the figures cannot tell.
    fn limits(&self) -> Vec<String> {
        let memory = "a server's own memory is as it was: each side reads each cold set once, and who reads it first \
                      changes";
        [memory.to_owned()].into_iter().chain(self.notes.iter().cloned()).collect()
    }
}

impl Pair {
    /// Who is faster, if one is.
    fn verdict(&self, name: &str) -> String {
        let ends = |rounds: &[f64]| {
            (rounds.iter().copied().fold(f64::INFINITY, f64::min), rounds.iter().copied().fold(0.0, f64::max))
        };
        let ((loader_least, loader_most), (shade_least, shade_most)) =
            (ends(&self.loader.rounds), ends(&self.shade.rounds));
        let (loader, shade) = (self.loader.records_per_s, self.shade.records_per_s);
        let cpu = format!(
            "{:.0} and {:.0} µs of CPU a record",
            self.loader.cpu_us_per_record, self.shade.cpu_us_per_record
        );
        if shade_least > loader_most {
            format!("shade is {:.1} times as fast as {name}, with {cpu} ({name}, shade)", shade / loader)
        } else if loader_least > shade_most {
            format!("{name} is {:.1} times as fast as shade, with {cpu} ({name}, shade)", loader / shade)
        } else {
            format!(
                "neither is faster in all rounds: shade has {:.2} times the median of {name}, with {cpu} ({name}, shade)",
                shade / loader
            )
        }
    }
}

fn write_pair(f: &mut fmt::Formatter<'_>, name: &str, pair: &Pair, loader: &str) -> fmt::Result {
    writeln!(
        f,
        "\n{name:<12} {:>10} {:>9} {:>14} {:>10} {:>14}  rounds, records/s",
        "records/s", "MB/s", "CPU µs/record", "opens+reads", "first batch ms"
    )?;
    for (name, side) in [(loader, &pair.loader), ("shade", &pair.shade)] {
        let rounds: Vec<String> = side.rounds.iter().map(|rate| format!("{rate:.0}")).collect();
        writeln!(
            f,
            "  {name:<10} {:>10.0} {:>9.1} {:>14.0} {:>9.0}/s {:>14.0}  {}",
            side.records_per_s,
            side.mb_per_s,
            side.cpu_us_per_record,
            side.operations_per_s,
            side.first_batch_ms,
            rounds.join(" ")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rounds: &[f64]) -> Side {
        Side {
            records_per_s: rounds.iter().sum::<f64>() / rounds.len() as f64,
            mb_per_s: 1.0,
            cpu_us_per_record: 100.0,
            operations_per_s: 1.0,
            first_batch_ms: 1.0,
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn the_faster_side_is_named_whichever_it_is() {
        let verdict = |loader: &[f64], shade: &[f64]| {
            Pair { loader: side(loader), shade: side(shade) }.verdict("DataLoader")
        };
        assert!(verdict(&[100.0, 120.0], &[220.0, 200.0]).starts_with("shade is 1.9 times as fast"));
        assert!(verdict(&[300.0, 300.0], &[200.0, 100.0]).starts_with("DataLoader is 2.0 times as fast"));
        assert!(verdict(&[100.0, 300.0], &[200.0, 220.0]).starts_with("neither is faster in all rounds: "));
    }
}
