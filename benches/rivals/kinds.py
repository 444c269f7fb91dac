"""The images that are decoded: photographs that are cropped at random; icons and raw pixels, taken as they are."""

from dataclasses import dataclass

# Of torchvision's RandomResizedCrop: the crop's share of the image, and its width over its height.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Kind:
    """What a batch is made of. `crops`: RandomResizedCrop and RandomHorizontalFlip, or nothing at all.

    `raw`: whoever stores images anew stores their pixels, and all but reading and copying is left out.
    """

    name: str
    side: int
    crops: bool
    files: int
    raw: bool = False
    # Epochs of a process that has all in memory; the median one of those after the first is timed.
    epochs: int = 2


KINDS = {
    "photos": Kind("JPEG 500x375 to 224x224", 224, True, 6_000),
    "icons": Kind("Fashion-MNIST PNG 28x28", 28, False, 20_000),
    "pixels": Kind("raw pixels 32x32", 32, False, 200_000, raw=True, epochs=6),
}
