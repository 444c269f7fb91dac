"""A data set from nothing, for machines without Fashion-MNIST: textured shapes as a JPEG ImageFolder.

Ten classes: five shapes, each with one of two textures. Colour, place, size, turn and noise vary and say nothing
about the class. The same seed gives the same pictures."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

SHAPES = ("disc", "square", "triangle", "ring", "cross")
TEXTURES = ("stripes", "checks")
CLASSES = tuple(f"{shape}-{texture}" for shape in SHAPES for texture in TEXTURES)
IMAGE_SIZE = 64
TRAIN_SAMPLES = 12_000

_JPEG_QUALITY = 88
# Validation pictures are drawn from other seeds than any training picture.
_SPLIT_NUMBERS = {"train": 0, "val": 1}


def draw_picture(label: int, generator: np.random.Generator, size: int = IMAGE_SIZE) -> np.ndarray:
    """One picture of class `label`, uint8 of shape (size, size, 3)."""
    shape, texture = divmod(label, len(TEXTURES))
    across, down = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))
    turn = generator.uniform(0, 2 * np.pi)
    scale = generator.uniform(0.45, 0.8)
    across, down = across - generator.uniform(-0.25, 0.25), down - generator.uniform(-0.25, 0.25)
    x = (across * np.cos(turn) + down * np.sin(turn)) / scale
    y = (down * np.cos(turn) - across * np.sin(turn)) / scale

    ink, paper = generator.uniform(0, 255, size=(2, 3))
    pattern = _texture(TEXTURES[texture], x, y, generator)[..., None]
    inside = _inside(SHAPES[shape], x, y)[..., None]
    figure = pattern * ink + (1 - pattern) * (255 - ink)
    picture = np.where(inside, figure, paper) + generator.normal(0, 18, size=(size, size, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


def write_image_folder(target: Path, train_samples: int = TRAIN_SAMPLES, seed: int = 0) -> None:
    """Writes `target`/train and a sixth as many pictures as `target`/val; `target` appears only when it is complete."""
    part = target.with_name(target.name + ".part")
    for split, samples in (("train", train_samples), ("val", max(1, train_samples // 6))):
        _write_split(part / split, _SPLIT_NUMBERS[split], samples, seed)
    part.rename(target)


def _write_split(folder: Path, split_number: int, samples: int, seed: int) -> None:
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        label = number % len(CLASSES)
        picture = draw_picture(label, np.random.default_rng((seed, split_number, number)))
        Image.fromarray(picture).save(folder / CLASSES[label] / f"{number:06}.jpg", quality=_JPEG_QUALITY)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(write, range(samples), chunksize=64):
            pass


def _inside(shape: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    radius = np.hypot(x, y)
    if shape == "disc":
        return radius < 0.9
    if shape == "square":
        return np.maximum(abs(x), abs(y)) < 0.8
    if shape == "triangle":
        return (y > -0.5) & (y + np.sqrt(3) * abs(x) < 1)
    if shape == "ring":
        return (radius < 0.95) & (radius > 0.5)
    if shape == "cross":
        return (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 0.95)
    raise ValueError(f"no such shape: {shape}")


def _texture(texture: str, x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    pitch = generator.uniform(7, 11)
    stripes = np.sin(pitch * x)
    wave = stripes if texture == "stripes" else stripes * np.sin(pitch * y) * 2
    return np.clip(wave + 0.5, 0, 1)
