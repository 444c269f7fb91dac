//! Messages between trainer and daemon: one SEQPACKET message on the socket is one value here.
//! `CONTROL.md` has the byte tables.

mod codec;
mod field;
mod reply;
mod request;
mod scores;
mod socket_name;

pub use codec::PROTOCOL;
pub use reply::{
    REFUSE_BUSY, REFUSE_DATASET, REFUSE_DRAINING, REFUSE_ENDING, REFUSE_PERMISSION, REFUSE_PROTOCOL,
    REFUSE_RESOURCES, REFUSE_SPEC, Reply, WELCOME_FDS,
};
pub use request::Request;
pub use scores::{Member, OfStratum, Scores};
pub use socket_name::{socket_name, socket_prefix};
