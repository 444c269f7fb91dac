//! `shade-job`: what a training asks for, as one document, and how a daemon runs, as another.
//!
//! A document is JSON. Python and C write it, `Hello` carries it, traces keep it, `simulate` reads
//! it, and a state's digest hashes its canonical form. Each parameter is declared once, here: name,
//! type, default, range and help ([`JobSpec`], [`PlanSpec`], [`DaemonSpec`]); and so is each
//! transform, with torchvision's name, arguments and defaults ([`Transform`]).
//!
//! ```text
//!   text ─▶ JobSpec ─ validate ─▶ JobSpec ─ to_text ─▶ canonical text
//!             │ plan: PlanSpec                └ PlanSpec::digest
//!             │ decode: Decode ─ output ─▶ Output: an ImageSpec for each view
//! ```
//!
//! A mixture's parts and their ratio are [`Parts`], and the sizes of batches' images [`Buckets`].
//!
//! Beside the document: the tables of single samples ([`Tables`]), which are files; where strata
//! are placed ([`strata_for`], [`Seats`], [`seats_for`]); and the systems with names ([`Preset`]).

mod arguments;
mod boxes;
mod buckets;
mod capacity;
mod choices;
mod declared;
mod error;
mod fields;
mod fields_read;
mod floats;
mod names;
mod nodes;
mod npy;
mod numbers;
mod output;
mod parts;
mod preset;
mod seats;
mod servers;
mod settings;
mod spec;
mod sticky;
mod store;
mod strata;
mod subset;
mod tables;
mod transform_arguments;
mod transform_checks;
mod transforms;
mod values;
mod view;
mod weights;

pub use boxes::BoxFormat;
pub use buckets::Buckets;
pub use capacity::{Capacity, CapacityError};
pub use choices::{EngineChoice, IoMode, JpegDecoder, OnError, Order, Sampler, Tail};
pub use declared::{Declared, Parameter};
pub use error::SpecError;
pub use fields::{FieldKind, Fields};
pub use fields_read::FieldsRead;
pub use floats::{Floats, Normalize};
pub use names::UnknownName;
pub use numbers::NumberType;
pub use output::{Decode, Output};
pub use parts::{EpochLength, Part, Parts, Ratio};
pub use preset::{Policy, Preset};
pub use seats::Seats;
pub use servers::{Address, ParseServersError, Servers};
pub use settings::{DECODED_BYTES, DaemonSpec, LINGERS_FOR_EVER, Settings};
pub use spec::{JOB_BYTES_MAX, JobSpec, PlanSpec, group_digest, known_plan};
pub use sticky::{Held, held_from_bytes, held_to_bytes, seats_for};
pub use store::{ClockModel, FaultShares, LatencyModel, StoreModel};
pub use strata::strata_for;
pub use subset::Subset;
pub use tables::Tables;
pub use transforms::{
    AutoAugmentPolicy, Colour, Degrees, Factor, Filters, Hue, InTurn, Interpolation, Pair, Range, Resampling,
    Shear, Side, Size, Transform,
};
pub use values::{parse_rate, parse_time};
pub use view::{Framing, ImageSpec};
pub use weights::WeightTable;
