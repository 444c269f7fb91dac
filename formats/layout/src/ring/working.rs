//! What a worker of the daemon says of the row that it makes, so that a client knows what a daemon
//! has died of.

use crate::SampleId;

/// Bits of a word below its signal: the sample's id, and one more.
const SAMPLE_BITS: u32 = 32;
/// Linux' signals end with 64.
const SIGNAL_MAX: u8 = 64;

/// A worker that makes a row, or that was ended at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Working {
    /// The sample.
    pub sample: SampleId,
    /// The signal that has ended this very worker, and with it the daemon.
    pub signal: Option<u8>,
}

impl Working {
    /// The word of a worker that makes a row of this sample.
    #[must_use]
    pub fn word(sample: SampleId) -> u64 {
        u64::from(sample.0) + 1
    }

    /// What a word says of a dataset of `samples` samples; `None` for an idle worker, and for what
    /// no daemon writes.
    #[must_use]
    pub fn of(word: u64, samples: u32) -> Option<Self> {
        let sample = u32::try_from(word & u64::from(u32::MAX)).ok()?.checked_sub(1)?;
        let signal = u8::try_from(word >> SAMPLE_BITS).ok()?;
        (sample < samples && signal <= SIGNAL_MAX)
            .then_some(Self { sample: SampleId(sample), signal: (signal > 0).then_some(signal) })
    }
}

/// A worker's word once this signal has ended it.
#[must_use]
pub fn ended_by(word: u64, signal: u8) -> u64 {
    (word & u64::from(u32::MAX)) | u64::from(signal) << SAMPLE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_the_sample_and_the_signal() {
        let last = SampleId(u32::MAX - 2);
        for sample in [SampleId(0), SampleId(7), last] {
            let word = Working::word(sample);
            assert_eq!(Working::of(word, last.0 + 1), Some(Working { sample, signal: None }));
            let ended = Working { sample, signal: Some(11) };
            assert_eq!(Working::of(ended_by(word, 11), last.0 + 1), Some(ended));
        }
    }

    #[test]
    fn an_idle_worker_and_what_no_daemon_writes_say_nothing() {
        let words = [0, ended_by(0, 11), Working::word(SampleId(10)), ended_by(1, 65), 1 << 40, u64::MAX];
        for word in words {
            assert_eq!(Working::of(word, 10), None, "{word:#x}");
        }
    }
}
