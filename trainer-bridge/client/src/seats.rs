//! Asks a daemon which strata it has cached.

use std::path::Path;
use std::time::{Duration, Instant};

use shade_dataset::{Content, Dataset};
use shade_formats::control::{PROTOCOL, Reply, Request};
use shade_formats::limits::seats_bytes_max;

use crate::connect::{Greeting, greet, place};
use crate::dialogue::{reply_name, unexpected};
use crate::{ClientError, state};

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
