//! `shade-job`: what a training asks for, as one document.
//!
//! A document is JSON. Python and C write it, `Hello` carries it, traces keep it, `simulate` reads
//! it, and a state's digest hashes its canonical form. Each parameter is declared once, here: name,
//! type, default, range and help ([`JobSpec`], [`PlanSpec`]); and so is each transform, with
//! torchvision's name, arguments and defaults ([`Transform`]).
//!
//! ```text
//!   text ─▶ JobSpec ─ validate ─▶ JobSpec ─ to_text ─▶ canonical text
//!             │ plan: PlanSpec                └ PlanSpec::digest
//!             │ decode: Decode ─ output ─▶ Output: an ImageSpec for each view
//! ```
//!
//! Beside the document: the tables of single samples ([`Tables`]), which are files; where strata
//! are placed ([`strata_for`], [`Seats`], [`seats_for`]); and the systems with names ([`Preset`]).

mod arguments;
mod choices;
mod error;
mod names;
mod nodes;
mod output;
mod preset;
mod seats;
mod spec;
mod sticky;
mod strata;
mod subset;
mod tables;
mod transforms;
mod view;
mod weights;

pub use choices::{OnError, Order, Sampler, Tail};
pub use error::SpecError;
pub use names::UnknownName;
pub use output::{Decode, Output};
pub use preset::{Policy, Preset};
pub use seats::Seats;
pub use spec::{JOB_BYTES_MAX, JobSpec, Parameter, PlanSpec, group_digest};
pub use sticky::{Held, held_from_bytes, held_to_bytes, seats_for};
pub use strata::strata_for;
pub use subset::Subset;
pub use tables::Tables;
pub use transforms::{Colour, Factor, Hue, InTurn, Interpolation, Pair, Range, Side, Size, Transform};
pub use view::{Framing, ImageSpec};
pub use weights::WeightTable;
