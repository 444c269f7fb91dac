//! The samplers: how often each sample comes in an epoch, and with which loss weight. `table` names
//! them, `draw` is what each of them gives.

mod chances;
mod cover;
mod draw;
mod echo;
mod icache;
mod infobatch;
mod pads;
mod repeats;
mod replacement;
mod replicate;
mod seta;
mod table;
mod uniform;
mod weighted;

pub(super) use draw::{Draw, Weights};
pub use icache::high_importance;
pub use repeats::Repeats;
pub use replicate::rep_now;
pub use table::may_leave_out;
pub(super) use table::{draw, keeps_order};
