//! Records that raw batches show where they lie in the daemon's memory: lent, until the batch is given back.
//!
//! The memory is mapped twice. What is only read is looked at in huge pages, where the daemon has them. What may be written to,
//! as a tensor may, lies in small pages that become this process's own when they are: so a training loop may write to a record,
//! and neither the daemon nor another trainer sees it. They show the daemon's bytes again before their batch is given back.
//! What is in hand when the session ends becomes this process's own, since the daemon is free to overwrite it from then on.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use shade_formats::FormatError;
use shade_formats::ring::{Access, BatchLayout, Descriptor, NOT_LENT, Pages, Region};

use crate::ClientError;
use crate::dialogue::lock;
use crate::resident::{Looked, Written};
use crate::segment::Segment;

/// What the memory is called in errors.
pub(crate) const RECORDS_SEGMENT: &str = "the records segment";

/// Where a record lies in the records segment: within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// A stretch for each row of a batch that is lent its record.
pub(crate) type LentRows = Arc<[Option<Stretch>]>;

/// What this process looks at in the records segment.
#[derive(Debug)]
pub(crate) struct Lent {
    read: Segment,
    written: Segment,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The batches in hand, by number.
    in_hand: HashMap<u64, InHand>,
    looked: Looked,
    written: Written,
    /// The session is over: what is in hand is this process's own in both mappings.
    is_over: bool,
}

#[derive(Debug)]
struct InHand {
    rows: LentRows,
    maybe_written: bool,
}

impl Lent {
    /// Maps `records`, for a trainer with so many bytes of payload in its ring.
    pub(crate) fn map(records: &OwnedFd, bytes: u64, ring_bytes: u64) -> Result<Self, ClientError> {
        let map = |pages| Segment::map(RECORDS_SEGMENT, records, bytes, Access::CopyOnWrite, pages);
        let state = State {
            in_hand: HashMap::new(),
            looked: Looked::new(ring_bytes),
            written: Written::default(),
            is_over: false,
        };
        Ok(Self { read: map(Pages::Huge)?, written: map(Pages::Small)?, state: Mutex::new(state) })
    }

    /// Bytes of the records segment.
    pub(crate) fn bytes(&self) -> u64 {
        self.read.region().len()
    }

    /// Descriptor `seq`, a batch of so many bytes in the ring's `payload`, is looked at from now on, with the records it is lent.
    pub(crate) fn hold(&self, seq: u64, bytes: u64, rows: Option<&LentRows>, payload: &Segment) {
        let mut state = lock(&self.state);
        if state.looked.batch(bytes, rows.is_some()) {
            payload.forget(&(0..payload.region().len()));
        }
        if let Some(rows) = rows {
            state.in_hand.insert(seq, InHand { rows: Arc::clone(rows), maybe_written: false });
        }
    }

    /// Where a record of descriptor `seq` is looked at: after [`expect_writes`](Self::expect_writes) where it may be written to.
    pub(crate) fn look_at(&self, seq: u64, record: Stretch) -> &Region {
        let mut state = lock(&self.state);
        if state.in_hand.get(&seq).is_some_and(|batch| batch.maybe_written) {
            return self.written.region();
        }
        if !state.is_over {
            // Under the lock, like all that unmaps: nothing that became this process's own is to go.
            state.looked.record(record).iter().for_each(|range| self.read.forget(range));
        }
        self.read.region()
    }

    /// The same in a forked child, which may write to it.
    pub(crate) fn look_at_in_child(&self) -> &Region {
        self.written.region()
    }

    /// The records of descriptor `seq` may be written to from now on.
    pub(crate) fn expect_writes(&self, seq: u64) {
        let State { in_hand, written, .. } = &mut *lock(&self.state);
        if let Some(batch) = in_hand.get_mut(&seq)
            && !batch.maybe_written
        {
            batch.maybe_written = true;
            batch.rows.iter().flatten().for_each(|&record| written.insert(record));
        }
    }

    /// Those of descriptor `seq` are no longer looked at. To be called before it is released.
    pub(crate) fn let_go(&self, seq: u64) {
        // The lock is held throughout: nobody is to make pages of a batch its own that has been given back.
        let State { in_hand, written, is_over, .. } = &mut *lock(&self.state);
        let Some(batch) = in_hand.remove(&seq) else { return };
        for &record in batch.rows.iter().flatten() {
            let Stretch { at, len } = record;
            if *is_over {
                self.read.forget(&(at..at + len));
                self.written.forget(&(at..at + len));
            } else if batch.maybe_written {
                self.written.forget(&written.remove(record));
            }
        }
    }

    /// Makes all that is in hand this process's own, so that it may say goodbye. `false`: memory is too short for that, and only
    /// the end of this process gives back what it was lent.
    pub(crate) fn make_own(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_over = true;
        let mut records = state.in_hand.values().flat_map(|batch| batch.rows.iter().flatten());
        records.all(|&Stretch { at, len }| self.read.make_own(at, len) && self.written.make_own(at, len))
    }
}

/// Which rows of a batch in `payload` are lent their record, out of `records_bytes`; `None`: no row is.
pub(crate) fn rows_of(
    payload: &Region,
    descriptor: &Descriptor,
    layout: &BatchLayout,
    records_bytes: u64,
) -> Result<Option<LentRows>, FormatError> {
    let (Some(lent), Some(lens)) = (layout.lent(), layout.lens()) else { return Ok(None) };
    let column = |at: u64| {
        let mut bytes = vec![0; descriptor.records as usize * 8];
        payload.read(descriptor.offset + at, &mut bytes)?;
        Ok::<_, FormatError>(bytes)
    };
    let lent = column(lent)?;
    let places = || lent.as_chunks().0.iter().map(|&at| u64::from_le_bytes(at));
    if places().all(|at| at == NOT_LENT) {
        return Ok(None);
    }
    let lens = column(lens)?;
    let lens = lens.as_chunks().0.iter().map(|&len| u64::from_le_bytes(len));
    let rows = places().zip(lens).map(|(at, len)| {
        if at == NOT_LENT {
            return Ok(None);
        }
        if at.checked_add(len).is_none_or(|end| end > records_bytes) {
            let expected = format_args!("a range within {records_bytes} bytes");
            return Err(FormatError::new("lent record", at, format_args!("{len} bytes"), expected));
        }
        Ok(Some(Stretch { at, len }))
    });
    Ok(Some(rows.collect::<Result<_, _>>()?))
}
