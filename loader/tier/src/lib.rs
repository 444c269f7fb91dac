//! `shade-tier`: records in the memory of other machines, in a Valkey or Redis Cluster.
//!
//! The core says what is stored, fetched and removed ([`Tier::order`]); this crate carries it out
//! and answers by events. It knows neither ranking nor store. A server that does not answer, has
//! lost a record or holds wrong bytes is a miss, never an error.
//!
//! | module | job |
//! |---|---|
//! | `key` | the key of a record, and its slot |
//! | `stream` | bytes to and from a server, with deadlines |
//! | `reply` | a server's answer as a value |
//! | `connection` | one connection: log in, call, fetch |
//! | `server` | the thread of one server: fetches, stores, removes |
//! | `routes` | which server has which slot |
//! | `discovery` | what a tier is made of; the thread that finds servers, their room and records |
//! | `tier` | the front |
//! | `examine` | a server's settings and speed, for `doctor` |
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod connection;
mod discovery;
mod examine;
mod key;
mod reply;
mod routes;
mod server;
mod stream;
mod tier;

pub use connection::{Connection, DEADLINE, Login, PASSWORD_VARIABLE, ServerFault};
pub use discovery::TierConfig;
pub use examine::{Examined, ServerFacts, examine};
pub use reply::Reply;
pub use server::Event;
pub use tier::{Order, Tier};
