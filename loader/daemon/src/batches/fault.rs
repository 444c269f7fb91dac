//! Why a row of a batch has no bytes.

use shade_core::{Fault, FaultKind, SizeFault};
use shade_dataset::{Mismatch, ZstdFault};
use shade_formats::FormatError;
use shade_images::ImageFault;
use shade_job::FieldKind;
use shade_reads::blocks::BlocksError;

/// What went wrong with one row; the others of its order are filled all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillFault {
    /// The stored bytes are not those that were packed.
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    /// The record is no image that can be decoded.
    #[error(transparent)]
    Decode(#[from] ImageFault),
    /// This program panicked on this record, beside its decoders.
    #[error("shade-load panicked, a defect of it: {text}")]
    Panicked {
        /// The panic's message.
        text: String,
    },
    /// Its decoder ends the process: the row is not made.
    #[error("its decoder has ended the daemon twice: it is not decoded any more")]
    Fatal,
    /// Images are wanted in their own sizes, and this one's is unknown or too large.
    #[error(transparent)]
    Size(#[from] SizeFault),
    /// The record cannot be decompressed.
    #[error(transparent)]
    Zstd(#[from] ZstdFault),
    /// Its extra fields are not what the job wants.
    #[error(transparent)]
    Field(#[from] FieldFault),
    /// The order does not fit the record, the arena or the payload: a defect of this program, not
    /// of the record.
    #[error(transparent)]
    Layout(#[from] LayoutFault),
}

impl FillFault {
    /// The fault as the core sees it.
    #[must_use]
    pub fn core_fault(&self) -> Fault {
        let kind = if matches!(self, Self::Checksum(_)) { FaultKind::Checksum } else { FaultKind::Record };
        Fault { kind, text: self.to_string() }
    }
}

/// Why a sample's fields are not what the job wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// They cannot be told apart.
    #[error("its fields: {0}")]
    Damaged(String),
    /// One that all samples must have is missing.
    #[error("it has no field {name:?}, which is to be {kind}")]
    Missing {
        /// The field's name.
        name: String,
        /// What it is to be.
        kind: FieldKind,
    },
    /// One is of another kind.
    #[error("its field {name:?} is to be {kind}, and is {got}")]
    Kind {
        /// The field's name.
        name: String,
        /// What it is to be.
        kind: FieldKind,
        /// What it is.
        got: String,
    },
}

/// How an order is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutFault {
    /// The room reserved for the row is not what the row takes.
    #[error("room of {got} bytes for the row: expected {expected}")]
    Room {
        /// Bytes reserved in the payload.
        got: u64,
        /// Bytes of the record, or of the decoded image.
        expected: u64,
    },
    /// The order has neither the row's record nor its pixels.
    #[error("a row without a record: expected one")]
    NoRecord,
    /// The blocks do not hold the record.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// The row lies outside the payload.
    #[error(transparent)]
    Payload(#[from] FormatError),
}

impl From<BlocksError> for FillFault {
    fn from(error: BlocksError) -> Self {
        LayoutFault::from(error).into()
    }
}

impl From<FormatError> for FillFault {
    fn from(error: FormatError) -> Self {
        LayoutFault::from(error).into()
    }
}
