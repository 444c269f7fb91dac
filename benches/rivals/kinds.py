"""The images that are decoded: photographs that are cropped at random; icons and raw pixels, taken
as they are."""

import math
import random
from dataclasses import dataclass

# Samples of a batch, except of recipes: their batches have several views, of floats.
BATCH, RECIPE_BATCH = 256, 64

# Parameters of torchvision's RandomResizedCrop: the crop's share of the image, its width over its
# height, and its tries.
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

# Brightness, contrast and saturation of ColorJitter: what all systems have.
COLOURS = (0.4, 0.4, 0.4)
# Parameters of a contrastive recipe, in torchvision's words: ColorJitter, RandomGrayscale,
# GaussianBlur and RandomSolarize, and the chance of each.
JITTER, JITTER_P = (*COLOURS, 0.1), 0.8
GREY_P = 0.2
BLUR_KERNEL, BLUR_SIGMA, BLUR_P = 23, (0.1, 2.0), 0.5
SOLARIZE_FROM, SOLARIZE_P = 128, 0.2

# Recipes take much longer for an image.
RECIPE_FILES = 512


@dataclass(frozen=True)
class Kind:
    """One kind of images.

    `crops`: RandomResizedCrop and RandomHorizontalFlip, or nothing at all. `raw`: a system that
    stores images anew stores their pixels, so that reading and copying alone are measured.
    `augments`: what follows the crop: "" for nothing, "colours" for a jitter of brightness, contrast
    and saturation, "contrastive" for the recipe. With `views` it names one of `recipe_lists`."""

    name: str
    side: int
    crops: bool
    files: int
    raw: bool = False
    augments: str = ""
    # The filter by which crops are resized. Other systems than shade and Pillow are measured by the
    # bilinear one only.
    interpolation: str = "bilinear"
    # Epochs of a process that has everything in memory. The median one of those after the first is
    # timed.
    epochs: int = 2
    # Sides of the views of a recipe, which are normalized floats, channels first. Empty: one image
    # of bytes.
    views: tuple[int, ...] = ()

    @property
    def batch(self) -> int:
        """Samples of a batch."""
        return RECIPE_BATCH if self.views else BATCH


KINDS = {
    "photos": Kind("JPEG 500x375 to 224x224", 224, True, 6_000),
    "bicubic": Kind("JPEG 500x375 to 224x224, bicubic", 224, True, 6_000, interpolation="bicubic"),
    "icons": Kind("Fashion-MNIST PNG 28x28", 28, False, 20_000),
    "pixels": Kind("raw pixels 32x32", 32, False, 200_000, raw=True, epochs=6),
    "jittered": Kind("JPEG 500x375 to 224x224, jittered", 224, True, 3_000, augments="colours"),
    "contrastive": Kind("JPEG 500x375 to 224x224, contrastive", 224, True, 3_000, augments="contrastive"),
    "deit3": Kind("JPEG 500x375, DeiT III", 224, True, RECIPE_FILES, augments="deit3", views=(224,)),
    "convnext": Kind("JPEG 500x375, ConvNeXt", 224, True, RECIPE_FILES, augments="convnext", views=(224,)),
    "dinov2": Kind("JPEG 500x375, DINOv2", 224, True, RECIPE_FILES, augments="dinov2", views=(224,) * 2 + (98,) * 8),
    "simclr": Kind("JPEG 500x375, SimCLR", 224, True, RECIPE_FILES, augments="simclr", views=(224,) * 2),
}


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop's left, top, width and height, for systems that leave the crop to their
    user.

    Where no box fits it is the whole image without its margins."""
    for _ in range(TRIES):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(*map(math.log, RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (width - wide) // 2, (height - high) // 2, wide, high
