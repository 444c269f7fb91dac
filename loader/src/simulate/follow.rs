//! Plays a recorded training: its batches, the answers to its reads and its losses in the order in which the daemon saw them.
//!
//! What a batch misses here is read, and offered to the cache, when the batch's last read was back in the recording.
//! Policies and capacities are compared at the timing of the recording, that is.

use std::collections::{BTreeMap, HashSet};

use shade_formats::SampleId;

use super::error::SimulateError;
use super::recording::{Recording, Step};
use super::replay::{Outcome, Replay};
use super::watch::Watch;
use crate::importance::rank;
use crate::plan::Known;

/// What is being read.
#[derive(Default)]
struct Reads {
    /// By batch.
    batches: BTreeMap<usize, Vec<SampleId>>,
    /// All of it.
    samples: HashSet<SampleId>,
}

/// Plays the recording. An epoch's accesses are known when it begins, as its plan is in the daemon; `to_the_end`: all of
/// them are from the start, which makes `lookahead` MIN.
///
/// # Errors
/// Ctrl-C.
pub(super) fn follow(
    mut replay: Replay<'_>,
    recording: &Recording,
    to_the_end: bool,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let mut known = Known::from(recording.accesses());
    if to_the_end {
        replay.look_ahead(known);
    }
    let (mut epoch, mut batches) = (0, 0);
    let mut reads = Reads::default();
    for step in recording.steps() {
        match step {
            Step::Job => replay.begin_job(),
            Step::Epoch(repeats, accesses) => {
                // Of batches that were never published.
                while let Some((_, ids)) = reads.batches.pop_first() {
                    ids.iter().for_each(|id| replay.offer(*id));
                }
                reads.samples.clear();
                replay.begin_epoch(epoch, repeats, true);
                epoch += 1;
                if !to_the_end {
                    known = Known::from(accesses);
                    replay.look_ahead(known);
                }
            }
            Step::Batch(batch) => {
                watch.go_on(batch.len())?;
                let to_read = replay.open(batch, known, &mut reads.samples);
                reads.batches.insert(batches, to_read);
                batches += 1;
            }
            Step::Read(batch) => {
                for id in reads.batches.remove(&batch).unwrap_or_default() {
                    reads.samples.remove(&id);
                    replay.offer(id);
                }
            }
            Step::Report(ids, losses) => replay.credit(&rank(ids, losses)),
        }
    }
    Ok(replay.outcome())
}
