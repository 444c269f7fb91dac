//! Calls of libjpeg-turbo that the binding `turbojpeg` does not offer: decoding a part of an image,
//! and lossless transcoding.
//!
//! `unsafe`: the library takes pointers. Each block below is one call, beside what makes it sound.

#![expect(unsafe_code, reason = "calls of a C library")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use turbojpeg::raw;

use crate::{Area, Size};

/// First words of the warnings (`JWRN_*` in libjpeg's jerror.h) behind which libjpeg goes on as
/// Pillow lets it. Any other text is a fault: that the file ends early, and errors, which the
/// library gives the code of a warning too if one came before.
const WARNINGS: [&str; 5] = [
    "Corrupt JPEG data: ",
    "Inconsistent progression sequence",
    "Invalid SOS parameters for sequential JPEG",
    "Unknown Adobe color transform code",
    "Warning: unknown JFIF revision number",
];

/// A handle for decoding one image.
pub(super) struct Handle(NonNull<std::ffi::c_void>);

/// An image whose header was read.
pub(super) struct Opened<'a> {
    handle: Handle,
    bytes: &'a [u8],
    pub(super) header: Header,
    /// What is out of place in the header.
    warning: Option<String>,
}

/// The content of a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) size: Size,
    pub(super) samples: Samples,
    /// Stored without a DCT: it can be neither reduced nor decoded in part.
    pub(super) is_lossless: bool,
    /// Columns of a block: a part begins at a block's edge. `None` where no part can be decoded.
    pub(super) block_width: Option<u32>,
}

/// The samples of a decoded pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Samples {
    Rgb,
    /// Lossless and grey: the library converts no colours then.
    Grey,
    /// CMYK or YCCK.
    Inks,
}

/// How to decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decode {
    /// Divisor of both sides.
    pub(super) by: u32,
    /// Area of the reduced image, with `left` at a block's edge; `None` for all of it.
    pub(super) area: Option<Area>,
}

impl Samples {
    /// Their number.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
            Self::Inks => 4,
        }
    }

    fn format(self) -> raw::TJPF {
        match self {
            Self::Grey => raw::TJPF_TJPF_GRAY,
            Self::Rgb => raw::TJPF_TJPF_RGB,
            Self::Inks => raw::TJPF_TJPF_CMYK,
        }
    }
}

impl Handle {
    /// A handle that refuses images of more than `scans` scans.
    pub(super) fn new(scans: u32) -> Result<Self, String> {
        Self::of_kind(raw::TJINIT_TJINIT_DECOMPRESS, scans)
    }

    fn of_kind(kind: raw::TJINIT, scans: u32) -> Result<Self, String> {
        // SAFETY: takes and keeps no pointer.
        let handle = unsafe { raw::tj3Init(int(kind)) };
        let handle = NonNull::new(handle).ok_or("libjpeg-turbo gives no handle: out of memory?")?;
        let mut handle = Self(handle);
        handle.set(raw::TJPARAM_TJPARAM_SCANLIMIT, c_int::try_from(scans).unwrap_or(c_int::MAX))?;
        Ok(handle)
    }

    /// Reads the header of `bytes`.
    pub(super) fn open(mut self, bytes: &[u8]) -> Result<Opened<'_>, String> {
        // SAFETY: the handle is live, and the library reads `bytes.len()` bytes of a slice that
        // outlives the call.
        let result = unsafe { raw::tj3DecompressHeader(self.0.as_ptr(), bytes.as_ptr(), bytes.len() as _) };
        let warning = self.warning(result)?;
        let side = |side: c_int| u32::try_from(side).unwrap_or(0);
        let is_lossless = self.get(raw::TJPARAM_TJPARAM_LOSSLESS) != 0;
        let samples = match self.get(raw::TJPARAM_TJPARAM_COLORSPACE) {
            colours if [raw::TJCS_TJCS_CMYK, raw::TJCS_TJCS_YCCK].map(int).contains(&colours) => {
                Samples::Inks
            }
            colours if is_lossless && colours == int(raw::TJCS_TJCS_GRAY) => Samples::Grey,
            _ => Samples::Rgb,
        };
        let header = Header {
            size: Size {
                width: side(self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH)),
                height: side(self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT)),
            },
            samples,
            is_lossless,
            block_width: match self.get(raw::TJPARAM_TJPARAM_SUBSAMP) {
                raw::TJSAMP_TJSAMP_444
                | raw::TJSAMP_TJSAMP_GRAY
                | raw::TJSAMP_TJSAMP_440
                | raw::TJSAMP_TJSAMP_441 => Some(8),
                raw::TJSAMP_TJSAMP_422 | raw::TJSAMP_TJSAMP_420 => Some(16),
                raw::TJSAMP_TJSAMP_411 => Some(32),
                _ => None,
            },
        };
        // To the library a file with tables only is no error.
        if header.size.pixels() == 0 {
            return Err(warning.unwrap_or_else(|| "no image behind the tables".to_owned()));
        }
        Ok(Opened { handle: self, bytes, header, warning })
    }

    fn set_area(&mut self, area: Area) -> Result<(), String> {
        let number = |side: u32| c_int::try_from(side).unwrap_or(c_int::MAX);
        let region = raw::tjregion {
            x: number(area.left),
            y: number(area.top),
            w: number(area.size.width),
            h: number(area.size.height),
        };
        // SAFETY: the handle is live; the region goes by value.
        let result = unsafe { raw::tj3SetCroppingRegion(self.0.as_ptr(), region) };
        self.check(result)
    }

    fn set_divisor(&mut self, by: u32) -> Result<(), String> {
        let factor = raw::tjscalingfactor { num: 1, denom: c_int::try_from(by).unwrap_or(0) };
        // SAFETY: the handle is live; the factor goes by value.
        let result = unsafe { raw::tj3SetScalingFactor(self.0.as_ptr(), factor) };
        self.check(result)
    }

    fn set(&mut self, parameter: raw::TJPARAM, value: c_int) -> Result<(), String> {
        // SAFETY: the handle is live; the rest goes by value.
        let result = unsafe { raw::tj3Set(self.0.as_ptr(), int(parameter), value) };
        self.check(result)
    }

    fn get(&mut self, parameter: raw::TJPARAM) -> c_int {
        // SAFETY: the handle is live; the rest goes by value.
        unsafe { raw::tj3Get(self.0.as_ptr(), int(parameter)) }
    }

    fn check(&mut self, result: c_int) -> Result<(), String> {
        if result == 0 { Ok(()) } else { Err(self.text()) }
    }

    /// The warning of a call that has done its work all the same. It is the call's first one:
    /// others may have followed.
    fn warning(&mut self, result: c_int) -> Result<Option<String>, String> {
        if result == 0 {
            return Ok(None);
        }
        // SAFETY: the handle is live.
        let code = unsafe { raw::tj3GetErrorCode(self.0.as_ptr()) };
        let text = self.text();
        let is_warning =
            code == int(raw::TJERR_TJERR_WARNING) && WARNINGS.iter().any(|begin| text.starts_with(begin));
        if is_warning { Ok(Some(text)) } else { Err(text) }
    }

    /// The library's message about the last call.
    fn text(&mut self) -> String {
        // SAFETY: the handle is live; the text is the library's.
        let text = unsafe { raw::tj3GetErrorStr(self.0.as_ptr()) };
        // SAFETY: a C string in the handle, unchanged until the next call; it is copied here.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

impl Opened<'_> {
    /// Decodes the image into `pixels`, row after row. Returns the library's first warning, if it
    /// had one: the library then made up what it could not decode.
    pub(super) fn decode(self, how: Decode, pixels: &mut [u8]) -> Result<Option<String>, String> {
        let Self { mut handle, bytes, header, warning } = self;
        handle.set_divisor(how.by)?;
        if let Some(area) = how.area {
            handle.set_area(area)?;
        }
        let size = how.area.map_or_else(|| header.size.divided(how.by), |area| area.size);
        let pitch = size.width as usize * header.samples.count();
        let expected = pitch * size.height as usize;
        if pixels.len() != expected {
            return Err(format!("room for {} bytes of pixels: expected {expected}", pixels.len()));
        }
        let pitch = c_int::try_from(pitch).unwrap_or(c_int::MAX);
        // SAFETY: the handle is live; the library reads `bytes.len()` bytes of one slice and writes
        // rows of `pitch` bytes into the other, as many as the area or the reduced image has:
        // `expected` bytes, which it has as compared above. Both outlive the call. The sizes are
        // those of these very bytes: the library reads their header again, and `open` keeps handle
        // and bytes together.
        let result = unsafe {
            raw::tj3Decompress8(
                handle.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as _,
                pixels.as_mut_ptr(),
                pitch,
                header.samples.format(),
            )
        };
        Ok(handle.warning(result)?.or(warning))
    }
}

/// Transcodes one image without decoding it to pixels.
pub(super) struct Recoder(Handle);

impl Recoder {
    /// A transcoder that puts a restart marker after every `interval` MCUs and optimises the
    /// Huffman tables.
    pub(super) fn new(scans: u32, interval: u32) -> Result<Self, String> {
        let mut handle = Handle::of_kind(raw::TJINIT_TJINIT_TRANSFORM, scans)?;
        handle.set(raw::TJPARAM_TJPARAM_OPTIMIZE, 1)?;
        let interval = c_int::try_from(interval).unwrap_or(c_int::MAX);
        handle.set(raw::TJPARAM_TJPARAM_RESTARTBLOCKS, interval)?;
        Ok(Self(handle))
    }

    /// The transcoded image; `None` if something is out of place in `bytes`.
    pub(super) fn recode(mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let as_it_is = raw::tjtransform {
            r: raw::tjregion { x: 0, y: 0, w: 0, h: 0 },
            op: int(raw::TJXOP_TJXOP_NONE),
            options: 0,
            data: std::ptr::null_mut(),
            customFilter: None,
        };
        let mut found = Allocated { at: std::ptr::null_mut(), len: 0 };
        // SAFETY: the handle is live; the library reads `bytes.len()` bytes of a slice and one
        // transform, and writes a pointer to the memory that it allocated and the image's length in
        // it. All outlive the call.
        let result = unsafe {
            raw::tj3Transform(
                self.0.0.as_ptr(),
                bytes.as_ptr(),
                bytes.len() as _,
                1,
                &raw mut found.at,
                &raw mut found.len,
                &raw const as_it_is,
            )
        };
        let warning = self.0.warning(result)?;
        Ok(warning.is_none().then(|| found.bytes().to_vec()))
    }
}

/// Bytes that the library allocated.
struct Allocated {
    /// Null until then.
    at: *mut u8,
    len: raw::size_t,
}

impl Allocated {
    /// The image; call this only after a successful transform.
    fn bytes(&self) -> &[u8] {
        if self.at.is_null() {
            return &[];
        }
        // SAFETY: `recode` calls this only after a successful transform: then `at` points to `len`
        // bytes, which are ours until they are freed.
        unsafe { std::slice::from_raw_parts(self.at, usize::try_from(self.len).unwrap_or(0)) }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: null or what the library has allocated for us, freed once.
        unsafe { raw::tj3Free(self.at.cast()) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing uses it after this.
        unsafe { raw::tj3Destroy(self.0.as_ptr()) };
    }
}

/// A value of the library's enums, which the binding declares as u32 where none is negative.
fn int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
