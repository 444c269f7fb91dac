//! Records a training, or takes a recording; then makes it a Chrome trace, if that is asked for.

use shade_simulate::RecordedLines;

use super::cli::Trace;
use super::error::TraceError;
use super::perfetto::perfetto;
use super::record::record;

/// Records until the daemon ends, or Ctrl-C. Nothing is recorded of a file that is a recording.
///
/// # Errors
/// There is no daemon to record, or a file cannot be written; it can be read up to there.
pub fn trace(args: &Trace) -> Result<(), TraceError> {
    let is_recording = args.dataset.is_file() && RecordedLines::is_recording(&args.dataset)?;
    let run = match (&args.out, is_recording) {
        (Some(_), true) => return Err(TraceError::Recorded),
        (None, true) => &args.dataset,
        (Some(out), false) => {
            record(args, out)?;
            out
        }
        (None, false) => return Err(TraceError::NoOut),
    };
    args.perfetto.as_ref().map_or(Ok(()), |out| perfetto(run, out))
}
