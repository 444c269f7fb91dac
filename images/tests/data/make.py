"""Writes the images beside it and what Pillow makes of them: `python make.py`, with pillow 13.0 and numpy.

X.EXT                  the image
X.EXT.rgb              Image.open(X).convert("RGB"), interleaved: what torchvision's ImageFolder hands to a transform
X.EXT.upright.rgb      the same after ImageOps.exif_transpose
X.EXT.16.rgb           X.EXT.rgb after torchvision's Resize(16) and CenterCrop(16), by their formulas
resize.png.F.WxH.rgb   resize.png after Image.resize((W, H), F)
encoded.qQ.rgb         baseline.png saved as a JPEG of quality Q and opened again
"""

import os
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = 13, 9
RESIZED = [(31, 22), (30, 20), (20, 14), (13, 9), (7, 5), (61, 20), (17, 43), (70, 50)]
# The last three are resized vertically first.
EDGES_RESIZED = [(31, 22), (20, 43), (61, 20), (17, 43), (90, 71), (7, 5), (50, 10), (58, 20), (90, 20)]
# Images with a reference X.EXT.16.rgb.
CROPPED = ["resize.png", "tall.png", "rgb8.png", "baseline.jpg", "reduced.jpg"]
COLOURS = {"grey": (0, 1), "rgb": (2, 3), "la": (4, 2), "rgba": (6, 4)}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def picture(width, height, seed=1, noise=30):
    """Gradients with one sharp edge and some noise."""
    y, x = np.mgrid[0:height, 0:width]
    edge = np.where(x * 2 > width + y, 50, 0)
    planes = np.stack([x * 170 // width + edge, y * 170 // height + edge, (x + y) * 220 // (width + height)], axis=2)
    noise = np.random.default_rng(seed).integers(0, noise, planes.shape)
    return Image.fromarray((planes + noise).astype(np.uint8))


def with_alpha(image):
    width, height = image.size
    alpha = Image.fromarray((np.arange(width * height) * 7 % 256).astype(np.uint8).reshape(height, width))
    image = image.convert("RGBA")
    image.putalpha(alpha)
    return image


def tiff(name, bits, photometric, samples, data, extra=None, order="<", planar=1, orientation=None):
    """A TIFF in a form that Pillow cannot write: one strip (a plane), uncompressed."""
    width, height = SIZE
    planes = [data] if planar == 1 else data
    late, late_at = b"", 8

    def value(kind, values):
        nonlocal late
        packed = struct.pack(order + {3: "H", 4: "I"}[kind] * len(values), *values)
        if len(packed) <= 4:
            return packed.ljust(4, b"\0")
        late += packed
        return struct.pack(order + "I", late_at + len(late) - len(packed))

    offsets = []
    at = 8 + 200
    for plane in planes:
        offsets.append(at)
        at += len(plane)
    tags = [(256, 3, [width]), (257, 3, [height]), (258, 3, [bits] * samples), (259, 3, [1]), (262, 3, [photometric])]
    tags += [(273, 4, offsets), (274, 3, [orientation or 1]), (277, 3, [samples]), (278, 3, [height])]
    tags += [(279, 4, [len(plane) for plane in planes]), (284, 3, [planar])]
    if extra is not None:
        tags.append((338, 3, [extra]))
    entries = b"".join(struct.pack(order + "HHI", tag, kind, len(values)) + value(kind, values) for tag, kind, values in tags)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, at)
    directory = struct.pack(order + "H", len(tags)) + entries + bytes(4)
    with open(name, "wb") as file:
        file.write(head + late.ljust(200, b"\0") + b"".join(planes) + directory)


def tiffs():
    width, height = SIZE
    image = picture(*SIZE)
    rgb = np.asarray(image)
    grey = image.convert("L")
    image.save("rgb8.tif")
    image.save("lzw.tif", compression="tiff_lzw")
    image.save("deflate.tif", compression="tiff_adobe_deflate")
    image.save("packbits.tif", compression="packbits")
    grey.save("grey8.tif")
    image.convert("1").save("grey1.tif")
    with_alpha(image).save("rgba8.tif")
    image.convert("CMYK").save("cmyk8.tif")
    for o in range(2, 9):
        image.save(f"turned{o}.tif", compression="tiff_lzw", tiffinfo={274: o})
    words = np.random.default_rng(5).integers(0, 65536, (height, width, 4)).astype(np.uint16)
    words[:, ::2, 0] //= 200
    low = np.random.default_rng(6).integers(0, 256, (height, (width * 4 + 7) // 8)).astype(np.uint8)
    tiff("grey4.tif", 4, 1, 1, low.tobytes())
    tiff("grey4_white.tif", 4, 0, 1, low.tobytes())
    tiff("grey2.tif", 2, 1, 1, low[:, : (width * 2 + 7) // 8].tobytes())
    tiff("grey8_white.tif", 8, 0, 1, np.asarray(grey).tobytes())
    tiff("grey16.tif", 16, 1, 1, words[..., 0].astype("<u2").tobytes())
    tiff("grey16_white.tif", 16, 0, 1, words[..., 0].astype("<u2").tobytes())
    tiff("grey16_big.tif", 16, 1, 1, words[..., 0].astype(">u2").tobytes(), order=">")
    tiff("rgb16.tif", 16, 2, 3, words[..., :3].astype("<u2").tobytes())
    tiff("rgb16_big.tif", 16, 2, 3, words[..., :3].astype(">u2").tobytes(), order=">")
    tiff("rgba16.tif", 16, 2, 4, words.astype("<u2").tobytes(), extra=2)
    tiff("rgba16_multiplied.tif", 16, 2, 4, words.astype("<u2").tobytes(), extra=1)
    tiff("cmyk16.tif", 16, 5, 4, words.astype("<u2").tobytes())
    rgba = (words >> 8).astype(np.uint8)
    rgba[::3, :, 3] = 0
    tiff("rgba8_multiplied.tif", 8, 2, 4, rgba.tobytes(), extra=1)
    tiff("rgbx8.tif", 8, 2, 4, rgba.tobytes(), extra=0)
    tiff("la8.tif", 8, 1, 2, rgba[..., :2].tobytes(), extra=2)
    tiff("planar.tif", 8, 2, 3, [rgb[..., c].tobytes() for c in range(3)], planar=2)
    tiff("big_turned.tif", 8, 2, 3, rgb.tobytes(), order=">", orientation=6)
    image.quantize(16).save("unsupported_palette.tif")


def bmp(name, bits, rows, masks=None, palette=b"", compression=0, top_down=False):
    """A BMP in a form that Pillow cannot write."""
    width, height = SIZE
    extra = struct.pack(f"<{len(masks)}I", *masks) if masks else b""
    # Four masks are part of a longer header, three follow the usual one.
    header = 56 if masks and len(masks) == 4 else 40
    start = 14 + 40 + len(extra) + len(palette)
    kind = 3 if masks else compression
    sides = width, -height if top_down else height
    head = struct.pack("<IiiHHIIiiII", header, *sides, 1, bits, kind, len(rows), 0, 0, len(palette) // 4, 0)
    with open(name, "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + extra + palette + rows)


def bmps():
    width, height = SIZE
    image = picture(*SIZE)
    image.save("rgb24.bmp")
    image.convert("L").save("grey8.bmp")
    image.convert("1").save("grey1.bmp")
    image.quantize(64).save("palette8.bmp")
    random = np.random.default_rng(7)
    bmp("rgb32.bmp", 32, random.integers(0, 256, (height, width * 4)).astype(np.uint8).tobytes())
    palette = random.integers(0, 256, 64).astype(np.uint8).tobytes()
    nibbles = random.integers(0, 256, (height, 8)).astype(np.uint8).tobytes()
    bmp("palette4.bmp", 4, nibbles, palette=palette)
    words = random.integers(0, 32768, (height, 14)).astype("<u2")
    bmp("rgb555.bmp", 16, words.tobytes())
    bmp("rgb565.bmp", 16, (words * 2 + 1).astype("<u2").tobytes(), masks=(0xF800, 0x7E0, 0x1F))
    runs = b"".join(bytes([6, y, 4, y + 40, 3, 200 - y, 0, 0]) for y in range(height)) + b"\0\1"
    colours = random.integers(0, 256, 1024).astype(np.uint8).tobytes()
    bmp("rle8.bmp", 8, runs, palette=colours, compression=1)
    # Odd and even numbers of plain values, a run too long for its line, a line cut short, a step.
    mixed = bytes([0, 5, 9, 8, 7, 6, 5, 0, 20, 3, 0, 0, 4, 1, 0, 0, 0, 2, 3, 2, 5, 77, 0, 0])
    mixed += b"".join(bytes([0, 4, 1, 2, 3, 4, 9, y, 0, 0]) for y in range(4)) + b"\0\1"
    bmp("rle8_mixed.bmp", 8, mixed, palette=colours, compression=1)
    runs = b"".join(bytes([0, 5, 0x12, 0x34, 0x5F, 0, 8, 0x10 * y + 7, 0, 0]) for y in range(height)) + b"\0\1"
    bmp("rle4.bmp", 4, runs, palette=palette, compression=2)
    bmp("top_down.bmp", 4, nibbles, palette=palette, top_down=True)
    # Fewer colours than values, so that some values have no colour.
    bmp("palette_short.bmp", 4, nibbles, palette=palette[:20])
    bytes4 = random.integers(0, 256, (height, width * 4)).astype(np.uint8).tobytes()
    bmp("rgba32.bmp", 32, bytes4, masks=(0xFF, 0xFF00, 0xFF0000, 0xFF000000))
    # The oldest header, with sides of 16 bits and three bytes a colour.
    head = struct.pack("<IHHHH", 12, width, height, 1, 4)
    start = 14 + 12 + 48
    with open("core.bmp", "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", start + len(nibbles), 0, 0, start) + head + colours[:48] + nibbles)


def webps():
    image = picture(40, 29)
    # The colour below a low alpha is the frame's, not the canvas's.
    faint = image.convert("RGBA")
    faint.putalpha(Image.fromarray((np.arange(40 * 29) % 30).astype(np.uint8).reshape(29, 40)))
    faint.save("lossy_faint.webp", save_all=True, append_images=[picture(40, 29, 2).convert("RGBA")], exact=True, duration=50)
    image.save("lossy.webp", quality=80)
    image.save("lossless.webp", lossless=True)
    with_alpha(image).save("lossy_alpha.webp", quality=80)
    with_alpha(image).save("lossless_alpha.webp", lossless=True, exact=True)
    image.save("animated.webp", save_all=True, append_images=[picture(40, 29, 2)], lossless=True, duration=100)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(name, kind, bits, width, height, interlaced=False):
    """A PNG of noise in a form that Pillow cannot write."""
    colour, channels = COLOURS[kind]
    values = np.random.default_rng(10).integers(0, 1 << bits, (height, width, channels))

    def row(y, xs):
        packed = "".join(format(v, f"0{bits}b") for v in values[y, xs].ravel())
        packed += "0" * (-len(packed) % 8)
        return b"\0" + int(packed, 2).to_bytes(len(packed) // 8, "big")

    rows = b""
    for left, top, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        xs = range(left, width, dx)
        if xs:
            rows += b"".join(row(y, xs) for y in range(top, height, dy))
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    with open(name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def pngs():
    for kind, bits in [("grey", 1), ("grey", 2), ("grey", 4), ("la", 8), ("la", 16), ("rgb", 16), ("rgba", 8), ("rgba", 16)]:
        png(f"{kind}{bits}.png", kind, bits, 7, 5)
    png("interlaced.png", "rgb", 8, 11, 9, interlaced=True)
    png("interlaced_grey4.png", "grey", 4, 11, 9, interlaced=True)
    small = picture(7, 5)
    small.save("rgb8.png")
    small.quantize(16).save("palette4.png", transparency=3)
    small.quantize(4).save("palette2.png")
    picture(40, 13).quantize(64).save("palette8.png")
    picture(43, 62).save("tall.png")
    picture(61, 43).save("resize.png")
    edges(61, 43).save("edges.png")

    width, height = SIZE
    image = picture(*SIZE)
    image.save("baseline.png")
    image.quantize(16).save("palette_transparent.png", transparency=3)
    image.save("rgb_transparent.png", transparency=(1, 2, 3))
    image.convert("L").save("grey_transparent.png", transparency=20)
    words = np.random.default_rng(8).integers(0, 600, (height, width)).astype(np.uint16)
    Image.fromarray(words).save("grey16.png")
    # Pillow writes no tRNS for 16 bits: the chunk goes in behind IHDR by hand.
    with open("grey16.png", "rb") as file:
        data = file.read()
    with open("grey16_transparent.png", "wb") as file:
        file.write(data[:33] + chunk(b"tRNS", struct.pack(">H", int(words[0, 0]))) + data[33:])


def ppms():
    values = np.random.default_rng(9).integers(0, 256, 15 * 6).astype(np.uint8).tobytes()
    for name, head, size in [
        ("colour.ppm", b"P6\n5 3\n255\n", 45),
        ("six.ppm", b"P6 5 3 6\n", 45),
        ("colour1000.ppm", b"P6 5 3 1000\n", 90),
        ("colour16.ppm", b"P6\n# by hand\n5 3\n65535\n", 90),
        ("grey.pgm", b"P5 5 3 255\n", 15),
        ("grey1000.pgm", b"P5 5 3 1000\n", 30),
        ("grey16.pgm", b"P5 5 3 65535\n", 30),
    ]:
        body = bytes(v % 7 for v in values) if name == "six.ppm" else values
        if name == "grey16.pgm":
            body = bytes(0 if i % 4 == 0 else v for i, v in enumerate(values))
        with open(name, "wb") as file:
            file.write(head + body[:size])


def jpegs():
    image = picture(37, 21)
    image.save("baseline.jpg", quality=90)
    image.save("full.jpg", quality=90, subsampling=0)
    image.save("half.jpg", quality=90, subsampling=1)
    image.save("progressive.jpg", quality=90, progressive=True)
    image.save("rgb.jpg", quality=90, keep_rgb=True)
    image.convert("L").save("grey.jpg", quality=90)
    image.convert("CMYK").save("cmyk.jpg", quality=90)
    picture(301, 203, noise=1).save("reduced.jpg", quality=60)
    # The same numbers called YCCK: 2 is Adobe's mark for it.
    with open("cmyk.jpg", "rb") as file:
        data = bytearray(file.read())
    at = data.index(b"Adobe")
    data[at + 11] = 2
    with open("ycck.jpg", "wb") as file:
        file.write(data)


def turned():
    image = picture(13, 9)
    for o in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = o
        image.save(f"turned{o}.png", exif=exif)
    image = picture(16, 8)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save("turned6.jpg", quality=90, exif=exif)
    image.save("turned6.webp", lossless=True, exif=exif)
    image.save("turned6_prefix.webp", lossless=True, exif=b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0"))
    exif[0x0112] = 9
    image.save("turned9.jpg", quality=90, exif=exif)


def edges(width, height):
    """Text, lines and noise in black and white: the cubic overshoots at each edge."""
    y, x = np.mgrid[0:height, 0:width]
    value = np.where((x // 3 + y // 5) % 2 == 0, 255, 0)
    value[height // 2 :, width // 2 :] = np.random.default_rng(4).integers(0, 2, (height - height // 2, width - width // 2)) * 255
    value[:, ::7] = 255
    return Image.fromarray(np.stack([value, 255 - value, value], axis=2).astype(np.uint8))


def resize_and_crop(image, side):
    width, height = image.size
    if width <= height:
        size = side, int(side * height / width)
    else:
        size = int(side * width / height), side
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - side) / 2.0), round((size[1] - side) / 2.0)
    return image.crop((left, top, left + side, top + side))


def write(name, image):
    with open(name, "wb") as file:
        file.write(image.convert("RGB").tobytes())


def main():
    os.chdir(HERE)
    for name in os.listdir("."):
        if name != "make.py":
            os.remove(name)
    for make in [tiffs, bmps, webps, pngs, ppms, jpegs, turned]:
        make()
    for name in sorted(os.listdir(".")):
        if name == "make.py" or name.startswith("unsupported"):
            continue
        is_turned = name.startswith("turned") and not name.endswith("tif")
        if is_turned:
            write(f"{name}.upright.rgb", ImageOps.exif_transpose(Image.open(name)))
        if name == "turned6.jpg" or not (is_turned or name == "reduced.jpg"):
            write(f"{name}.rgb", Image.open(name))
    for quality in [50, 95]:
        Image.open("baseline.png").save("encoded.jpg", quality=quality)
        write(f"encoded.q{quality}.rgb", Image.open("encoded.jpg"))
    os.remove("encoded.jpg")
    for name in CROPPED:
        write(f"{name}.16.rgb", resize_and_crop(Image.open(name).convert("RGB"), 16))
    source = Image.open("resize.png")
    for filter in [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]:
        for width, height in RESIZED:
            write(f"resize.png.{filter.name.lower()}.{width}x{height}.rgb", source.resize((width, height), filter))
        for width, height in EDGES_RESIZED:
            resized = Image.open("edges.png").resize((width, height), filter)
            write(f"edges.png.{filter.name.lower()}.{width}x{height}.rgb", resized)


main()
