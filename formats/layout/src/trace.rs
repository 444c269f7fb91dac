//! The file in which `shade-load trace` records a training: one JSON object a line, written by the
//! daemon and read by `shade-load simulate`, `report` and `trace --perfetto`.
//!
//! `TRACE.md` has the format and an example.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Version of the file. A new kind of line gets a higher one.
pub const VERSION: u32 = 3;

/// The first bytes of a trace, and of no other file.
pub const FIRST_KEY: &[u8] = b"{\"shade_trace\":";

/// How an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From the cache.
    Hit,
    /// From the cache, in exchange for a sample that was not in it: neither a hit nor a miss.
    Exchanged,
    /// From the cache, where a prefetch had brought it: neither a hit nor a miss.
    Prefetched,
    /// By a read that another row had asked for, or by pixels that another job of the group had
    /// decoded: counted as a hit.
    Joined,
    /// By a read of its own.
    Miss,
}

impl Served {
    /// The letter in [`Open::served`].
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Hit => 'h',
            Self::Exchanged => 'x',
            Self::Prefetched => 'p',
            Self::Joined => 'j',
            Self::Miss => 'm',
        }
    }

    /// The meaning of a letter.
    #[must_use]
    pub fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'h' => Some(Self::Hit),
            b'x' => Some(Self::Exchanged),
            b'p' => Some(Self::Prefetched),
            b'j' => Some(Self::Joined),
            b'm' => Some(Self::Miss),
            _ => None,
        }
    }
}

/// The first line: the recorded daemon. Times of all lines are microseconds of its clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub shade_trace: u32,
    /// The daemon's version.
    pub shade_load: String,
    /// The dataset served, canonical path.
    pub dataset: String,
    /// Which bytes it holds, 32 hex digits.
    pub content_id: String,
    /// Samples in it.
    pub samples: u32,
    /// The job served.
    pub job: String,
    /// The cache's policy.
    pub policy: String,
    /// How far the policy `lookahead` saw, in epochs; `None` is without end.
    pub lookahead: Option<f64>,
    /// Capacity of the cache.
    pub cache_bytes: u64,
    /// Records were charged in multiples of it.
    pub block_bytes: u32,
    /// How records were read.
    pub engine: String,
    /// Threads that copied or decoded records.
    pub workers: u32,
    /// Which extra fields were read and cached with their records: "all", "none", or names.
    #[serde(default = "no_fields", deserialize_with = "fields_as_text")]
    pub fields: String,
    /// When the recording began, seconds since 1970.
    pub began_unix_s: u64,
}

fn no_fields() -> String {
    "none".to_owned()
}

/// Reads the text, or true or false, which the first recordings have.
fn fields_as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(true) => Ok("all".to_owned()),
        Value::String(text) => Ok(text),
        _ => Ok(no_fields()),
    }
}

/// Stored bytes of the samples from `from` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Id of the first one. It follows the last id of the line before.
    pub from: u32,
    /// Bytes.
    pub stored: Vec<u32>,
}

/// A training began, or was under way when the recording began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// When.
    pub at_us: u64,
    /// It began before the recording, so its knowledge of samples at that time is missing.
    pub under_way: bool,
    /// What it asks for: the document of `shade-job`.
    pub document: Value,
}

/// A batch was opened: its samples were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// When.
    pub at_us: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Its number in the rank's epoch.
    pub batch: u32,
    /// Whose it is.
    pub rank: u32,
    /// Its descriptor's number in the rank's ring.
    pub seq: u64,
    /// Its samples, in its order.
    pub ids: Vec<u32>,
    /// How each was served: a letter each, see [`Served`].
    pub served: String,
}

/// A batch was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// When.
    pub at_us: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Its number in the rank's epoch.
    pub batch: u32,
    /// Whose it is.
    pub rank: u32,
    /// Its descriptor's number in the rank's ring.
    pub seq: u64,
    /// When it was opened.
    pub opened_us: u64,
    /// When the last of its reads was back; when it was opened if it had none.
    pub read_us: u64,
    /// Time before, in which it could not be opened, as the ring had no room.
    pub slot_wait_us: u64,
    /// The samples delivered, where they are not those of [`Open::ids`]: rows were skipped or
    /// substituted, or are padding, which is left out here. An empty list if the rank had moved on,
    /// or the batch failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<Vec<u32>>,
}

/// A rank has released batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// When.
    pub at_us: u64,
    /// Which rank.
    pub rank: u32,
    /// All its descriptors with a smaller `seq` are released.
    pub before_seq: u64,
}

/// A rank has reported losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When.
    pub at_us: u64,
    /// The batch's epoch.
    pub epoch: u32,
    /// The batch's number in the rank's epoch.
    pub batch: u32,
    /// Whose it is.
    pub rank: u32,
    /// A loss for each row delivered, padding left out; fewer is a partial report. `None`: not a
    /// finite number.
    pub losses: Vec<Option<f32>>,
}

/// Lines are missing here, as the recorder did not take them in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub lines: u64,
}

/// Any line except the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// See [`Sizes`].
    Sizes(Sizes),
    /// See [`Job`].
    Job(Job),
    /// See [`Open`].
    Open(Open),
    /// See [`Done`].
    Done(Done),
    /// See [`Release`].
    Release(Release),
    /// See [`Report`].
    Report(Report),
    /// See [`Snapshot`].
    Snapshot(Snapshot),
    /// See [`Lost`].
    Lost(Lost),
}

impl Header {
    /// The line, its end included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads the first line.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            shade_trace: u32,
        }
        let Version { shade_trace: got } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if got != VERSION {
            return Err(format!(
                "a trace of version {got}, but this program reads version {VERSION}: use the program that wrote it"
            ));
        }
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

impl Line {
    /// The line, its end included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Numbers, strings and lists with string keys always have a JSON form.
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// What the counters were at a moment. Those of the job grow from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When.
    pub at_us: u64,
    /// The job's epoch; `None` before the first.
    pub epoch: Option<u32>,
    /// Share of the epoch that was opened.
    pub opened_share: f64,
    /// The job's accesses.
    pub accesses: u64,
    /// Accesses served from the cache, or by a read that another row had asked for.
    pub hits: u64,
    /// Rows delivered.
    pub delivered: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// Bytes of records that the tier brought.
    pub tier_bytes: u64,
    /// Time that workers copied or decoded rows, of all workers together.
    pub fill_ns: u64,
    /// Capacity of the daemon's cache.
    pub cache_bytes: u64,
    /// What it holds.
    pub cache_used_bytes: u64,
    /// The daemon's reads that are submitted and not yet completed.
    pub reads_submitted: u64,
    /// Submitted reads that have had no answer for long.
    pub reads_late: u32,
    /// Median latency of its recent reads; `None` before the first.
    pub p50_us: Option<f64>,
    /// Their 99th percentile.
    pub p99_us: Option<f64>,
    /// The job's ranks at this daemon, at most 256.
    pub by_rank: Vec<RankSnapshot>,
}

/// A rank's counters. Times grow from its attaching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSnapshot {
    /// Its number.
    pub rank: u32,
    /// Finished batches that it has not released.
    pub in_ring: u32,
    /// Batches that are being filled.
    pub open: u32,
    /// Time since it attached.
    pub attached_ns: u64,
    /// Time that it waited for storage.
    pub storage_ns: u64,
    /// Time that it waited for workers.
    pub workers_ns: u64,
    /// Time that it waited for the plan.
    pub plan_ns: u64,
    /// Time that it waited for other ranks.
    pub ranks_ns: u64,
    /// Time that its ring was full of finished batches.
    pub ring_full_ns: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::{BATCH_SAMPLES_MAX, RANKS_TOLD_MAX, TRACE_LINE_BYTES_MAX};

    fn header() -> Header {
        Header {
            shade_trace: VERSION,
            shade_load: "0.1.0".to_owned(),
            dataset: "/data/train".to_owned(),
            content_id: format!("{:032x}", 5),
            samples: 3,
            job: "default".to_owned(),
            policy: "lookahead".to_owned(),
            lookahead: Some(1.0),
            cache_bytes: 8192,
            block_bytes: 4096,
            engine: "threads".to_owned(),
            workers: 8,
            fields: "caption".to_owned(),
            began_unix_s: 1_795_000_000,
        }
    }

    #[test]
    fn the_first_line_begins_as_promised_and_says_another_version() {
        let bytes = header().encode();
        assert!(bytes.starts_with(FIRST_KEY) && bytes.ends_with(b"\n"));
        assert_eq!(Header::decode(&bytes), Ok(header()));
        // A later version may have other fields.
        for other in [0, VERSION - 1, VERSION + 1] {
            let error = Header::decode(format!("{{\"shade_trace\":{other}}}").as_bytes()).unwrap_err();
            assert!(error.contains(&format!("version {other}")), "{error}");
        }
        assert!(Header::decode(b"{\"shade_trace\":3}").is_err());
        for (flag, text) in [("true", "all"), ("false", "none")] {
            let earlier = String::from_utf8(bytes.clone()).unwrap().replace("\"caption\"", flag);
            assert_eq!(Header::decode(earlier.as_bytes()).unwrap().fields, text);
        }
    }

    #[test]
    fn the_longest_lines_are_within_the_limit() {
        let rows = BATCH_SAMPLES_MAX as usize;
        let (epoch, batch, rank) = (u32::MAX, u32::MAX, u32::MAX);
        let losses = vec![Some(-f32::MIN_POSITIVE * 1.234_567_8); rows];
        let longest = RankSnapshot {
            rank,
            in_ring: u32::MAX,
            open: u32::MAX,
            attached_ns: u64::MAX,
            storage_ns: u64::MAX,
            workers_ns: u64::MAX,
            plan_ns: u64::MAX,
            ranks_ns: u64::MAX,
            ring_full_ns: u64::MAX,
        };
        for line in [
            Line::Open(Open {
                at_us: u64::MAX,
                epoch,
                batch,
                rank,
                seq: u64::MAX,
                ids: vec![u32::MAX; rows],
                served: "m".repeat(rows),
            }),
            Line::Report(Report { at_us: u64::MAX, epoch, batch, rank, losses }),
            Line::Snapshot(Snapshot { by_rank: vec![longest; RANKS_TOLD_MAX], ..Snapshot::default() }),
        ] {
            assert!(line.encode().len() <= TRACE_LINE_BYTES_MAX);
        }
    }

    #[test]
    fn a_loss_that_is_no_number_is_null_and_others_come_back_as_they_were() {
        let finite = [0.1_f32, 1e-30, 3.402_823_5e38, -0.0, 16_777_217.0];
        let losses = finite.iter().map(|loss| Some(*loss)).chain([None]).collect();
        let line = Line::Report(Report { at_us: 1, epoch: 0, batch: 2, rank: 3, losses });
        assert_eq!(Line::decode(&line.encode()), Ok(line));
    }

    fn line() -> impl Strategy<Value = Line> {
        let ids = || prop::collection::vec(any::<u32>(), 0..20);
        prop_oneof![
            (any::<u32>(), ids()).prop_map(|(from, stored)| Line::Sizes(Sizes { from, stored })),
            (any::<(u64, u32, u32, u32, u64)>(), ids()).prop_map(
                |((at_us, epoch, batch, rank, seq), ids)| {
                    let served = "hjm".chars().cycle().take(ids.len()).collect();
                    Line::Open(Open { at_us, epoch, batch, rank, seq, ids, served })
                }
            ),
            (any::<(u64, u32, u64)>(), prop::option::of(ids())).prop_map(
                |((at_us, batch, seq), delivered)| {
                    let (epoch, rank, opened_us, read_us, slot_wait_us) = (1, 0, 2, 3, 4);
                    Line::Done(Done {
                        at_us,
                        epoch,
                        batch,
                        rank,
                        seq,
                        opened_us,
                        read_us,
                        slot_wait_us,
                        delivered,
                    })
                }
            ),
            any::<(u64, u32, u64)>().prop_map(|(at_us, rank, before_seq)| Line::Release(Release {
                at_us,
                rank,
                before_seq
            })),
            (
                any::<(u64, u64, u32)>(),
                prop::option::of(any::<u32>()),
                prop::collection::vec(any::<u32>(), 0..4)
            )
                .prop_map(|((at_us, accesses, reads_late), epoch, ranks)| {
                    let rank = |rank| RankSnapshot { rank, storage_ns: at_us, ..RankSnapshot::default() };
                    let by_rank = ranks.into_iter().map(rank).collect();
                    Line::Snapshot(Snapshot {
                        at_us,
                        epoch,
                        accesses,
                        reads_late,
                        by_rank,
                        ..Snapshot::default()
                    })
                }),
            any::<u64>().prop_map(|lines| Line::Lost(Lost { lines })),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(line in line()) {
            let bytes = line.encode();
            prop_assert_eq!(bytes.iter().position(|byte| *byte == b'\n'), Some(bytes.len() - 1));
            prop_assert_eq!(Line::decode(&bytes), Ok(line));
        }

        #[test]
        fn a_line_that_was_cut_is_none(line in line()) {
            let bytes = line.encode();
            // Without the line's end it is still whole.
            for end in 0..bytes.len() - 1 {
                prop_assert!(Line::decode(&bytes[..end]).is_err(), "cut at {}", end);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Line::decode(&bytes);
            let _ = Header::decode(&bytes);
        }
    }
}
