//! Messages between trainer and daemon: one SEQPACKET message on the socket is one value here.
//! `CONTROL.md` has the byte tables.

mod codec;
mod field;
mod image_spec;
mod nodes;
mod pixel_step;
mod pixel_steps;
mod preset;
mod reply;
mod request;
mod scores;
mod seats;
mod settings;
mod socket_name;
mod spec;
mod spec_error;
mod sticky;
mod strata;
mod subset;
mod tables;
mod types;
mod views;
mod weights;

pub use codec::PROTOCOL;
pub use image_spec::{Framing, ImageSpec};
pub use pixel_step::{Moved, PixelStep, Range};
pub use pixel_steps::PixelSteps;
pub use preset::{Policy, Preset};
pub use reply::{
    REFUSE_BUSY, REFUSE_DATASET, REFUSE_DRAINING, REFUSE_ENDING, REFUSE_PERMISSION, REFUSE_PROTOCOL,
    REFUSE_RESOURCES, REFUSE_SPEC, Reply, WELCOME_FDS,
};
pub use request::Request;
pub use scores::{Member, OfStratum, Scores};
pub use seats::Seats;
pub use settings::{LINGERS_FOR_EVER, Settings};
pub use socket_name::{socket_name, socket_prefix};
pub use spec::{FieldError, JobSpec, Parameter, PlanSpec, group_digest};
pub use spec_error::SpecError;
pub use sticky::{Held, held_from_bytes, held_to_bytes, seats_for};
pub use strata::strata_for;
pub use subset::Subset;
pub use tables::Tables;
pub use types::{OnError, Order, Output, Sampler, Tail, UnknownName};
pub use views::Views;
pub use weights::WeightTable;
