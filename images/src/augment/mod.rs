//! From an encoded record to a `uint8` RGB image, as torchvision's transforms would give it, or in
//! its own size.
//!
//! ```text
//!   seed, epoch, position ─ randomness ─▶ crop_box ─ Part ─▶ Decoder ─ Pixels ─▶ row ─▶ bytes
//!                           source's size, ImageSpec       resampled, mirrored, in planes
//!
//!   with operations on pixels:   ... row ─▶ pixels (a row of planes, changed in place) ─▶ bytes
//!   where a job wants floats:    ... bytes ─▶ floats ─▶ floats of the row
//! ```
//!
//! `crop_box` chooses the box of the source that becomes the row, the part of a JPEG to decode and
//! its reduction meanwhile. `row` resizes the box (`resample`), mirrors it and writes its colours,
//! or its grey. `row_decoder` calls them in turn and owns the buffers; several views of an image
//! share what is decoded. An image in its own size has no crop: `whole` writes it. `pixels` does
//! the operations on a finished row, such as `ColorJitter`. Rows without operations go to their
//! place directly. `floats` makes floats of each piece on its way there, still in the L1 cache.
//! `shown` moves a mask and boxes as a view moves its image.
//!
//! EXIF orientation is ignored, as by `PIL.Image.open(..).convert("RGB")`, which `ImageFolder`
//! uses; `shade-pack` can apply it while packing.

mod crop_box;
mod floats;
mod pixels;
mod planes;
mod randomness;
mod row;
mod row_decoder;
mod shown;
mod whole;

pub use row_decoder::RowDecoder;
pub use shown::Shown;
