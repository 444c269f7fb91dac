//! CPU time of one thread for decoding to a row of a batch, beside the decoder alone.

use std::io::Cursor;

use shade_formats::Geometry;
use shade_formats::index::Media;
use shade_images::{Decoder, Draw, ImageFault, Part, RowDecoder, Size, with_restart_markers};
use shade_job::{Factor, Filters, Framing, Hue, ImageSpec, Resampling, Transform};
use shade_shm::Region;

use crate::cpu_time::timed;
use crate::figure::{Figure, Unit};
use crate::images::{IMAGENET, icon, photos, thumbnail};
use crate::result::Result;

const PHOTOS: u64 = 200;
const SMALL: u64 = 2000;
const RUNS: u32 = 5;
/// Budget of a row in the decoder's time: nine tenths of its throughput.
const TIMES_MAX: f64 = 1.0 / 0.9;

/// Budget of a row with restart markers, in the time without: they are worth it if 1.3 times as
/// fast.
const MARKED_TIMES_MAX: f64 = 1.0 / 1.3;

/// A training's crop of an image.
pub(crate) fn cropped() -> ImageSpec {
    let framing = Framing::RandomResized { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] };
    ImageSpec { framing, flip: 0.5, ..ImageSpec::cover(224, 224) }
}

/// Photographs, and images so small that fixed costs show.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let cropped = cropped();
    let photos = photos(PHOTOS, &IMAGENET)?;
    let left: Vec<_> = photos.iter().map(|photo| left_to_libjpeg_turbo(photo)).collect();
    let marked =
        photos.iter().map(|photo| with_restart_markers(photo)).collect::<std::result::Result<Vec<_>, _>>()?;
    let icons = (0..SMALL).map(icon).collect::<Result<Vec<_>>>()?;
    let thumbnails = (0..SMALL).map(thumbnail).collect::<Result<Vec<_>>>()?;
    let pixels: Vec<Vec<u8>> = (0..SMALL)
        .map(|seed| [b"P6\n32 32\n255\n", [seed.to_le_bytes(); 384].as_flattened()].concat())
        .collect();

    let mut bench = Bench::new();
    let [mut whole, mut all, mut part, mut part_left, mut row, mut last, mut from_marked] =
        [const { Vec::new() }; 7];
    let mut small = [const { Vec::new() }; 3];
    let [mut ours, mut bare] = [const { [const { Vec::new() }; 2] }; 2];
    for epoch in 0..RUNS {
        whole.push(bench.alone(Media::Jpeg, &left, |_, size| Ok(Part::whole(size)))?);
        for (times, photos) in [(&mut part, &photos), (&mut part_left, &left)] {
            times.push(bench.alone(Media::Jpeg, photos, |position, size| {
                RowDecoder::part(&cropped, Draw::at(1, epoch, position), size)
            })?);
        }
        all.push(bench.alone(Media::Jpeg, &photos, |_, size| Ok(Part::whole(size)))?);
        row.push(bench.rows(Media::Jpeg, &photos, &cropped, epoch)?);
        from_marked.push(bench.rows(Media::Jpeg, &marked, &cropped, epoch)?);
        last.push(bench.rows(
            Media::Jpeg,
            &photos,
            &ImageSpec { channels_last: true, ..cropped.clone() },
            epoch,
        )?);
        let sets = [(Media::Png, &icons, 28), (Media::Png, &thumbnails, 32), (Media::Ppm, &pixels, 32)];
        for (times, (media, files, side)) in small.iter_mut().zip(sets) {
            times.push(bench.rows(media, files, &ImageSpec::cover(side, side), epoch)?);
        }
        for ((ours, bare), files) in ours.iter_mut().zip(&mut bare).zip([&icons, &thumbnails]) {
            ours.push(bench.alone(Media::Png, files, |_, size| Ok(Part::whole(size)))?);
            bare.push(png_crate(files)?);
        }
    }
    let figure = |name: &str, runs| Figure::new(name, Unit::UsPerRecord, runs);
    let whole = figure("libjpeg-turbo alone, JPEG 110 KB, whole", whole);
    let all = figure("decoder alone, JPEG 110 KB, whole", all).beside(&whole);
    let part_left = figure("libjpeg-turbo alone, JPEG 110 KB, the part", part_left);
    let part = figure("decoder alone, JPEG 110 KB, the part", part).beside(&part_left);
    let row = figure("row, RandomResizedCrop(224), JPEG 110 KB", row).within(TIMES_MAX, &part_left);
    let last = figure("row, the same, channels last", last).within(TIMES_MAX, &part_left);
    let from_marked =
        figure("row, the same, with restart markers", from_marked).within(MARKED_TIMES_MAX, &row);
    let [icon, thumbnail, pixels] = small;
    let mut figures = vec![
        row,
        last,
        from_marked,
        part,
        part_left,
        all,
        whole,
        figure("row, 28 x 28, PNG 500 B", icon),
        figure("row, 32 x 32, PNG 2 KB", thumbnail),
        figure("row, 32 x 32, PPM 3 KB", pixels),
    ];
    for (kind, (ours, bare)) in
        ["28 x 28, PNG 500 B", "32 x 32, PNG 2 KB"].into_iter().zip(ours.into_iter().zip(bare))
    {
        let bare = figure(&format!("png crate alone, {kind}"), bare);
        figures.extend([figure(&format!("decoder alone, {kind}"), ours).beside(&bare), bare]);
    }
    figures.extend(two_views(&mut bench, &photos)?.into_iter().chain(other_crops(&mut bench, &photos)?));
    Ok(figures)
}

/// The crop by the bicubic filter, and behind a change of all pixels, beside the plain one, by
/// turns.
fn other_crops(bench: &mut Bench, photos: &[Vec<u8>]) -> Result<[Figure; 3]> {
    let bilinear = cropped();
    let bicubic = ImageSpec { resampling: Filters::One(Resampling::Bicubic), ..cropped() };
    let jitter = Transform::ColorJitter {
        brightness: Factor([0.6, 1.4]),
        contrast: Factor::default(),
        saturation: Factor::default(),
        hue: Hue::default(),
    };
    let behind = ImageSpec { before: vec![jitter], ..cropped() };
    let mut runs = [const { Vec::new() }; 3];
    for epoch in 0..RUNS {
        for (runs, spec) in runs.iter_mut().zip([&bilinear, &bicubic, &behind]) {
            runs.push(bench.rows(Media::Jpeg, photos, spec, epoch)?);
        }
    }
    let [bilinear, bicubic, behind] = runs;
    let figure = |name: &str, runs| Figure::new(name, Unit::UsPerRecord, runs);
    let bilinear = figure("row, RandomResizedCrop(224), JPEG 110 KB, bilinear", bilinear);
    let bicubic = figure("row, the same, bicubic", bicubic).beside(&bilinear);
    let behind = figure("row, the same, brightness before it", behind).beside(&bilinear);
    Ok([bilinear, bicubic, behind])
}

/// Two views of each photograph in one pass, beside two passes, by turns.
fn two_views(bench: &mut Bench, photos: &[Vec<u8>]) -> Result<[Figure; 2]> {
    let view = cropped();
    let [mut together, mut twice] = [const { Vec::new() }; 2];
    for epoch in 0..RUNS {
        together.push(bench.views(photos, &[view.clone(), view.clone()], epoch)?);
        // The second pass has crops of its own, as a second view has.
        let first = bench.rows(Media::Jpeg, photos, &view, epoch)?;
        twice.push(first + bench.rows(Media::Jpeg, photos, &view, RUNS + epoch)?);
    }
    let twice = Figure::new(
        "two views, RandomResizedCrop(224), JPEG 110 KB, in two passes",
        Unit::UsPerRecord,
        twice,
    );
    let together = Figure::new("the same in one pass", Unit::UsPerRecord, together).beside(&twice);
    Ok([together, twice])
}

/// The photograph with a fill byte before its first marker. It is allowed but unusual, so
/// libjpeg-turbo decodes it.
fn left_to_libjpeg_turbo(photo: &[u8]) -> Vec<u8> {
    let (start, rest) = photo.split_at(2);
    [start, &[0xFF], rest].concat()
}

/// Microseconds an image of the `png` crate, to the file's own colours.
fn png_crate(files: &[Vec<u8>]) -> Result<f64> {
    let mut pixels = vec![0; 1 << 16];
    let (time, done) = timed(|| -> Result<()> {
        for file in files {
            png::Decoder::new(Cursor::new(file)).read_info()?.next_frame(&mut pixels)?;
        }
        Ok(())
    });
    done?;
    Ok(time.as_secs_f64() * 1e6 / files.len() as f64)
}

/// A worker's buffers and the target of its rows.
pub(crate) struct Bench {
    images: Decoder,
    rows: RowDecoder,
    row: Region,
    /// Rows for which `row` has room: one after another, and then from the first again.
    places: u64,
}

impl Bench {
    /// All rows go to the same place.
    pub(crate) fn new() -> Self {
        Self::of_batches(1, 1 << 20)
    }

    /// Rows of up to `row_bytes` go to this many places in turn, as those of a batch do.
    pub(crate) fn of_batches(places: u64, row_bytes: u64) -> Self {
        let row = Region::heap(places * row_bytes);
        Self { images: Decoder::new(), rows: RowDecoder::default(), row, places }
    }

    /// Microseconds an image of the decoder alone.
    fn alone(
        &mut self,
        media: Media,
        files: &[Vec<u8>],
        part: impl Fn(u32, Size) -> std::result::Result<Part, ImageFault>,
    ) -> Result<f64> {
        let (time, done) = timed(|| -> Result<()> {
            for (position, file) in (0..).zip(files) {
                let part = |size| part(position, size).unwrap_or(Part::whole(size));
                self.images.decode_part(media, file, part)?;
            }
            Ok(())
        });
        done?;
        Ok(time.as_secs_f64() * 1e6 / files.len() as f64)
    }

    /// Microseconds an image for all of its views, from its bytes to the ring.
    fn views(&mut self, files: &[Vec<u8>], views: &[ImageSpec], epoch: u32) -> Result<f64> {
        let mut geometry = vec![Geometry::default(); views.len()];
        let (time, done) = timed(|| -> Result<()> {
            for (position, file) in (0..).zip(files) {
                let draw = Draw::at(1, epoch, position);
                let write = |_, at, bytes: &[u8]| -> Result<()> { Ok(self.row.write(at, bytes)?) };
                self.rows.decode_views(Media::Jpeg, file, views, draw, &mut geometry, write)?;
            }
            Ok(())
        });
        done?;
        Ok(time.as_secs_f64() * 1e6 / files.len() as f64)
    }

    /// The row of a photograph, passed to `write` in pieces with their places.
    pub(crate) fn row(photo: &[u8], spec: &ImageSpec, mut write: impl FnMut(u64, &[u8])) -> Result<()> {
        let mut decoder = RowDecoder::default();
        decoder.decode(Media::Jpeg, photo, spec, Draw::default(), |at, bytes| -> Result<()> {
            write(at, bytes);
            Ok(())
        })?;
        Ok(())
    }

    /// Microseconds an image, from its bytes to the ring.
    pub(crate) fn rows(
        &mut self,
        media: Media,
        files: &[Vec<u8>],
        spec: &ImageSpec,
        epoch: u32,
    ) -> Result<f64> {
        let (time, done) = timed(|| -> Result<()> {
            for (position, file) in (0..).zip(files) {
                let draw = Draw::at(1, epoch, position);
                let start = u64::from(position) % self.places * spec.bytes();
                self.rows.decode(media, file, spec, draw, |at, bytes| -> Result<()> {
                    Ok(self.row.write(start + at, bytes)?)
                })?;
            }
            Ok(())
        });
        done?;
        Ok(time.as_secs_f64() * 1e6 / files.len() as f64)
    }
}
