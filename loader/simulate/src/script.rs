//! Accesses that are known before they are simulated: a list, a recording, or what a training drew
//! before.

use std::ops::Range;

use shade_formats::SampleId;

/// Known accesses, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) accesses: Vec<SampleId>,
    /// The loss of each access, NaN where there is none; empty if there are none at all.
    pub(super) losses: Vec<f32>,
    /// By batch: the number of batches opened, from the beginning on, when its last read ended.
    /// Empty if that is not known.
    pub(super) back: Vec<u32>,
    pub(super) epochs: Vec<Epoch>,
}

/// An epoch of known accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) accesses: Range<usize>,
    /// Its first batch, among all.
    pub(super) first_batch: usize,
    pub(super) repeats: Repeats,
    /// Another training begins with it.
    pub(super) begins_job: bool,
    /// It was drawn when the epoch before it began (`draw_ahead`).
    pub(super) is_known_early: bool,
}

/// How often samples come in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    /// Number of different samples.
    pub(super) distinct: u32,
    /// Accesses of the most repeated sample.
    pub(super) most: u32,
}

impl Script {
    /// The samples of some accesses.
    pub(super) fn ids(&self, accesses: Range<usize>) -> Vec<SampleId> {
        self.accesses.get(accesses).unwrap_or_default().to_vec()
    }

    /// Number of epochs, of which the last one may be shorter.
    pub(super) fn epoch_count(&self) -> u32 {
        u32::try_from(self.epochs.len()).unwrap_or(u32::MAX)
    }
}

impl Repeats {
    /// The repeats of an epoch. `counts` has a 0 for each sample, before and after.
    pub(super) fn of(epoch: &[SampleId], counts: &mut [u32]) -> Self {
        let mut repeats = Self::default();
        for id in epoch {
            if let Some(count) = counts.get_mut(id.index()) {
                *count = count.saturating_add(1);
                repeats.distinct += u32::from(*count == 1);
                repeats.most = repeats.most.max(*count);
            }
        }
        for id in epoch {
            counts.get_mut(id.index()).into_iter().for_each(|count| *count = 0);
        }
        repeats
    }
}
