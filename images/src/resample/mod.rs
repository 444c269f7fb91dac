//! Resizing as Pillow's `Image.resize` does it: by convolution, antialiased when shrinking.
//!
//! | | `whole` | `bands` | `passes` |
//! |---|---|---|---|
//! | used by | packer | daemon | daemon |
//! | code | fast_image_resize | our own | our own |
//! | filters | bilinear, bicubic | bilinear | the others |
//! | source | all of an image | a part of it, at fractions of pixels | as `bands` |
//! | result | interleaved | interleaved or in planes, mirrored or not | as `bands` |
//! | off Pillow's | a level | a level | nothing |
//!
//! Neither does another's work well: see `docs/decisions/013-a-resizer-of-our-own.md`.

mod bands;
mod order;
mod passes;
mod source;
mod whole;

use bands::Bands;
pub(crate) use bands::LINES;
pub(crate) use order::Order;
use passes::Passes;
pub(crate) use passes::reach;
use shade_job::Resampling;
pub(crate) use source::Source;
pub use whole::Filter;

use crate::Size;
use crate::part::Span;

/// Resizes; keeps its buffers between images.
#[derive(Default)]
pub(crate) struct Resampler {
    filter: Resampling,
    bands: Bands,
    passes: Passes,
}

impl Resampler {
    /// Prepares resizing a source of size `source` to these columns and lines, mirrored from left
    /// to right if `mirrored`. The bilinear filter has one order, as either gives its result to
    /// within a level.
    pub(crate) fn start(
        &mut self,
        filter: Resampling,
        order: Order,
        source: Size,
        spans: [Span; 2],
        mirrored: bool,
    ) {
        self.filter = filter;
        match filter {
            Resampling::Bilinear => self.bands.start(source, &spans, mirrored),
            _ => self.passes.start(filter, order, source, &spans, mirrored),
        }
    }

    /// The result's [`LINES`] lines from `first` on: interleaved with `channels_last`, else plane
    /// by plane. Lines below the result are unspecified. Bands are asked for from above, all with
    /// one `source` and one `channels_last`.
    pub(crate) fn band(&mut self, source: &Source<'_>, first: usize, channels_last: bool) -> &[u8] {
        match self.filter {
            Resampling::Bilinear => self.bands.band(source, first, channels_last),
            _ => self.passes.band(source, first, channels_last),
        }
    }

    /// Frees the buffers if a large image made them grow.
    pub(crate) fn shrink(&mut self) {
        self.bands.shrink();
        self.passes.shrink();
    }
}
