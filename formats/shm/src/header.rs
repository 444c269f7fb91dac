//! Writes and reads the header of a mapped segment.

use shade_formats::FormatError;
use shade_formats::ring::{HEADER, LINE_BYTES, PayloadSize, Segment};

use crate::Region;

/// Writes the header of a fresh segment.
///
/// # Errors
/// When the segment has the wrong length, or `payload` is impossible.
pub(crate) fn write(segment: Segment, region: &Region, payload: PayloadSize) -> Result<(), FormatError> {
    check_len(segment, region)?;
    region.write(HEADER, &segment.header(payload)?)
}

/// Checks the header and returns what it says of the payload.
///
/// # Errors
/// When the segment's length or header is not that of this build's layout.
pub(crate) fn read(segment: Segment, region: &Region) -> Result<PayloadSize, FormatError> {
    check_len(segment, region)?;
    let mut line = [0; LINE_BYTES];
    region.read(HEADER, &mut line)?;
    segment.payload(&line)
}

fn check_len(segment: Segment, region: &Region) -> Result<(), FormatError> {
    if region.len() == segment.bytes() {
        return Ok(());
    }
    let got = format_args!("a segment of {} bytes", region.len());
    Err(FormatError::new(segment.name(), HEADER, got, segment.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_another_length_is_refused() {
        let payload = PayloadSize { bytes: 8192, gap_bytes: 5000 };
        let short = Region::heap(4096);
        assert!(write(Segment::Daemon, &short, payload).is_err());
        assert!(write(Segment::Client, &short, payload).is_ok());
        assert!(read(Segment::Daemon, &short).is_err());
        assert_eq!(read(Segment::Client, &short).unwrap(), payload);
    }
}
