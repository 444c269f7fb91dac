"""Writes the images beside it and what PIL makes of them: `python make.py`, with pillow 13.0 (its libjpeg-turbo 3.1).

X.png, X.jpg, X.ppm   the image
X.rgb                 Image.open(X).convert("RGB"), interleaved: what torchvision's ImageFolder hands to a transform
X.16.rgb              the same after torchvision's Resize(16) and CenterCrop(16), by their formulas
"""

import os
import struct
import zlib

from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"grey": (0, 1), "rgb": (2, 3), "la": (4, 2), "rgba": (6, 4)}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def noise(i):
    return (i * 2654435761 >> 7) & 0xFFFFFFFF


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(path, kind, bits, width, height, interlaced=False):
    """A PNG of noise in a form that PIL cannot write."""
    colour, channels = COLOURS[kind]

    def row(y, xs):
        values = [noise((y * width + x) * channels + c) % (1 << bits) for x in xs for c in range(channels)]
        packed = "".join(format(v, f"0{bits}b") for v in values)
        packed += "0" * (-len(packed) % 8)
        return b"\0" + int(packed, 2).to_bytes(len(packed) // 8, "big")

    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = b""
    for left, top, dx, dy in passes:
        xs = range(left, width, dx)
        if xs:
            rows += b"".join(row(y, xs) for y in range(top, height, dy))
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    with open(path, "wb") as file:
        file.write(data)


def picture(width, height):
    """Smooth, with one sharp edge, and a different gradient in each colour."""
    image = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            edge = 60 if x * 2 > width + y else 0
            image.putpixel((x, y), (x * 190 // width + edge, y * 190 // height + edge, (x + y) * 255 // (width + height)))
    return image


def resize_and_crop(image, side):
    width, height = image.size
    if width <= height:
        size = side, int(side * height / width)
    else:
        size = int(side * width / height), side
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - side) / 2.0), round((size[1] - side) / 2.0)
    return image.crop((left, top, left + side, top + side))


def main():
    os.chdir(HERE)
    for kind, bits in [("grey", 1), ("grey", 2), ("grey", 4), ("grey", 16), ("la", 8), ("la", 16), ("rgb", 16), ("rgba", 8), ("rgba", 16)]:
        png(f"{kind}{bits}.png", kind, bits, 7, 5)
    png("interlaced.png", "rgb", 8, 11, 9, interlaced=True)
    png("interlaced_grey4.png", "grey", 4, 11, 9, interlaced=True)

    small = picture(7, 5)
    small.save("rgb8.png")
    palette = small.quantize(16)
    palette.save("palette4.png", transparency=3)
    small.quantize(4).save("palette2.png")
    picture(40, 13).quantize(64).save("palette8.png")
    picture(61, 43).save("wide.png")
    picture(43, 62).save("tall.png")
    with open("scaled.ppm", "wb") as file:
        file.write(b"P6 # largest value below 255\n4 3\n100\n" + bytes(noise(i) % 101 for i in range(36)))
    with open("grey.ppm", "wb") as file:
        file.write(b"P5\n5 3 255\n" + bytes(noise(i) % 256 for i in range(15)))

    medium = picture(37, 21)
    medium.save("baseline.jpg", quality=85)
    medium.save("progressive.jpg", quality=85, progressive=True, subsampling=0)
    medium.convert("L").save("grey.jpg", quality=85)
    medium.convert("CMYK").save("cmyk.jpg", quality=85)
    picture(301, 203).save("reduced.jpg", quality=60)
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees": ignored
    picture(20, 12).save("rotated.jpg", quality=85, exif=exif)

    resized = {"wide.png", "tall.png", "rgb8.png", "baseline.jpg", "reduced.jpg"}
    whole = lambda name: name not in {"wide.png", "tall.png", "reduced.jpg"}
    for name in sorted(os.listdir(".")):
        if name.endswith((".png", ".jpg", ".ppm")):
            image = Image.open(name).convert("RGB")
            if whole(name):
                with open(f"{name}.rgb", "wb") as file:
                    file.write(image.tobytes())
            if name in resized:
                with open(f"{name}.16.rgb", "wb") as file:
                    file.write(resize_and_crop(image, 16).tobytes())


main()
