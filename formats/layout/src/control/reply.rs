//! Messages from daemon to client: answers, and what is sent unasked.

use super::codec::{Reader, TEXT_BYTES_MAX, Writer, other_protocol, unknown_tag};
use super::settings::Settings;
use crate::FormatError;
use crate::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};

/// Descriptors that come with a `Welcome`, in this order: daemon segment, client segment, payload,
/// doorbell to the client, doorbell to the daemon.
pub const WELCOME_FDS: usize = 5;

/// Refused: another version of the conversation.
pub const REFUSE_PROTOCOL: u16 = 1;
/// Refused: not the daemon's own user.
pub const REFUSE_PERMISSION: u16 = 2;
/// Refused: another dataset than the one this daemon serves, or another content of it.
pub const REFUSE_DATASET: u16 = 3;
/// Refused: the specification is impossible, or not that of the job's other ranks.
pub const REFUSE_SPEC: u16 = 4;
/// Refused: the rank is taken, or the job has an observer already.
pub const REFUSE_BUSY: u16 = 5;
/// Refused: no memory, descriptors or threads for a session, or no room for another job.
pub const REFUSE_RESOURCES: u16 = 6;
/// Refused: the daemon ends. A client that asks again finds another one, or may start it.
pub const REFUSE_ENDING: u16 = 7;
/// Refused: the daemon is drained, so it takes no new job.
pub const REFUSE_DRAINING: u16 = 8;

/// A message from daemon to client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The session is open; [`WELCOME_FDS`] descriptors come with it.
    Welcome {
        /// The conversation's version.
        protocol: u32,
        /// The daemon's process.
        pid: u32,
        /// Samples in the dataset.
        samples: u32,
        /// Classes in the dataset.
        classes: u32,
        /// Which bytes the dataset holds.
        content_id: u128,
        /// Batches of every epoch, for each rank.
        batches_per_epoch: u32,
        /// Length of the payload segment, bytes.
        payload_bytes: u64,
        /// Name of the job: the hello's, or the free one that the daemon has found for it.
        job: String,
        /// How the daemon runs. A value that means the same as the hello's is in the hello's words.
        settings: Settings,
    },
    /// The session is not opened.
    Refuse {
        /// One of the `REFUSE_` codes.
        code: u16,
        /// Why, for people; cut to 16 KiB.
        text: String,
    },
    /// The counters, as JSON.
    Stats {
        /// One JSON object.
        json: String,
    },
    /// What a resumed run needs; one memfd with the bytes comes with it.
    State {
        /// Length of the memfd's content.
        bytes: u64,
    },
    /// The state was restored.
    StateLoaded {
        /// The epoch that goes on.
        epoch: u32,
        /// Its first batch that is not delivered.
        first_batch: u32,
        /// Its batches, for each rank, with those before.
        batches: u32,
    },
    /// What was handed in is taken.
    Taken,
    /// A request failed; or, unasked, the session cannot go on.
    Failed {
        /// Why, for people; cut to 16 KiB.
        text: String,
    },
    /// The epoch that the rank asked for does not go on. Never an answer: the session goes on, and
    /// so do its requests.
    Interrupted {
        /// Why, for people; cut to 16 KiB.
        text: String,
    },
    /// Recording has begun.
    Observing {
        /// The conversation's version.
        protocol: u32,
        /// The daemon's process.
        pid: u32,
        /// Samples in the dataset.
        samples: u32,
        /// Which bytes the dataset holds.
        content_id: u128,
    },
    /// What the daemon is, and its jobs.
    Status {
        /// The conversation's version.
        protocol: u32,
        /// One JSON object.
        json: String,
    },
    /// The daemon ends; or, drained, will end with its last rank.
    Stopping {
        /// The conversation's version.
        protocol: u32,
        /// The daemon's process.
        pid: u32,
    },
    /// How much of which strata is cached; one memfd with the bytes comes with it, as
    /// [`held_from_bytes`](super::held_from_bytes) reads them.
    Held {
        /// The conversation's version.
        protocol: u32,
        /// Number of strata: the one asked for, or that of the last job that trains.
        strata: u32,
        /// Length of the memfd's content.
        bytes: u64,
    },
    /// The cache has the size that was asked for.
    Resized {
        /// The conversation's version.
        protocol: u32,
        /// Its capacity before, bytes.
        before_bytes: u64,
        /// Its capacity now, bytes.
        cache_bytes: u64,
    },
}

const WELCOME: u16 = 1;
const REFUSE: u16 = 2;
const STATS: u16 = 3;
const STATE: u16 = 4;
const STATE_LOADED: u16 = 5;
const FAILED: u16 = 6;
const OBSERVING: u16 = 7;
const INTERRUPTED: u16 = 8;
const STATUS: u16 = 9;
const STOPPING: u16 = 10;
const RESIZED: u16 = 11;
const HELD: u16 = 12;
const TAKEN: u16 = 13;

impl Reply {
    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome {
                protocol,
                pid,
                samples,
                classes,
                content_id,
                batches_per_epoch,
                payload_bytes,
                job,
                settings,
            } => Writer::message(WELCOME, |writer| {
                writer.u32(*protocol);
                writer.u32(*pid);
                writer.u32(*samples);
                writer.u32(*classes);
                writer.u128(*content_id);
                writer.u32(*batches_per_epoch);
                writer.u64(*payload_bytes);
                writer.text(job);
                settings.write(writer);
            }),
            Self::Refuse { code, text } => Writer::message(REFUSE, |writer| {
                writer.u16(*code);
                writer.short_text(text);
            }),
            Self::Stats { json } => Writer::message(STATS, |writer| writer.text(json)),
            Self::State { bytes } => Writer::message(STATE, |writer| writer.u64(*bytes)),
            Self::StateLoaded { epoch, first_batch, batches } => Writer::message(STATE_LOADED, |writer| {
                writer.u32(*epoch);
                writer.u32(*first_batch);
                writer.u32(*batches);
            }),
            Self::Taken => Writer::message(TAKEN, |_| ()),
            Self::Failed { text } => Writer::message(FAILED, |writer| writer.short_text(text)),
            Self::Interrupted { text } => Writer::message(INTERRUPTED, |writer| writer.short_text(text)),
            Self::Observing { protocol, pid, samples, content_id } => Writer::message(OBSERVING, |writer| {
                writer.u32(*protocol);
                writer.u32(*pid);
                writer.u32(*samples);
                writer.u128(*content_id);
            }),
            Self::Status { protocol, json } => Writer::message(STATUS, |writer| {
                writer.u32(*protocol);
                writer.text(json);
            }),
            Self::Stopping { protocol, pid } => Writer::message(STOPPING, |writer| {
                writer.u32(*protocol);
                writer.u32(*pid);
            }),
            Self::Held { protocol, strata, bytes } => Writer::message(HELD, |writer| {
                writer.u32(*protocol);
                writer.u32(*strata);
                writer.u64(*bytes);
            }),
            Self::Resized { protocol, before_bytes, cache_bytes } => Writer::message(RESIZED, |writer| {
                writer.u32(*protocol);
                writer.u64(*before_bytes);
                writer.u64(*cache_bytes);
            }),
        }
    }

    /// The protocol of an opening message (`Welcome`, `Observing`, `Status`, `Stopping`,
    /// `Resized`, `Held`), if it is another than ours.
    /// Call it before [`decode`](Self::decode), which knows our own layout only.
    #[must_use]
    pub fn other_protocol(bytes: &[u8]) -> Option<u32> {
        other_protocol(bytes, &[WELCOME, OBSERVING, STATUS, STOPPING, RESIZED, HELD])
    }

    /// Reads a message.
    ///
    /// # Errors
    /// On an unknown tag or version, a length over its limit, missing or trailing bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (tag, mut reader) = Reader::message(bytes)?;
        let reply = match tag {
            WELCOME => Self::Welcome {
                protocol: reader.u32()?,
                pid: reader.u32()?,
                samples: reader.u32()?,
                classes: reader.u32()?,
                content_id: reader.u128()?,
                batches_per_epoch: reader.u32()?,
                payload_bytes: reader.u64()?,
                job: reader.text(NAME_BYTES_MAX)?,
                settings: Settings::read(&mut reader)?,
            },
            REFUSE => Self::Refuse { code: reader.u16()?, text: reader.text(TEXT_BYTES_MAX)? },
            STATS => Self::Stats { json: reader.text(MESSAGE_BYTES_MAX)? },
            STATE => Self::State { bytes: reader.u64()? },
            STATE_LOADED => {
                Self::StateLoaded { epoch: reader.u32()?, first_batch: reader.u32()?, batches: reader.u32()? }
            }
            TAKEN => Self::Taken,
            FAILED => Self::Failed { text: reader.text(TEXT_BYTES_MAX)? },
            INTERRUPTED => Self::Interrupted { text: reader.text(TEXT_BYTES_MAX)? },
            OBSERVING => Self::Observing {
                protocol: reader.u32()?,
                pid: reader.u32()?,
                samples: reader.u32()?,
                content_id: reader.u128()?,
            },
            STATUS => Self::Status { protocol: reader.u32()?, json: reader.text(MESSAGE_BYTES_MAX)? },
            STOPPING => Self::Stopping { protocol: reader.u32()?, pid: reader.u32()? },
            HELD => Self::Held { protocol: reader.u32()?, strata: reader.u32()?, bytes: reader.u64()? },
            RESIZED => Self::Resized {
                protocol: reader.u32()?,
                before_bytes: reader.u64()?,
                cache_bytes: reader.u64()?,
            },
            _ => return Err(unknown_tag(tag)),
        };
        reader.finish()?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::PROTOCOL;

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            (any::<(u32, u32, u32, u32, u128, u32, u64)>(), ".{0,20}", ".{0,10}", ".{0,20}").prop_map(
                |(numbers, job, name, value)| {
                    let (protocol, pid, samples, classes, content_id, batches_per_epoch, payload_bytes) =
                        numbers;
                    Reply::Welcome {
                        protocol,
                        pid,
                        samples,
                        classes,
                        content_id,
                        batches_per_epoch,
                        payload_bytes,
                        job,
                        settings: std::iter::once((name, value)).collect(),
                    }
                }
            ),
            (any::<u16>(), ".{0,60}").prop_map(|(code, text)| Reply::Refuse { code, text }),
            ".{0,60}".prop_map(|json| Reply::Stats { json }),
            any::<u64>().prop_map(|bytes| Reply::State { bytes }),
            any::<(u32, u32, u32)>().prop_map(|(epoch, first_batch, batches)| Reply::StateLoaded {
                epoch,
                first_batch,
                batches
            }),
            Just(Reply::Taken),
            any::<(u32, u32, u64)>().prop_map(|(protocol, strata, bytes)| Reply::Held {
                protocol,
                strata,
                bytes
            }),
            ".{0,60}".prop_map(|text| Reply::Failed { text }),
            ".{0,60}".prop_map(|text| Reply::Interrupted { text }),
            any::<(u32, u32, u32, u128)>().prop_map(|(protocol, pid, samples, content_id)| {
                Reply::Observing { protocol, pid, samples, content_id }
            }),
            (any::<u32>(), ".{0,60}").prop_map(|(protocol, json)| Reply::Status { protocol, json }),
            any::<(u32, u32)>().prop_map(|(protocol, pid)| Reply::Stopping { protocol, pid }),
            any::<(u32, u64, u64)>().prop_map(|(protocol, before_bytes, cache_bytes)| Reply::Resized {
                protocol,
                before_bytes,
                cache_bytes
            }),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(reply in reply()) {
            prop_assert_eq!(Reply::decode(&reply.encode()).unwrap(), reply);
        }

        #[test]
        fn every_shorter_or_longer_message_is_refused(reply in reply()) {
            let mut bytes = reply.encode();
            for end in 0..bytes.len() {
                prop_assert!(Reply::decode(&bytes[..end]).is_err(), "cut at {}", end);
            }
            bytes.push(0);
            prop_assert!(Reply::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(tag in 0_u16..14, mut bytes in prop::collection::vec(any::<u8>(), 4..300)) {
            let _ = Reply::decode(&bytes);
            bytes[..2].copy_from_slice(&tag.to_le_bytes());
            bytes[2..4].copy_from_slice(&1_u16.to_le_bytes());
            let _ = Reply::decode(&bytes);
        }
    }

    #[test]
    fn another_protocol_is_told_whatever_follows_it() {
        for tag in [WELCOME, OBSERVING, STATUS, STOPPING, RESIZED, HELD] {
            let welcome = |protocol: u32, rest: &[u8]| {
                [&tag.to_le_bytes()[..], &9_u16.to_le_bytes(), &protocol.to_le_bytes(), rest].concat()
            };
            assert_eq!(Reply::other_protocol(&welcome(PROTOCOL + 1, &[1; 99])), Some(PROTOCOL + 1));
            assert_eq!(Reply::other_protocol(&welcome(PROTOCOL, &[1; 99])), None);
        }
    }

    /// What every version of either side understands: a refusal.
    #[test]
    fn a_refusal_never_changes() {
        let reply = Reply::Refuse { code: REFUSE_PROTOCOL, text: "no".to_owned() };
        assert_eq!(reply.encode(), [2, 0, 1, 0, 1, 0, 2, 0, 0, 0, b'n', b'o']);
    }

    #[test]
    fn a_long_error_is_cut_at_a_character_and_still_arrives() {
        let text = "\u{e4}".repeat(20_000);
        let reply = Reply::decode(&Reply::Failed { text: format!("x{text}") }.encode()).unwrap();
        let Reply::Failed { text: cut } = reply else { panic!("{reply:?}") };
        assert_eq!(cut.len(), TEXT_BYTES_MAX - 1, "an odd start, then characters of two bytes");
        assert!(cut.ends_with('\u{e4}'));
    }
}
