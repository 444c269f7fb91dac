//! The orders of delivery. `table` names them, `ordered` is what each of them gives; `apart` then
//! moves repeats apart.

mod apart;
mod hits_first;
mod opportunistic;
mod ordered;
mod shuffled;
mod spaced;
mod table;

pub(super) use table::{as_drawn, in_order};
