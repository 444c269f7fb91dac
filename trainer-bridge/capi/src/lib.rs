//! `libshade_client`: the C interface of `shade-client`.
//!
//! [`calls`] and the codes in [`fault`] are the whole of it, from which `include/shade_client.h` is
//! made. [`options`] reads the options, [`fault`] turns errors into codes, [`memory`] is where C's
//! memory is read and written.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod calls;
pub mod fault;
mod memory;
mod options;
mod position;
