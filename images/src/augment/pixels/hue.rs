//! Hue: to Pillow's HSV of three bytes, turned, and back.
//!
//! Pillow computes in a mixture of single and double precision, and so does this: its hue and
//! saturation are cut to bytes, so another rounding would give another colour.

use multiversion::multiversion;

use super::colours::planes;

/// `adjust_hue`, with a shift from -0.5 to 0.5 of the circle.
pub(super) fn hue(row: &mut [u8], shift: f32) {
    let Some([red, green, blue]) = planes(row) else { return };
    turn(red, green, blue, steps(shift));
}

/// The shift in steps of 1 / 255 circle, added to a byte that wraps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from -127 to 127, wrapped")]
fn steps(shift: f32) -> u8 {
    (f64::from(shift) * 255.0) as i32 as u8
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn turn(red: &mut [u8], green: &mut [u8], blue: &mut [u8], steps: u8) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let [hue, saturation, value] = to_hsv(*red, *green, *blue);
        [*red, *green, *blue] = to_rgb(hue.wrapping_add(steps), saturation, value);
    }
}

/// Pillow's `rgb2hsv_row`, without branches.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "single precision and bytes, as Pillow has them; grey pixels' quotients are not used"
)]
fn to_hsv(red: u8, green: u8, blue: u8) -> [u8; 3] {
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    let span = f32::from(most - least);
    let share = |colour: u8| f32::from(most - colour) / span;
    let (r, g, b) = (share(red), share(green), share(blue));
    let (start, forth, back) = if red == most {
        (0.0, b, g)
    } else if green == most {
        (2.0, r, b)
    } else {
        (4.0, g, r)
    };
    // From -1 to 5 sixths of the circle.
    let sixths = (start + f64::from(forth) - f64::from(back)) as f32;
    let turns = f64::from(sixths) / 6.0 + 1.0;
    let turns = (if turns >= 1.0 { turns - 1.0 } else { turns }) as f32;
    let is_grey = most == least;
    let hue = if is_grey { 0 } else { (f64::from(turns) * 255.0) as i32 as u8 };
    let saturation = if is_grey { 0 } else { (f64::from(span / f32::from(most)) * 255.0) as i32 as u8 };
    [hue, saturation, most]
}

/// Pillow's `hsv2rgb`, without branches.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "single precision and bytes, as Pillow has them"
)]
fn to_rgb(hue: u8, saturation: u8, value: u8) -> [u8; 3] {
    let sixth = i32::from(hue) * 6 / 255;
    let within = (f64::from(hue) * 6.0 / 255.0 - f64::from(sixth)) as f32;
    let share = f32::from(saturation) / 255.0;
    // Rounded as C's `round`: no half is below 0.
    let level = |share: f64| (f64::from(value) * share + 0.5) as i32 as u8;
    let p = level(1.0 - f64::from(share));
    let q = level(1.0 - f64::from(share * within));
    let t = level(1.0 - f64::from(share) * (1.0 - f64::from(within)));
    match sixth {
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        5 => [value, p, q],
        // A hue of 255 is the whole circle.
        _ => [value, t, p],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_circle_turns_red_to_green() {
        let mut row = vec![200, 7, 0, 0, 7, 0, 0, 7, 200];
        hue(&mut row, 1.0 / 3.0);
        let pixel = |row: &[u8], at: usize| [row[at], row[3 + at], row[6 + at]];
        assert_eq!(pixel(&row, 0), [0, 200, 0]);
        assert_eq!(pixel(&row, 1), [7, 7, 7], "grey has no hue");
        assert_eq!(pixel(&row, 2), [200, 0, 0]);
        assert_eq!([steps(-0.5), steps(0.1), steps(-0.001)], [129, 25, 0]);
    }
}
