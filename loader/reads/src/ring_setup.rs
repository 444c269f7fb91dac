//! Makes the best ring that this kernel offers, or says why there is none.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use crate::availability::{Unavailable, explained, too_old};

/// Depth of a ring that is made only to see whether one can be.
const TRIAL_DEPTH: u32 = 8;

/// Setup flags of a ring as the engine needs it, if one can be made here.
///
/// # Errors
/// The reason why not.
pub fn io_uring_here() -> Result<String, Unavailable> {
    let made = set_up(TRIAL_DEPTH, false);
    made.map(|(_, setup)| setup.to_owned()).map_err(|error| {
        let known = error.get_ref().and_then(|inner| inner.downcast_ref::<Unavailable>()).cloned();
        known.unwrap_or_else(|| Unavailable { why: error.to_string(), remedy: None })
    })
}

/// Makes a ring with the best flags this kernel knows, and checks that it can do what we need.
pub(super) fn set_up(depth: u32, buffered: bool) -> io::Result<(IoUring, &'static str)> {
    let (ring, setup) = build(depth).map_err(|error| explained("io_uring_setup", &error))?;
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    probed.map_err(|error| explained("IORING_REGISTER_PROBE", &error))?;
    let known = probe.is_supported(opcode::Readv::CODE) && probe.is_supported(opcode::PollAdd::CODE);
    if !known || !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(too_old());
    }
    // A filter may allow to make a ring and deny its use.
    ring.submitter().submit().map_err(|error| explained("io_uring_enter", &error))?;
    if buffered {
        // A buffered read blocks one kernel worker; by default there would be four per CPU. Linux
        // 5.15 and later.
        let _ = ring.submitter().register_iowq_max_workers(&mut [depth, 0]);
    }
    Ok((ring, setup))
}

fn build(depth: u32) -> io::Result<(IoUring, &'static str)> {
    // One entry more for the bell's poll.
    let entries = depth + 1;
    let best = IoUring::builder()
        .setup_clamp()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match best {
        Ok(ring) => return Ok((ring, "SINGLE_ISSUER|DEFER_TASKRUN|COOP_TASKRUN")),
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
        Err(_) => {}
    }
    match IoUring::builder().setup_clamp().setup_coop_taskrun().setup_taskrun_flag().build(entries) {
        Ok(ring) => return Ok((ring, "COOP_TASKRUN, before Linux 6.1")),
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
        Err(_) => {}
    }
    Ok((IoUring::builder().setup_clamp().build(entries)?, "before Linux 5.19"))
}
