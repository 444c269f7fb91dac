//! `shade-store`: objects in a bucket, by ranges: S3 and what speaks like it, Google Cloud Storage,
//! Azure Blob Storage, and plain HTTP.
//!
//! [`Address`] is where a dataset lies: a folder, or a prefix in a bucket. [`Objects`] reads what
//! lies below a prefix, each object under its ETag, so that two versions are never mixed. Every
//! failure is one of [`Answer`]'s kinds; `shade_dataset` has the rule for each, so a read is not
//! tried again here. [`Uploads`] writes, and tries again by itself.
//!
//! `profile` finds keys as the AWS tools do, `settings` makes a client of an address and the
//! environment, `watched` sees what servers answer, `insecure` says why TLS fails. Without the
//! feature `client` there is none of this, and `no_client` and `no_uploads` refuse every store.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address;
mod answer;
#[cfg(feature = "client")]
mod insecure;
#[cfg_attr(not(feature = "client"), path = "no_client.rs")]
mod objects;
#[cfg(feature = "client")]
mod profile;
#[cfg(feature = "client")]
mod settings;
mod upload;
#[cfg_attr(not(feature = "client"), path = "no_uploads.rs")]
mod uploads;
#[cfg(feature = "client")]
mod watched;

pub use address::{Address, AddressError, Url};
pub use answer::{Answer, Found, StoreFault};
pub use objects::Objects;
pub use upload::{Looked, Mark, Upload, UploadFault, Version, When, Written};
pub use uploads::Uploads;
