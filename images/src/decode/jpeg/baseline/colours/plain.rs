//! The conversion for any CPU.

/// Pixels that are converted at a time.
pub(super) const GROUP: usize = 16;

/// JFIF's conversion of each pixel, with 16-bit fixed-point factors.
#[inline(always)]
pub(super) fn to_rgb(lines: &[impl AsRef<[u8]>; 3], rgb: &mut [u8]) {
    let [y, cb, cr] = lines.each_ref().map(AsRef::as_ref);
    for (((pixel, &y), &cb), &cr) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(y).zip(cb).zip(cr) {
        let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
        let half = 1 << 15;
        *pixel = [
            y + ((91_881 * cr + half) >> 16),
            y + ((-22_554 * cb - 46_802 * cr + half) >> 16),
            y + ((116_130 * cb + half) >> 16),
        ]
        .map(|value| value.clamp(0, 255) as u8);
    }
}
