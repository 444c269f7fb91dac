//! What a trainer's process asks of the daemon.

use super::codec;
use super::field::coded;
use crate::FormatError;
use crate::limits::{
    AVOIDED_MAX, BATCH_SAMPLES_MAX, CAPACITY_BYTES_MAX, JOB_BYTES_MAX, JOB_NAME_BYTES_MAX, NAME_BYTES_MAX,
    SETTINGS_BYTES_MAX,
};

coded! {
    /// A message from client to daemon.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Request: u16 {
        /// Opens the session; the first message, once. One memfd with the tables of
        /// single samples comes with it, if the job has any. Answered by `Welcome` or
        /// `Refuse`.
        1 => Hello {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
            /// Samples in the dataset, as its index says now.
            samples: u32,
            /// Which bytes the dataset holds, as its index says now.
            content_id: u128,
            /// Canonical path of the dataset.
            dataset: String [NAME_BYTES_MAX],
            /// Name of the job.
            job: String [JOB_NAME_BYTES_MAX],
            /// For a job of one rank: take the next free name if this one is taken.
            or_free_name: bool,
            /// This client's rank, below the document's `world_size`.
            rank: u32,
            /// It goes on with another daemon if this one dies, and keeps what that needs
            /// ([`Base`](super::Reply::Base)).
            survives: bool,
            /// How the client would start the daemon: a document of `shade-job`. A setting that is
            /// not there may be anything.
            settings: String [SETTINGS_BYTES_MAX],
            /// What the job asks for: the document of `shade-job`.
            document: String [JOB_BYTES_MAX],
        },
        /// Starts delivery of an epoch from a batch on, and ends what was delivered before. Not
        /// answered.
        2 => StartEpoch {
            /// Counts the starts of this session, from 1; descriptors carry it.
            generation: u32,
            /// The epoch, from 0.
            epoch: u32,
            /// The first batch wanted, from 0.
            first_batch: u32,
            /// A batch was taken since this session's StartEpoch before. If no rank took one, the
            /// epoch in between does not count as one without losses. In a session's first start: a
            /// daemon that died has given it batches, and this one succeeds it.
            has_taken: bool,
        },
        /// Losses of a batch's first rows, in its order. Not answered.
        3 => Report {
            /// The batch's epoch.
            epoch: u32,
            /// The batch.
            batch: u32,
            /// One loss a row; at most [`BATCH_SAMPLES_MAX`].
            losses: Vec<f32> [BATCH_SAMPLES_MAX as usize],
        },
        /// A validation score, higher is better. Not answered.
        4 => ReportValidation {
            /// The score.
            score: f64,
        },
        /// Asks for the counters. Answered by `Stats`.
        5 => Stats,
        /// Asks for what a run needs that goes on before this batch. Answered by `State`.
        6 => SaveState {
            /// The batch's epoch.
            epoch: u32,
            /// The batch.
            batch: u32,
        },
        /// Restores what `SaveState` gave; one memfd with the bytes comes with it. Answered by
        /// `StateLoaded` or `Failed`.
        7 => LoadState {
            /// How many strata the state's plan must have; 0: any number.
            strata: u32,
        },
        /// Tells which stratum each seat of the job's plans has, before its first epoch; one memfd
        /// with the bytes of `Seats` of `shade-job` comes with it, or none: then they are in
        /// order. Answered by `Taken` or `Failed`.
        15 => Seat,
        /// Asks for what other nodes need to know of the scores here once this epoch is drawn.
        /// Answered by `State` with the bytes of [`Scores`](super::Scores), or none.
        16 => TellScores {
            /// The epoch.
            epoch: u32,
        },
        /// Hands in what another node has told; one memfd with the bytes comes with it. Answered by
        /// `Taken` or `Failed`.
        17 => TakeScores,
        /// To the successor of a daemon that died, before the session's first StartEpoch: what that
        /// one gave as a `Base`, or a state that was loaded into it; one memfd with the bytes comes
        /// with it. The newest one of a job's ranks counts. Not answered.
        18 => TakeBase {
            /// How many states the rank had loaded by then.
            loads: u32,
            /// One more than the epoch of a `Base`; 0: the bytes are a loaded state.
            begun: u32,
        },
        /// To such a successor: what the rank was given and said since; one memfd with the bytes of
        /// [`redo_to_bytes`](super::redo_to_bytes) comes with it. Not answered.
        19 => TakeRedo,
        /// Ends the session. Not answered.
        8 => Bye,
        /// Instead of a hello: opens a session that records and does not train. The write end of a
        /// pipe comes with it, into which the daemon writes a [trace](crate::trace) until the
        /// session ends. Answered by `Observing` or `Refuse`.
        9 => Observe {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
            /// Samples in the dataset, as its index says now.
            samples: u32,
            /// Which bytes the dataset holds, as its index says now.
            content_id: u128,
            /// Canonical path of the dataset.
            dataset: String [NAME_BYTES_MAX],
            /// Name of the job; it need not have begun.
            job: String [JOB_NAME_BYTES_MAX],
        },
        /// Instead of a hello: asks what the daemon is and which jobs it has. Answered by `Status`
        /// or `Refuse`; the connection ends then.
        10 => Status {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
        },
        /// Instead of a hello: ends the daemon. Answered by `Stopping` or `Refuse`; the connection
        /// lasts until the daemon has ended.
        11 => Stop {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
            /// Take no new job from now on, and end when the last rank has left.
            drain: bool,
        },
        /// Gives the cache another size: in a session, or instead of a hello; then the connection
        /// ends with the answer. Answered by `Resized`, or by `Failed` in a session, else by
        /// `Refuse`.
        12 => Resize {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
            /// The size as the setting `cache` has it.
            cache: String [CAPACITY_BYTES_MAX],
        },
        /// Instead of a hello: asks how much of which strata is cached. Answered by `Held` or
        /// `Refuse`; the connection ends then.
        14 => Held {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
            /// Samples in the dataset, as its index says now.
            samples: u32,
            /// Which bytes the dataset holds, as its index says now.
            content_id: u128,
            /// Number of strata; 0: that of the last job that trains.
            strata: u32,
        },
        /// Tells which records the rank's job does without, as their decoders have ended daemons
        /// before this one: they are bad records. Not answered.
        20 => Avoid {
            /// Their sample ids.
            samples: Vec<u32> [AVOIDED_MAX],
        },
        /// Instead of a hello: another daemon, which is ready, wants to take this one's place.
        /// Answered by `Stopping` or, if a job cannot go on there, by `Refuse`; the connection
        /// lasts until the daemon has ended.
        21 => Replace {
            /// The conversation's version, [`PROTOCOL`](super::PROTOCOL).
            protocol: u32,
        },
        /// Tells whether the rank's job would end with this daemon. Not answered.
        22 => Bound {
            /// Why, for people; empty: it would go on in another daemon.
            why: String [cut BOUND_BYTES_MAX],
        },
        /// To the successor of a daemon whose cache was given another size while it ran: this one
        /// gets that size, unless somebody has given it one before. Answered by `Resized` or
        /// `Failed`.
        23 => ResizeAgain {
            /// The size in bytes.
            cache_bytes: u64,
        },
        /// Offers the client's standard error, which comes with it, for the log of a private
        /// daemon. Not answered.
        13 => Log,
    }
}

/// Longest reason why a job is bound to its daemon; a longer one is cut.
const BOUND_BYTES_MAX: usize = 1024;

/// Tags of the messages that open a conversation, in every protocol.
const OPENING: &[u16] = &[1, 9, 10, 11, 12, 14, 21];

impl Request {
    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// The protocol of an opening message (`Hello`, `Observe`, `Status`, `Stop`, `Resize`, `Held`,
    /// `Replace`), if it is another than ours. Call it before [`decode`](Self::decode), which knows
    /// our own layout only.
    #[must_use]
    pub fn other_protocol(bytes: &[u8]) -> Option<u32> {
        codec::other_protocol(bytes, OPENING)
    }

    /// Reads a message. The session judges its values.
    ///
    /// # Errors
    /// On an unknown tag, version or code, a length over its limit, missing or trailing bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        codec::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::PROTOCOL;

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            (any::<(u32, u32, u128, u32, bool, bool)>(), ".{0,60}", ".{0,20}", ".{0,40}", ".{0,300}")
                .prop_map(|(numbers, dataset, job, settings, document)| {
                    let (protocol, samples, content_id, rank, or_free_name, survives) = numbers;
                    Request::Hello {
                        protocol,
                        samples,
                        content_id,
                        dataset,
                        job,
                        or_free_name,
                        rank,
                        survives,
                        settings,
                        document,
                    }
                }),
            any::<(u32, u32, u32, bool)>().prop_map(|(generation, epoch, first_batch, has_taken)| {
                Request::StartEpoch { generation, epoch, first_batch, has_taken }
            }),
            (any::<u32>(), any::<u32>(), prop::collection::vec(any::<f32>(), 0..200))
                .prop_map(|(epoch, batch, losses)| Request::Report { epoch, batch, losses }),
            any::<f64>().prop_map(|score| Request::ReportValidation { score }),
            Just(Request::Stats),
            any::<(u32, u32)>().prop_map(|(epoch, batch)| Request::SaveState { epoch, batch }),
            any::<u32>().prop_map(|strata| Request::LoadState { strata }),
            prop::collection::vec(any::<u32>(), 0..AVOIDED_MAX)
                .prop_map(|samples| Request::Avoid { samples }),
            any::<u32>().prop_map(|protocol| Request::Replace { protocol }),
            any::<u64>().prop_map(|cache_bytes| Request::ResizeAgain { cache_bytes }),
            ".{0,60}".prop_map(|why| Request::Bound { why }),
            Just(Request::Bye),
            Just(Request::Log),
            Just(Request::Seat),
            any::<u32>().prop_map(|epoch| Request::TellScores { epoch }),
            Just(Request::TakeScores),
            any::<(u32, u32)>().prop_map(|(loads, begun)| Request::TakeBase { loads, begun }),
            Just(Request::TakeRedo),
            any::<(u32, u32, u128, u32)>().prop_map(|(protocol, samples, content_id, strata)| {
                Request::Held { protocol, samples, content_id, strata }
            }),
            (any::<(u32, u32, u128)>(), ".{0,60}", ".{0,20}").prop_map(
                |((protocol, samples, content_id), dataset, job)| Request::Observe {
                    protocol,
                    samples,
                    content_id,
                    dataset,
                    job
                }
            ),
            any::<u32>().prop_map(|protocol| Request::Status { protocol }),
            any::<(u32, bool)>().prop_map(|(protocol, drain)| Request::Stop { protocol, drain }),
            (any::<u32>(), ".{0,20}").prop_map(|(protocol, cache)| Request::Resize { protocol, cache }),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(request in request()) {
            prop_assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }

        #[test]
        fn every_shorter_or_longer_message_is_refused(request in request()) {
            let mut bytes = request.encode();
            for end in 0..bytes.len() {
                prop_assert!(Request::decode(&bytes[..end]).is_err(), "cut at {}", end);
            }
            bytes.push(0);
            prop_assert!(Request::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(tag in 0_u16..25, mut bytes in prop::collection::vec(any::<u8>(), 4..300)) {
            let _ = Request::decode(&bytes);
            bytes[..2].copy_from_slice(&tag.to_le_bytes());
            bytes[2..4].copy_from_slice(&1_u16.to_le_bytes());
            let _ = Request::decode(&bytes);
        }
    }

    #[test]
    fn nan_losses_survive_and_too_many_are_refused() {
        let nan = Request::Report { epoch: 0, batch: 0, losses: vec![f32::NAN] };
        assert_eq!(Request::decode(&nan.encode()).unwrap().encode(), nan.encode());
        let most = BATCH_SAMPLES_MAX as usize;
        assert!(
            Request::decode(&Request::Report { epoch: 0, batch: 0, losses: vec![0.0; most] }.encode())
                .is_ok()
        );
        assert!(
            Request::decode(&Request::Report { epoch: 0, batch: 0, losses: vec![0.0; most + 1] }.encode())
                .is_err()
        );
    }

    #[test]
    fn another_protocol_is_told_whatever_follows_it() {
        let hello = |tag: u16, protocol: u32, rest: &[u8]| {
            // A version of the message that is not ours either.
            [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &protocol.to_le_bytes(), rest].concat()
        };
        for &tag in OPENING {
            for rest in [&[][..], &[0xff; 300]] {
                assert_eq!(Request::other_protocol(&hello(tag, PROTOCOL + 1, rest)), Some(PROTOCOL + 1));
                assert_eq!(Request::other_protocol(&hello(tag, 0, rest)), Some(0));
                assert_eq!(Request::other_protocol(&hello(tag, PROTOCOL, rest)), None);
            }
        }
        assert_eq!(Request::other_protocol(&hello(5, PROTOCOL + 1, &[])), None, "it opens nothing");
        assert_eq!(Request::other_protocol(&hello(1, 9, &[])[..7]), None, "cut");
    }

    #[test]
    fn a_job_s_name_has_a_limit() {
        let observe = |bytes: usize| {
            let (dataset, job) = (String::new(), "j".repeat(bytes));
            Request::Observe { protocol: PROTOCOL, samples: 0, content_id: 0, dataset, job }.encode()
        };
        assert!(Request::decode(&observe(JOB_NAME_BYTES_MAX)).is_ok());
        let error = Request::decode(&observe(JOB_NAME_BYTES_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains(&JOB_NAME_BYTES_MAX.to_string()), "{error}");
    }

    #[test]
    fn another_message_version_is_named() {
        let mut bytes = Request::Bye.encode();
        bytes[2] = 9;
        assert!(Request::decode(&bytes).unwrap_err().to_string().contains("version 9"));
    }
}
