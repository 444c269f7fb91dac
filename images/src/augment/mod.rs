//! From an encoded record to a `uint8` RGB image, as torchvision's transforms would give it, or in
//! its own size.
//!
//! ```text
//!   seed, epoch, position ── randomness ──▶ crop_box ── Part ──▶ Decoder ── Pixels ──▶ row ──▶ bytes
//!                                           source's size, ImageSpec          resampled, mirrored, in planes
//! ```
//!
//! `crop_box` says which box of the source becomes the row, what of a JPEG must be decoded and how
//! far it may be reduced meanwhile. `row` resizes the box (`resample`), mirrors it and writes the
//! colours where they belong. `row_decoder` calls them in turn and owns the buffers. An image in
//! its own size has no crop: `whole` writes it.
//!
//! Orientation in EXIF is ignored, as `PIL.Image.open(..).convert("RGB")` ignores it, which
//! `ImageFolder` uses; `shade-pack` can apply it once and for all.

mod crop_box;
mod planes;
mod randomness;
mod row;
mod row_decoder;
mod whole;

pub use row_decoder::RowDecoder;
