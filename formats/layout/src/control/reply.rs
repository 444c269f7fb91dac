//! Messages from daemon to client: answers, and what is sent unasked.

use super::codec::{self, TEXT_BYTES_MAX};
use super::field::coded;
use crate::FormatError;
use crate::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SETTINGS_BYTES_MAX};

/// Descriptors that come with a `Welcome`, in this order: daemon segment, client segment, payload,
/// the client's end of the doorbells.
pub const WELCOME_FDS: usize = 4;

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
/// Refused: the daemon was stopped. A session is told so, too, before the hang-up: it is no death,
/// after which a client looks for a successor. One that asks anew finds another, or may start it.
pub const REFUSE_STOPPED: u16 = 9;
/// Refused: another daemon takes this one's place. A session is told so, too, before the hang-up,
/// and waits for that one. Nobody need start any.
pub const REFUSE_REPLACED: u16 = 10;

coded! {
    /// A message from daemon to client.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Reply: u16 {
        /// The session is open; [`WELCOME_FDS`] descriptors come with it.
        1 => Welcome {
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
            job: String [NAME_BYTES_MAX],
            /// How the daemon runs: a document of `shade-job`. A value that means the same as the
            /// hello's is in the hello's words.
            settings: String [SETTINGS_BYTES_MAX],
        },
        /// The session is not opened; or an open one ends, as the daemon was stopped.
        2 => Refuse {
            /// One of the `REFUSE_` codes.
            code: u16,
            /// Why, for people; cut to 16 KiB.
            text: String [cut TEXT_BYTES_MAX],
        },
        /// The counters, as JSON.
        3 => Stats {
            /// One JSON object.
            json: String [MESSAGE_BYTES_MAX],
        },
        /// What a resumed run needs; one memfd with the bytes comes with it.
        4 => State {
            /// Length of the memfd's content.
            bytes: u64,
        },
        /// The state was restored.
        5 => StateLoaded {
            /// The epoch that goes on.
            epoch: u32,
            /// Its first batch that is not delivered.
            first_batch: u32,
            /// Its batches, for each rank, with those before.
            batches: u32,
        },
        /// What was handed in is taken.
        13 => Taken,
        /// An epoch begins: what the job depends on from there on, for a successor of this daemon
        /// ([`TakeBase`](super::Request::TakeBase)). One memfd with the bytes comes along, unasked,
        /// before the epoch's first batch, where its plan or a later one does not follow from the
        /// job's document.
        14 => Base {
            /// The epoch.
            epoch: u32,
            /// Length of the memfd's content.
            bytes: u64,
        },
        /// A request failed; or, unasked, the session cannot go on.
        6 => Failed {
            /// Why, for people; cut to 16 KiB.
            text: String [cut TEXT_BYTES_MAX],
        },
        /// The epoch that the rank asked for does not go on. Never an answer: the session goes on,
        /// and so do its requests.
        8 => Interrupted {
            /// Why, for people; cut to 16 KiB.
            text: String [cut TEXT_BYTES_MAX],
        },
        /// Recording has begun.
        7 => Observing {
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
        9 => Status {
            /// The conversation's version.
            protocol: u32,
            /// One JSON object.
            json: String [MESSAGE_BYTES_MAX],
        },
        /// The daemon ends; or, drained, will end with its last rank. In answer to a `Replace` the
        /// socket comes with it at which it listens.
        10 => Stopping {
            /// The conversation's version.
            protocol: u32,
            /// The daemon's process.
            pid: u32,
        },
        /// How much of which strata is cached; one memfd with the bytes comes with it, as
        /// [`held_from_bytes`](super::held_from_bytes) reads them.
        12 => Held {
            /// The conversation's version.
            protocol: u32,
            /// Number of strata: the one asked for, or that of the last job that trains.
            strata: u32,
            /// Length of the memfd's content.
            bytes: u64,
        },
        /// The cache has the size that was asked for.
        11 => Resized {
            /// The conversation's version.
            protocol: u32,
            /// Its capacity before, bytes.
            before_bytes: u64,
            /// Its capacity now, bytes.
            cache_bytes: u64,
        },
    }
}

/// Tags of the messages that answer an opening one, in every protocol.
const OPENING: &[u16] = &[1, 7, 9, 10, 11, 12];

impl Reply {
    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// The protocol of an opening message (`Welcome`, `Observing`, `Status`, `Stopping`,
    /// `Resized`, `Held`), if it is another than ours.
    /// Call it before [`decode`](Self::decode), which knows our own layout only.
    #[must_use]
    pub fn other_protocol(bytes: &[u8]) -> Option<u32> {
        codec::other_protocol(bytes, OPENING)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// On an unknown tag or version, a length over its limit, missing or trailing bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::PROTOCOL;

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            (any::<(u32, u32, u32, u32, u128, u32, u64)>(), ".{0,20}", ".{0,40}").prop_map(
                |(numbers, job, settings)| {
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
                        settings,
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
        for &tag in OPENING {
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
