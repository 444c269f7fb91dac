//! The size of a package, as an option.

use std::fmt;
use std::str::FromStr;

use shade_job::Policy;

use crate::neighbours::SPAN_BYTES_MAX;

/// The size of `auto` with the policy `icache`.
const ICACHE_BYTES: u32 = 64 * 1024;

/// Bytes of a shard that a miss brings along. As text: `auto`, or 0 to 256 KiB, as in `64KiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackageBytes {
    /// 64 KiB with the policy `icache`, else none.
    #[default]
    Auto,
    /// This many; 0 brings none.
    Fixed(u32),
}

impl PackageBytes {
    /// The bytes with this policy.
    #[must_use]
    pub fn of(self, policy: Policy) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Auto if policy == Policy::Icache => ICACHE_BYTES,
            Self::Auto => 0,
        }
    }
}

impl FromStr for PackageBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = parse_size::parse_size(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
        let bytes = bytes.filter(|&bytes| bytes <= SPAN_BYTES_MAX);
        bytes.map(Self::Fixed).ok_or_else(|| format!("{text:?}: write auto or 0 to 256 KiB, as in 64KiB"))
    }
}

impl fmt::Display for PackageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, bytes) in
            [("auto", [65_536, 0]), ("0", [0, 0]), ("64KiB", [65_536; 2]), ("262144", [262_144; 2])]
        {
            let package: PackageBytes = text.parse().unwrap();
            assert_eq!([Policy::Icache, Policy::Lookahead].map(|policy| package.of(policy)), bytes, "{text}");
            assert_eq!(package.to_string().parse(), Ok(package));
        }
        for bad in ["", "257KiB", "-1", "8GiB", "some"] {
            assert!(bad.parse::<PackageBytes>().is_err(), "{bad}");
        }
    }
}
