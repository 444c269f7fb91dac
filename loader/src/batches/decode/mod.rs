//! From an encoded record to a `uint8` RGB image: of the batch's size, as torchvision's transforms would give it, or of its
//! own.
//!
//! `chance` draws from seed, epoch and position; `cut` says with that which box of the source becomes the row, what of a JPEG
//! need be decoded and how far it may be reduced meanwhile; the crate `shade-images` fills interleaved RGB; `resample` resizes the
//! box, mirrors it and orders the colours, which `row` writes where they belong. `decoder` strings them together and owns the
//! buffers. An image in its own size is not drawn, cut or resized: `whole` writes it.
//!
//! Orientation in EXIF is ignored, as PIL's `Image.open(..).convert("RGB")`, which `ImageFolder` uses, ignores it;
//! `shade-pack` can apply it once and for all.

mod chance;
mod colours;
mod cut;
mod decoder;
mod fault;
mod resample;
mod row;
mod whole;

pub use chance::Draw;
pub use decoder::Decoder;
pub use fault::DecodeFault;
pub(super) use shade_images::{scratch, shrink};
