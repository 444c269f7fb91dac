"""The fastest decoding that stock parts of Python give: libjpeg-turbo with its fast settings, and
OpenCV.

The pixels differ from Pillow's. The fast DCT and upsampling are off by a few steps of 255, and
OpenCV's bilinear filter leaves out pixels when it makes an image smaller."""

import random

import cv2
import numpy
import simplejpeg

from benches.rivals.kinds import Kind, random_box

# No threads beside a loader's workers.
cv2.setNumThreads(0)


def decode(record: bytes, kind: Kind, into: numpy.ndarray | None = None) -> numpy.ndarray:
    """One sample, height by width by RGB, written to `into` if that is given."""
    whole = decode_whole(record, kind)
    if not kind.crops:
        image = whole
    else:
        left, top, width, height = random_box(whole.shape[1], whole.shape[0])
        box = whole[top : top + height, left : left + width]
        image = cv2.resize(box, (kind.side, kind.side), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
    if into is None:
        return image
    into[:] = image
    return into


def decode_whole(record: bytes, kind: Kind) -> numpy.ndarray:
    """The image without crop and resizing."""
    if kind.crops:
        return simplejpeg.decode_jpeg(record, fastdct=True, fastupsample=True)
    image = cv2.imdecode(numpy.frombuffer(record, numpy.uint8), cv2.IMREAD_COLOR_RGB)
    if image is None:
        raise ValueError("OpenCV does not decode it")
    return image


def version() -> str:
    return f"simplejpeg {simplejpeg.__version__}, OpenCV {cv2.__version__}"
