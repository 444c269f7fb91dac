"""Bytes of an image or of a field, and the names of their members in a tar."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

from ._native import ShadeError

if TYPE_CHECKING:
    from PIL import Image

    from .writer import ImageLike

# The first bytes of files that shade-pack takes for images, and their extensions.
MAGIC = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    b"BM": "bmp",
    b"P6": "ppm",
    b"P5": "pgm",
    b"II*\0": "tif",
    b"MM\0*": "tif",
}
# Extensions of images: a field of such a name could be taken for the image.
IMAGE_NAMES = frozenset({"jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "tif", "tiff"})
FLOATS = "multiply values from 0 to 1 by 255, round, and convert to uint8"


def image_member(image: ImageLike, form: str, quality: int) -> tuple[str, bytes]:
    """Extension and bytes of an image. Files' bytes stay what they are.

    Raises: ShadeError: It is no image.
    """
    if isinstance(image, os.PathLike):
        with open(image, "rb") as file:
            image = file.read()
    if isinstance(image, (bytes, bytearray, memoryview)):
        content = bytes(image)
        return extension_of(content), content
    picture = image if is_picture(image) else picture_of(image)
    return ("jpg" if form == "jpeg" else "png"), encoded(picture, form, quality)


def extension_of(content: bytes) -> str:
    """The extension of an image file with these bytes."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "webp"
    for magic, extension in MAGIC.items():
        if content.startswith(magic):
            return extension
    start = content[:8].hex(" ")
    raise ShadeError(
        f"its {len(content)} bytes are of no known kind of image (they begin with {start}): give bytes of a JPEG, PNG, "
        "WebP, BMP, TIFF, PPM or PGM file, a PIL image, an array or a tensor"
    )


def is_picture(image: object) -> bool:
    """Whether it is an image of Pillow, which need not be imported."""
    return hasattr(image, "save") and hasattr(image, "getbands")


def is_array(value: object) -> bool:
    """Whether it is an array of NumPy or a tensor, with at least one dimension."""
    return hasattr(value, "__array__") and hasattr(value, "dtype") and len(getattr(value, "shape", ())) > 0


def encoded(picture: Image.Image, form: str, quality: int) -> bytes:
    """A file of this form. PNG keeps all modes that it has; others of 8 bits become RGB.

    Raises: ShadeError: Its numbers have more bits, which RGB would lose.
    """
    if form == "jpeg":
        modes, options = ("RGB", "L"), {"quality": quality}
    else:
        modes, options = ("RGB", "L", "RGBA", "LA", "P", "1", "I;16"), {}
    if picture.mode not in modes:
        if picture.mode.startswith(("F", "I")):
            raise ShadeError(
                f"it is a PIL image of mode {picture.mode!r}, whose numbers {form} does not hold: give an array in a field, or "
                "convert it"
            )
        picture = picture.convert("RGB")
    file = io.BytesIO()
    picture.save(file, form.upper(), **options)
    return file.getvalue()


def picture_of(image: object) -> Image.Image:
    """The image of an array (height x width, with channels last) or of a tensor (with channels first)."""
    if not is_array(image):
        raise ShadeError(f"a {type(image).__name__} is no image: give bytes, a path, a PIL image, an array or a tensor")
    try:
        import numpy as np
        from PIL import Image
    except ImportError as error:
        raise ShadeError(f"arrays and tensors are encoded by NumPy and Pillow: {error}") from error
    pixels = numpy_of(image)
    if pixels.dtype != np.uint8:
        remedy = FLOATS if pixels.dtype.kind == "f" else "convert them to uint8"
        raise ShadeError(f"its pixels are {pixels.dtype}, not uint8: {remedy}")
    shape = tuple(pixels.shape)
    # Tensors have their channels first, as torchvision's; arrays have them last, as Pillow's.
    if pixels.ndim == 3 and is_tensor(image):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if 0 in shape or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        order = "channels x height x width" if is_tensor(image) else "height x width x channels"
        raise ShadeError(f"its shape is {shape}: an image is height x width, or {order} with 1, 3 or 4 channels")
    return Image.fromarray(np.ascontiguousarray(pixels))


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of PyTorch, which need not be imported."""
    return type(value).__module__.split(".")[0] in ("torch", "torchvision") and hasattr(value, "detach")


def numpy_of(value: Any) -> Any:
    """The array of a tensor, of any device, or of an array."""
    import numpy as np

    return np.asarray(value.detach().cpu() if is_tensor(value) else value)


def field_member(name: str, value: object) -> tuple[str, bytes]:
    """Name and bytes of a field.

    Bytes and texts keep their name. Arrays become `NAME.npy`, pictures `NAME.png`, and what JSON can say `NAME.json`.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, bytes(value)
    if isinstance(value, str) and not name.lower().endswith("json"):
        return name, value.encode()
    if is_picture(value):
        return ended(name, "png"), encoded(value, "png", 0)  # type: ignore[arg-type]
    if is_array(value):
        import numpy as np

        file = io.BytesIO()
        np.save(file, numpy_of(value), allow_pickle=False)
        return ended(name, "npy"), file.getvalue()
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    return (name if name.lower().endswith("json") else f"{name}.json"), text.encode()


def ended(name: str, ending: str) -> str:
    """The name with this ending, once."""
    return name if name.lower().endswith(f".{ending}") else f"{name}.{ending}"


def plain(value: Any) -> Any:
    """What JSON can say of a number, an array or a tensor within a field."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
