//! The shared memory of one session: made here, written through `shade_formats::ring`, and handed to the trainer.

mod segment;

pub use segment::{Doorbell, RingEnd, RingSegments};
