//! Opens a session: greets the daemon, or starts one, and attaches to its ring. Asks, without a
//! session, for a dataset's content and for the strata that its daemon has cached.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shade_dataset::{Content, Dataset};
use shade_formats::SampleId;
use shade_formats::control::{PROTOCOL, Reply, Request};
use shade_formats::limits::seats_bytes_max;
use shade_job::{JobSpec, Tables};

use crate::attach::attach;
use crate::connect::{Greeting, Options, greet, open, place};
use crate::dialogue::{reply_name, unexpected};
use crate::hello::Hello;
use crate::{ClientError, Session, state};

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
        open_session(Hello::new(dataset, job, rank, spec)?, options)
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
        let hello = Hello::new(dataset, job, rank, spec)?;
        open_session(hello.with_tables(tables)?, options)
    }
}

/// The folder of the dataset at `path`, or at an address such as `s3://bucket/prefix`: then it is
/// one of this user's, with the index as it is there now.
///
/// # Errors
/// There is nothing, or the store does not give the index.
pub fn folder(path: &Path) -> Result<PathBuf, ClientError> {
    Ok(Dataset::folder(path)?)
}

/// The content of the dataset that is in `folder` now.
///
/// # Errors
/// It is not a dataset, or cannot be read.
pub fn content(folder: &Path) -> Result<Content, ClientError> {
    Ok(Content::now(&Dataset::folder(folder)?)?)
}

/// Height and width of the images of the dataset in `folder`, which all have the same.
///
/// # Errors
/// It is not a dataset, or cannot be read, or its images have different sizes.
pub fn image_size(folder: &Path) -> Result<[u32; 2], String> {
    let dataset = Dataset::open(folder).map_err(|error| error.to_string())?;
    let sizes = (0..dataset.index.len()).filter_map(|id| {
        let entry = dataset.index.entry(SampleId(id))?;
        Some([u32::from(entry.height), u32::from(entry.width)])
    });
    let mut sizes = sizes.enumerate();
    let (_, first) = sizes.next().ok_or("the dataset is empty")?;
    let sized = |[height, width]: [u32; 2]| format!("{width} x {height}");
    if first.contains(&0) {
        return Err(
            "the dataset does not say how large its images are: add a crop, or give image_size".to_owned()
        );
    }
    match sizes.find(|(_, size)| *size != first) {
        None => Ok(first),
        Some((other, size)) => Err(format!(
            "images have different sizes (sample 0 has {}, sample {other} {}): add a crop, or give image_size",
            sized(first),
            sized(size)
        )),
    }
}

fn open_session(mut hello: Hello, options: &Options) -> Result<Session, ClientError> {
    (hello.or_free_name, hello.survives) = (options.or_free_name, options.survive);
    let attached = attach(hello.owner, hello.spec().fields.clone(), open(&hello, options)?)?;
    attached.dialogue.offer_stderr();
    Ok(Session::new(hello, options, attached))
}

/// How long the answer may take: the daemon goes through all records of its cache.
const ANSWER: Duration = Duration::from_secs(10);

/// How much of each of `strata` strata the dataset's daemon has cached, and their number, as
/// [`held_from_bytes`](shade_job::held_from_bytes) reads it. With 0 strata: as many as
/// the last job had that trained there. `None` if no daemon answers.
///
/// # Errors
/// The dataset cannot be opened, or the daemon refuses or breaks the protocol.
pub fn held(
    dataset: &Path,
    socket: Option<&Path>,
    strata: u32,
) -> Result<Option<(u32, Vec<u8>)>, ClientError> {
    let folder = Dataset::folder(dataset)?;
    let Content { samples, id, .. } = Content::now(&folder)?;
    let place = place(&folder, socket)?;
    let request = Request::Held { protocol: PROTOCOL, samples, content_id: id.0, strata };
    let Greeting::Welcome(_, (reply, fds)) = greet(&place, &request, None, Instant::now() + ANSWER)? else {
        return Ok(None);
    };
    let Reply::Held { strata, bytes, .. } = reply else {
        return Err(unexpected(reply_name(&reply), "Held or Refuse"));
    };
    let held = state::read("the strata that are held", bytes, &fds, seats_bytes_max(samples))?;
    Ok(Some((strata, held)))
}
