"""The images that are decoded: photographs that are cropped at random, and icons that are taken as they are."""

from dataclasses import dataclass

# Of torchvision's RandomResizedCrop: the crop's share of the image, and its width over its height.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Kind:
    """What a batch is made of. `crops`: RandomResizedCrop and RandomHorizontalFlip, or nothing at all."""

    name: str
    side: int
    crops: bool
    files: int


KINDS = {
    "photos": Kind("JPEG 500x375 to 224x224", 224, True, 6_000),
    "icons": Kind("Fashion-MNIST PNG 28x28", 28, False, 20_000),
}
