//! Maps the segments of the daemon's `Welcome`, after checking each of its values.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use serde_json::{Map, Value};
use shade_dataset::Content;
use shade_formats::control::{Reply, WELCOME_FDS};
use shade_formats::ids::ContentId;
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES};
use shade_job::Fields;
use shade_shm::{Access, Consumer, Doorbell, map_segment};

use crate::ClientError;
use crate::batch::{SessionNumber, Slots};
use crate::connect::Connected;
use crate::dialogue::{Dialogue, reply_name, unexpected};
use crate::fork::Owner;
use crate::held::Held;

/// The daemon's facts about itself and the dataset.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) pid: u32,
    /// What it serves.
    pub(crate) content: Content,
    /// What the dataset has now: more, if it was added to since the daemon opened it.
    pub(crate) present: Content,
    pub(crate) batches_per_epoch: u32,
    /// Name of the job, as the daemon has it.
    pub(crate) job: String,
    pub(crate) settings: Map<String, Value>,
}

/// The parts of a session.
pub(crate) struct Attached {
    pub(crate) welcome: Welcome,
    pub(crate) slots: Slots,
    pub(crate) consumer: Consumer,
    pub(crate) dialogue: Dialogue,
}

/// Maps the segments that came with the daemon's `Welcome`. Batches have these extra `fields`.
pub(crate) fn attach(owner: Owner, fields: Fields, connected: Connected) -> Result<Attached, ClientError> {
    let Connected { socket, welcome: (reply, fds), name, content: present } = connected;
    let Reply::Welcome {
        pid,
        samples,
        classes,
        content_id,
        batches_per_epoch,
        payload_bytes,
        job,
        settings,
        ..
    } = reply
    else {
        return Err(unexpected(reply_name(&reply), "Welcome or Refuse"));
    };
    let settings = serde_json::from_str(&settings)
        .map_err(|error| unexpected(format_args!("settings: {error}"), "a JSON object"))?;
    let content = Content { samples, classes, id: ContentId(content_id) };
    // A daemon welcomes who knows more samples only if it has compared those before.
    if content.id != present.id && (samples, classes) >= (present.samples, present.classes) {
        let got = format_args!("content id {} from {name}", content.id);
        return Err(unexpected(got, format_args!("content id {}, as the index says", present.id)));
    }
    let dialogue = Dialogue::new(socket, pid);
    let (slots, consumer) = map(owner, fields, fds, payload_bytes)?;
    let welcome = Welcome { pid, content, present, batches_per_epoch, job, settings };
    Ok(Attached { welcome, slots, consumer, dialogue })
}

/// Maps a session's segments.
fn map(
    owner: Owner,
    fields: Fields,
    fds: Vec<OwnedFd>,
    payload_bytes: u64,
) -> Result<(Slots, Consumer), ClientError> {
    let sent = fds.len();
    let fds: [OwnedFd; WELCOME_FDS] = fds.try_into().map_err(|_| {
        unexpected(format_args!("{sent} descriptors"), format_args!("{WELCOME_FDS} descriptors"))
    })?;
    let [daemon, client, payload, doorbell] = fds;
    let daemon = map_segment("the daemon segment", &daemon, DAEMON_SEGMENT_BYTES, Access::ReadOnly)?;
    let client = map_segment("the client segment", &client, CLIENT_SEGMENT_BYTES, Access::ReadWrite)?;
    let consumer = Consumer::attach(daemon, client)?;
    let size = consumer.payload();
    if size.bytes != payload_bytes {
        return Err(unexpected(
            format_args!("{payload_bytes} bytes of payload"),
            format_args!("{}, as the ring's header has it", size.bytes),
        ));
    }
    let payload = map_segment("the payload segment", &payload, payload_bytes, Access::ReadWrite)?;
    let slots = Slots {
        session: SessionNumber::next(),
        owner,
        releaser: consumer.releaser(),
        doorbell: Doorbell::received(doorbell)?,
        payload,
        fields,
        held: Mutex::new(Held::new(size)?),
    };
    Ok((slots, consumer))
}
