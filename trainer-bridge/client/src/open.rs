//! Opens a session: greets the daemon, or starts one, and attaches to its ring.

use std::path::Path;

use shade_dataset::{Content, Dataset};
use shade_job::{JobSpec, Tables};

use crate::attach::attach;
use crate::connect::{Options, open};
use crate::hello::Hello;
use crate::{ClientError, Session};

impl Session {
    /// Opens a session for `rank` of `job` on `dataset`, starting a private daemon if none answers
    /// and `options` allows it.
    ///
    /// # Errors
    /// The dataset's path or the specification is wrong, no daemon answers in time, another user
    /// has the socket, or the daemon refuses, hangs up, has another version or sends memory that is
    /// not safe to map.
    pub fn connect(
        dataset: &Path,
        job: &str,
        rank: u32,
        spec: JobSpec,
        options: &Options,
    ) -> Result<Self, ClientError> {
        open_session(Hello::new(dataset, job, rank, spec, &options.settings)?, options)
    }

    /// As [`Session::connect`], for a job that has something to say of single samples: the weights
    /// of the sampler `weighted`, or the subset that it delivers.
    ///
    /// # Errors
    /// As for [`Session::connect`], and if the tables are of another dataset.
    pub fn connect_with(
        dataset: &Path,
        job: &str,
        rank: u32,
        spec: JobSpec,
        tables: Tables,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let hello = Hello::new(dataset, job, rank, spec, &options.settings)?;
        open_session(hello.with_tables(tables)?, options)
    }
}

/// The content of the dataset that is in `folder` now.
///
/// # Errors
/// It is not a dataset, or cannot be read.
pub fn content(folder: &Path) -> Result<Content, ClientError> {
    Ok(Content::now(&Dataset::folder(folder)?)?)
}

fn open_session(mut hello: Hello, options: &Options) -> Result<Session, ClientError> {
    hello.or_free_name = options.or_free_name;
    let attached = attach(hello.owner, open(&hello, options)?)?;
    attached.dialogue.offer_stderr();
    Ok(Session::new(hello.owner, hello.dataset, attached))
}
