//! Bytes as people read them.

/// In binary units: `512 B`, `8 MiB`, `1.5 GiB`.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value < 10.0 && value.fract() > 0.0);
    format!("{value:.decimals$} {}", units.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_short() {
        let table = [
            (0, "0 B"),
            (512, "512 B"),
            (8 << 20, "8 MiB"),
            (3 << 29, "1.5 GiB"),
            (262_144, "256 KiB"),
            (113_664, "111 KiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (bytes, expected) in table {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }
}
