//! Samples of other kinds to 8-bit RGB, by Pillow's rules: pixels must not depend on the loader.

/// Converts each group of `N` samples into one pixel; stops where the shorter of the two ends.
pub(super) fn each<T, const N: usize>(samples: &[T], rgb: &mut [u8], convert: impl Fn(&[T; N]) -> [u8; 3]) {
    let (pixels, _) = samples.as_chunks::<N>();
    let (colours, _) = rgb.as_chunks_mut::<3>();
    for (pixel, colour) in pixels.iter().zip(colours) {
        *colour = convert(pixel);
    }
}

/// A grey value as a colour.
pub(super) fn grey(value: u8) -> [u8; 3] {
    [value; 3]
}

/// A grey sample of 16 bits, clamped to 255 instead of divided by 256. That loses nearly
/// everything, but `convert("RGB")` does it. (Colours of 16 bits keep their high byte.)
pub(super) fn saturate(value: u16) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// Inks (255 is full) to a colour: `black - ink * black / 255`, rounded, where `black` is 255 minus
/// the black ink.
pub(super) fn from_inks([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let black = u8::MAX - k;
    [c, m, y].map(|ink| black.saturating_sub(times_255th(ink, black)))
}

/// `a * b / 255`, rounded to nearest.
fn times_255th(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    u8::try_from(((product >> 8) + product) >> 8).unwrap_or(u8::MAX)
}

/// Undoes the multiplication of a colour by its alpha; black where alpha is 0.
pub(super) fn undo_alpha(colour: [u8; 3], alpha: u8) -> [u8; 3] {
    let alpha = u32::from(alpha);
    colour.map(|value| {
        let divided = (u32::from(value) * 255).checked_div(alpha).unwrap_or(0);
        u8::try_from(divided).unwrap_or(u8::MAX)
    })
}
