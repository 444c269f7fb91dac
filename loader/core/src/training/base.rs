//! The base of an epoch: what a successor of this daemon needs beside the job's document. Its
//! layout is in `CONTROL.md` of `shade-formats`; `succession` says how it is gone on from.
#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use shade_formats::FormatError;

use super::snapshot::StateToSave;
use crate::ids::SessionId;

const MAGIC: &[u8; 8] = b"SHADEBA1";

/// How new what a rank hands over is: the larger, the newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaseVersion {
    /// States that the rank had loaded by then.
    pub loads: u32,
    /// One more than the epoch of a base; 0: it is a loaded state.
    pub begun: u32,
}

impl BaseVersion {
    /// The epoch of a base.
    pub(super) fn epoch(self) -> Option<u32> {
        self.begun.checked_sub(1)
    }
}

/// A base, to tell it to ranks.
pub(crate) struct Base {
    pub(crate) epoch: u32,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// The order to write the base of an epoch, once its plan is drawn.
pub(super) struct BaseOrder {
    pub(super) had_come: bool,
    /// Without plans.
    pub(super) state: StateToSave,
}

impl BaseOrder {
    /// The base's bytes, without what other nodes are told.
    pub(super) fn to_bytes(&self, epoch: u32) -> Vec<u8> {
        let state = self.state.to_bytes();
        let mut bytes = MAGIC.to_vec();
        bytes.extend([epoch, u32::from(self.had_come)].iter().flat_map(|field| field.to_le_bytes()));
        bytes.extend_from_slice(&(state.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&state);
        bytes
    }
}

/// The parts of a base.
pub(super) struct Parts<'a> {
    pub(super) epoch: u32,
    pub(super) had_come: bool,
    pub(super) state: &'a [u8],
    pub(super) told: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let wrong = |at: usize, expected: &str| {
            FormatError::new("base of an epoch", at as u64, format_args!("{} bytes", bytes.len()), expected)
        };
        let (magic, rest) = bytes.split_first_chunk().ok_or_else(|| wrong(0, "its header"))?;
        if magic != MAGIC {
            return Err(wrong(0, "the magic SHADEBA1"));
        }
        let (epoch, rest) = rest.split_first_chunk().ok_or_else(|| wrong(8, "its header"))?;
        let (had_come, rest) = rest.split_first_chunk().ok_or_else(|| wrong(12, "its header"))?;
        let (len, rest) = rest.split_first_chunk().ok_or_else(|| wrong(16, "its header"))?;
        let had_come = match u32::from_le_bytes(*had_come) {
            flag @ (0 | 1) => flag == 1,
            _ => return Err(wrong(12, "whether the plan goes by losses: 0 or 1")),
        };
        let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let (state, told) = rest.split_at_checked(len).ok_or_else(|| wrong(24, "its whole state"))?;
        Ok(Self { epoch: u32::from_le_bytes(*epoch), had_come, state, told })
    }
}
