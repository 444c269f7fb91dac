//! Rules for the results of reads. Pure: the same results give the same verdicts and waits.
//!
//! | result | verdict |
//! |---|---|
//! | all bytes | good |
//! | some bytes | read the rest; direct reads begin again at the last aligned byte |
//! | no new byte | the shard is truncated |
//! | EINTR, EAGAIN | again, after 1 to 50 ms, 8 times |
//! | EIO, ETIMEDOUT, EREMOTEIO | again, 3 tries over about 2 s |
//! | ESTALE | open the shard again, at once; when it is stale again that is trouble |
//! | EACCES, EPERM, ENOENT, ENODEV | trouble of the store: again, until the patience is over |
//! | ENOTCONN, EHOSTDOWN and the like: a mount without its server | the same, opened again |
//! | ENOMEM, EMFILE, ENFILE | trouble of the machine: the same |
//! | EINVAL, EOPNOTSUPP from a direct read | read this shard through the page cache from now on |
//! | anything else | failed |
//!
//! And what an object store answers instead of bytes:
//!
//! | answer | verdict |
//! |---|---|
//! | 401, 403, 404, no keys | trouble of the store: again, until the patience is over |
//! | no connection, no name, no trusted certificate | the same |
//! | 429, 503 | the same, after the wait that the store asks for; fewer requests are in flight |
//! | any other 5xx, no answer in time, a cut connection | the same |
//! | other bytes than those asked for | the same |
//! | 412 (another ETag), 416, or another length than the index says | the object was replaced |
//! | any other status | failed |
//!
//! The checksum is not judged here: the next user of the bytes compares it.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use shade_store::{Answer, StoreFault};

use crate::fault::ReadFault;
use crate::refusal::Refusal;

/// How long a shard that cannot be opened or may not be read is tried again: trouble of the store,
/// not of a record. A withdrawn export, a mount that an automounter renews or a server that fails
/// over is back within this time, or needs help. A trainer waits for 300 s by default, so it is
/// told why.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Most repeats of a read that was only disturbed.
const DISTURBED_MAX: u32 = 8;
/// Waits between the three tries of a read that the device or server fails, about 2 s together:
/// enough for a server to fail over its disk, and no longer than a trainer's prefetch lasts.
const TRY_WAIT_MS: [u64; 2] = [400, 1200];
/// Longest wait of a disturbed read.
const DISTURBED_WAIT_MS_MAX: u64 = 50;
/// Wait before the second try of a refused read; it doubles from try to try.
const TROUBLE_WAIT_MIN: Duration = Duration::from_millis(10);
/// ... up to this. Up to 512 reads can be in trouble, so a server gets some 500 requests a second
/// at most.
const TROUBLE_WAIT_MAX: Duration = Duration::from_secs(1);

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Read what is missing, now.
    Again,
    /// Read what is missing, later.
    After(Duration),
    /// Open the shard again, then read what is missing.
    Reopen,
    /// Use the page cache for this shard, then read what is missing.
    Buffer,
    /// All bytes are there.
    Good,
    /// The store or the machine has trouble that is not the record's: read what is missing, later.
    Trouble(Refusal),
    /// The record cannot be had.
    Fail(ReadFault),
}

/// The state of one read.
#[derive(Clone, Debug)]
pub(crate) struct ReadState {
    len: u64,
    done: u64,
    disturbed: u32,
    failed: u32,
    /// A failure that [`take_failure`](Self::take_failure) has not returned yet.
    fails: bool,
    reopened: bool,
    /// State of the generator behind the waits' jitter.
    seed: u64,
}

impl ReadState {
    /// A read of `len` bytes, none of them there yet; `seed` spreads the waits.
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        Self { len, done: 0, disturbed: 0, failed: 0, fails: false, reopened: false, seed }
    }

    /// Bytes wanted.
    pub(crate) fn wanted(&self) -> u64 {
        self.len
    }

    /// Bytes that are there.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Where the next read begins, in bytes from the first one's start, if reads must begin at
    /// multiples of `align_bytes`.
    pub(crate) fn resume(&self, align_bytes: u32) -> u64 {
        self.done - self.done % u64::from(align_bytes.max(1))
    }

    /// Whether the device or server has failed it since the last call.
    pub(crate) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.fails)
    }

    /// Judges one read that began at [`resume`](Self::resume) with this alignment. `direct` says
    /// whether it bypassed the page cache.
    pub(crate) fn judge(&mut self, result: Result<u64, Refusal>, align_bytes: u32, direct: bool) -> Verdict {
        match result {
            Ok(count) => self.judge_count(count, align_bytes),
            Err(Refusal::System(errno)) => self.judge_errno(errno, direct),
            Err(Refusal::Store(fault)) => self.judge_answer(fault),
        }
    }

    fn judge_count(&mut self, count: u64, align_bytes: u32) -> Verdict {
        let reached = self.resume(align_bytes).saturating_add(count).min(self.len);
        if reached == self.len {
            self.done = reached;
            Verdict::Good
        } else if reached > self.done {
            self.done = reached;
            Verdict::Again
        } else {
            Verdict::Fail(ReadFault::Truncated { got: self.done, expected: self.len })
        }
    }

    fn judge_errno(&mut self, errno: Errno, direct: bool) -> Verdict {
        match errno {
            Errno::INTR | Errno::AGAIN => {
                self.disturbed += 1;
                if self.disturbed > DISTURBED_MAX {
                    return Verdict::Fail(ReadFault::Failed { errno, tries: self.disturbed });
                }
                let longest = DISTURBED_WAIT_MS_MAX.min(1 << self.disturbed);
                Verdict::After(Duration::from_millis(1 + self.random() % longest))
            }
            Errno::IO | Errno::TIMEDOUT | Errno::REMOTEIO => match self.next_try() {
                Some(wait) => Verdict::After(wait),
                None => Verdict::Fail(ReadFault::Failed { errno, tries: self.failed }),
            },
            Errno::STALE if !self.reopened => {
                self.reopened = true;
                Verdict::Reopen
            }
            errno if is_trouble(errno) => Verdict::Trouble(errno.into()),
            errno if direct && refuses_direct(errno) => Verdict::Buffer,
            errno => Verdict::Fail(ReadFault::Failed { errno, tries: 1 + self.disturbed + self.failed }),
        }
    }

    fn judge_answer(&mut self, fault: StoreFault) -> Verdict {
        match fault.answer {
            Answer::Forbidden
            | Answer::NoKeys
            | Answer::NotFound
            | Answer::Unreachable
            | Answer::Insecure => Verdict::Trouble(fault.into()),
            Answer::SlowDown | Answer::Broken | Answer::Cut | Answer::TimedOut | Answer::Wrong => {
                self.fails = true;
                Verdict::Trouble(fault.into())
            }
            Answer::Changed | Answer::OutOfRange | Answer::Refused | Answer::OddName | Answer::Unasked => {
                Verdict::Fail(ReadFault::Store { fault, tried: Duration::ZERO })
            }
        }
    }

    /// The wait before the next of a failed read's tries; `None` after the last.
    fn next_try(&mut self) -> Option<Duration> {
        self.failed += 1;
        self.fails = true;
        let wait = *TRY_WAIT_MS.get(self.failed as usize - 1)?;
        Some(Duration::from_millis(wait + self.random() % (wait / 4)))
    }

    /// SplitMix64: enough to keep reads that failed together from coming back together.
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Trouble of the store or the machine, while a read waits for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    since: Instant,
    /// Waits so far.
    waits: u32,
}

impl Trouble {
    /// Trouble that began `now`.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { since: now, waits: 0 }
    }

    /// How long it has lasted.
    pub(crate) fn tried(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// The wait before the next try; `None` once it has lasted as long as `patience`.
    pub(crate) fn wait(&mut self, now: Instant, patience: Duration) -> Option<Duration> {
        let left = patience.checked_sub(self.tried(now)).filter(|left| !left.is_zero())?;
        let wait = TROUBLE_WAIT_MIN.saturating_mul(1 << self.waits.min(16)).min(TROUBLE_WAIT_MAX);
        self.waits = self.waits.saturating_add(1);
        Some(wait.min(left))
    }
}

/// Whether `errno` of an open or a read means that the file system has no direct reads.
pub(crate) fn refuses_direct(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP)
}

/// Trouble of the machine.
fn is_machine_s(errno: Errno) -> bool {
    matches!(errno, Errno::NOMEM | Errno::MFILE | Errno::NFILE)
}

/// Whether an open that fails so may succeed a moment later, though nothing is known of the file.
pub(crate) fn may_pass(errno: Errno) -> bool {
    let is_passing = matches!(errno, Errno::INTR | Errno::AGAIN | Errno::STALE | Errno::TIMEDOUT);
    is_passing || is_machine_s(errno)
}

/// Whether a read that fails so is trouble of the store or the machine, and not of the record.
fn is_trouble(errno: Errno) -> bool {
    let is_store_s = matches!(errno, Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NODEV);
    is_store_s || is_of_dead_file(errno) || is_machine_s(errno)
}

/// Whether no read of this open file can be good any more: the server forgot it, or the mount has
/// lost its server, as one in user space that was killed. Another mount may be there by now.
pub(crate) fn is_of_dead_file(errno: Errno) -> bool {
    let has_no_server = matches!(
        errno,
        Errno::NOTCONN
            | Errno::SHUTDOWN
            | Errno::CONNABORTED
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::NETUNREACH
    );
    errno == Errno::STALE || has_no_server
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> ReadState {
        ReadState::new(1000, 7)
    }

    fn failed(errno: Errno, tries: u32) -> Verdict {
        Verdict::Fail(ReadFault::Failed { errno, tries })
    }

    #[test]
    fn first_results() {
        let table: [(Result<u64, Errno>, bool, Verdict); 17] = [
            (Ok(1000), false, Verdict::Good),
            (Ok(1024), true, Verdict::Good),
            (Ok(999), false, Verdict::Again),
            (Ok(1), false, Verdict::Again),
            (Ok(0), false, Verdict::Fail(ReadFault::Truncated { got: 0, expected: 1000 })),
            (Err(Errno::STALE), true, Verdict::Reopen),
            (Err(Errno::INVAL), true, Verdict::Buffer),
            (Err(Errno::OPNOTSUPP), true, Verdict::Buffer),
            (Err(Errno::INVAL), false, failed(Errno::INVAL, 1)),
            (Err(Errno::FAULT), true, failed(Errno::FAULT, 1)),
            (Err(Errno::BADF), true, failed(Errno::BADF, 1)),
            (Err(Errno::ACCESS), false, Verdict::Trouble(Errno::ACCESS.into())),
            (Err(Errno::NOENT), false, Verdict::Trouble(Errno::NOENT.into())),
            (Err(Errno::NOTCONN), true, Verdict::Trouble(Errno::NOTCONN.into())),
            (Err(Errno::HOSTDOWN), false, Verdict::Trouble(Errno::HOSTDOWN.into())),
            (Err(Errno::NOMEM), true, Verdict::Trouble(Errno::NOMEM.into())),
            (Err(Errno::NFILE), true, Verdict::Trouble(Errno::NFILE.into())),
        ];
        for (result, direct, expected) in table {
            assert_eq!(
                fresh().judge(result.map_err(Refusal::from), 1, direct),
                expected,
                "{result:?}, direct: {direct}"
            );
        }
    }

    #[test]
    fn first_answers_of_an_object_store() {
        let fault = |answer| StoreFault { answer, status: None, wait: None, words: String::new() };
        let judged = |answer| {
            let mut read = fresh();
            let verdict = read.judge(Err(fault(answer).into()), 1, false);
            (verdict, read.take_failure())
        };
        let trouble = |answer| Verdict::Trouble(fault(answer).into());
        for answer in
            [Answer::Forbidden, Answer::NoKeys, Answer::NotFound, Answer::Unreachable, Answer::Insecure]
        {
            assert_eq!(judged(answer), (trouble(answer), false), "{answer:?}: the store is not slow");
        }
        for answer in [Answer::SlowDown, Answer::Broken, Answer::Cut, Answer::TimedOut, Answer::Wrong] {
            assert_eq!(judged(answer), (trouble(answer), true), "{answer:?}: fewer in flight");
        }
        for answer in [Answer::Changed, Answer::OutOfRange, Answer::Refused, Answer::Unasked] {
            let store = ReadFault::Store { fault: fault(answer), tried: Duration::ZERO };
            assert_eq!(judged(answer), (Verdict::Fail(store), false), "{answer:?}");
        }
    }

    #[test]
    fn short_reads_continue_where_they_ended() {
        let mut read = fresh();
        assert_eq!(read.judge(Ok(300), 1, false), Verdict::Again);
        assert_eq!(read.resume(1), 300);
        assert_eq!(read.judge(Ok(300), 1, false), Verdict::Again);
        assert_eq!(read.resume(1), 600);
        assert_eq!(
            read.judge(Ok(0), 1, false),
            Verdict::Fail(ReadFault::Truncated { got: 600, expected: 1000 })
        );
        assert_eq!(read.judge(Ok(400), 1, false), Verdict::Good);
    }

    #[test]
    fn direct_reads_continue_at_an_aligned_byte_and_must_get_further() {
        let mut read = fresh();
        assert_eq!(read.judge(Ok(700), 512, true), Verdict::Again);
        assert_eq!(read.resume(512), 512);
        let end = Verdict::Fail(ReadFault::Truncated { got: 700, expected: 1000 });
        assert_eq!(read.clone().judge(Ok(188), 512, true), end, "the same bytes again are no progress");
        assert_eq!(read.clone().judge(Ok(189), 512, true), Verdict::Again);
        assert_eq!(read.judge(Ok(512), 512, true), Verdict::Good);
    }

    #[test]
    fn a_disturbed_read_is_repeated_eight_times() {
        for errno in [Errno::INTR, Errno::AGAIN] {
            let mut read = fresh();
            for time in 1..=8 {
                let Verdict::After(wait) = read.judge(Err(errno.into()), 1, false) else {
                    panic!("time {time}")
                };
                assert!((1..=50).contains(&wait.as_millis()), "{wait:?}");
            }
            assert_eq!(read.judge(Err(errno.into()), 1, false), failed(errno, 9));
        }
    }

    #[test]
    fn a_failing_device_gets_three_tries_over_about_two_seconds() {
        for errno in [Errno::IO, Errno::TIMEDOUT, Errno::REMOTEIO] {
            let mut read = fresh();
            let mut waited = Duration::ZERO;
            for _ in 0..2 {
                let Verdict::After(wait) = read.judge(Err(errno.into()), 1, true) else { panic!("{errno}") };
                waited += wait;
            }
            assert!((1600..=2000).contains(&waited.as_millis()), "{waited:?}");
            assert!(read.take_failure() && !read.take_failure());
            assert_eq!(read.judge(Err(errno.into()), 1, true), failed(errno, 3));
        }
    }

    #[test]
    fn a_stale_handle_is_replaced_at_once_and_then_after_a_wait() {
        let mut read = fresh();
        assert_eq!(read.judge(Err(Errno::STALE.into()), 1, true), Verdict::Reopen);
        assert_eq!(read.judge(Err(Errno::STALE.into()), 1, true), Verdict::Trouble(Errno::STALE.into()));
    }

    #[test]
    fn waits_depend_on_the_seed_alone() {
        let wait = |seed| ReadState::new(10, seed).judge(Err(Errno::IO.into()), 1, false);
        assert_eq!(wait(1), wait(1));
        assert_ne!(wait(1), wait(2));
    }

    #[test]
    fn trouble_is_waited_for_ever_longer_until_the_patience_is_over() {
        let start = Instant::now();
        let (patience, mut now) = (Duration::from_secs(5), start);
        let mut trouble = Trouble::begin(now);
        let mut waits = Vec::new();
        while let Some(wait) = trouble.wait(now, patience) {
            waits.push(u64::try_from(wait.as_millis()).unwrap());
            now += wait;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 730]);
        assert_eq!((trouble.tried(now), trouble.wait(start, Duration::ZERO)), (patience, None));
    }
}
