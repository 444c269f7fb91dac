//! Records that raw batches show where they lie in the daemon's memory: lent, until the batch is given back.
//!
//! The memory is mapped so that a page becomes this process's own when it is written to. So a training loop may write to a record
//! as to any tensor, and neither the daemon nor another trainer sees it. A page that may have been written to shows the daemon's
//! bytes again before its batch is given back; and what is in hand when the session ends becomes this process's own, since the
//! daemon is free to overwrite it from then on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use shade_formats::FormatError;
use shade_formats::ring::{BatchLayout, Descriptor, NOT_LENT, Region};

use crate::dialogue::lock;
use crate::segment::Records;

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
    records: Records,
    /// Of the batches in hand, by number.
    in_hand: Mutex<HashMap<u64, LentRows>>,
}

impl Lent {
    pub(crate) fn new(records: Records) -> Self {
        Self { records, in_hand: Mutex::default() }
    }

    /// The records segment.
    pub(crate) fn memory(&self) -> &Region {
        self.records.region()
    }

    /// `rows` of descriptor `seq` are looked at from now on.
    pub(crate) fn hold(&self, seq: u64, rows: LentRows) {
        lock(&self.in_hand).insert(seq, rows);
    }

    /// Those of descriptor `seq` no longer are. To be called before it is released.
    pub(crate) fn let_go(&self, seq: u64, maybe_written: bool) {
        // The lock is held throughout: nobody is to make pages of a batch its own that has been given back.
        let mut in_hand = lock(&self.in_hand);
        if let Some(rows) = in_hand.remove(&seq)
            && maybe_written
        {
            rows.iter().flatten().for_each(|&Stretch { at, len }| self.records.renew(at, len));
        }
    }

    /// Makes all that is in hand this process's own, so that it may say goodbye. `false`: memory is too short for that, and only
    /// the end of this process gives back what it was lent.
    pub(crate) fn make_own(&self) -> bool {
        let in_hand = lock(&self.in_hand);
        let mut stretches = in_hand.values().flat_map(|rows| rows.iter().flatten());
        stretches.all(|&Stretch { at, len }| self.records.make_own(at, len))
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
