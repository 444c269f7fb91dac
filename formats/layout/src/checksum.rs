//! The one checksum: CRC32C (Castagnoli), common in storage and computed by CPUs at several GB/s.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the bytes seen so far followed by `bytes`, where `crc` covers those seen so far (0 for
/// none).
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of two pieces one behind the other, of which only the checksums and the second one's
/// length are known.
///
/// A checksum is a polynomial over GF(2), bit 31 its lowest coefficient. To put `second_len` bytes
/// behind the first piece multiplies its polynomial by x^(8 second_len), modulo CRC32C's own. The
/// crate `crc32c` does this with matrices, which takes 40 times as long: 13 us.
#[must_use]
pub fn crc32c_concat(first: u32, second: u32, second_len: usize) -> u32 {
    let mut shifted = first;
    let mut rest = second_len;
    // x^(8 n) is the product of x^(8 * 2^k) over the bits of n.
    for power in &POWERS {
        if rest == 0 {
            break;
        }
        if rest & 1 == 1 {
            shifted = product(shifted, *power);
        }
        rest >>= 1;
    }
    shifted ^ second
}

/// CRC32C's polynomial without x^32, bit 31 its lowest coefficient (Castagnoli, Braeuer, Herrmann,
/// 1993; RFC 3720, appendix B.4, has the same checksum).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(8 * 2^k) modulo the polynomial, for each bit k of a length.
#[expect(clippy::indexing_slicing, reason = "the compiler does it, and would refuse an index out of bounds")]
const POWERS: [u32; usize::BITS as usize] = {
    let mut powers = [1 << (31 - 8); usize::BITS as usize];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = product(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials modulo CRC32C's.
const fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut a, mut b) = (0, a, b);
    while a != 0 {
        // The coefficients of `a` from the lowest on, each times `b` times x as often.
        if a & 1 << 31 != 0 {
            sum ^= b;
        }
        a <<= 1;
        let carry = b & 1;
        b >>= 1;
        if carry == 1 {
            b ^= POLYNOMIAL;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    #[test]
    fn check_value_of_the_polynomial() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c_append(super::crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(super::crc32c_concat(super::crc32c(b"1234"), super::crc32c(b"56789"), 5), 0xe306_9283);
        assert_eq!(super::crc32c_concat(0, super::crc32c(b"123456789"), 9), 0xe306_9283);
        assert_eq!(super::crc32c_concat(0xe306_9283, 0, 0), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn pieces_have_the_checksum_of_the_whole(bytes in vec(any::<u8>(), 0..3000), cut in any::<Index>()) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            let of_pieces = super::crc32c_concat(super::crc32c(first), super::crc32c(second), second.len());
            prop_assert_eq!(of_pieces, super::crc32c(&bytes));
        }

        #[test]
        fn any_length_is_as_the_crate_has_it(first in any::<u32>(), second in any::<u32>(), len in any::<usize>()) {
            prop_assert_eq!(
                super::crc32c_concat(first, second, len),
                crc32c::crc32c_combine(first, second, len)
            );
        }
    }
}
