"""`shade-pack create --format jpeg|raw` and `--restart-markers`, compared with Pillow."""

import io
import json
import os
from pathlib import Path

import numpy as np
import packed
import pytest
from PIL import Image, ImageOps
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop

SHORT = 40
LONG = 60


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Smooth enough for JPEG, and with enough detail to show a wrong filter."""
    noise = np.random.default_rng(seed).integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of every mode and many sizes, some turned by EXIF."""
    root = tmp_path_factory.mktemp("images") / "folder"
    (root / "a").mkdir(parents=True)
    turned = Image.Exif()
    for number, (width, height) in enumerate([(97, 61), (61, 150), (200, 41), (33, 30), (64, 64)]):
        image = picture(width, height, number)
        image.save(root / "a" / f"{number}-rgb.png")
        image.convert("L").save(root / "a" / f"{number}-grey.png")
        image.convert("P", palette=Image.Palette.ADAPTIVE).save(root / "a" / f"{number}-palette.png")
        image.convert("RGBA").save(root / "a" / f"{number}-alpha.png")
        image.convert("CMYK").save(root / "a" / f"{number}-cmyk.jpg", quality=95)
        image.save(root / "a" / f"{number}.bmp")
        image.save(root / "a" / f"{number}.tif")
        image.save(root / "a" / f"{number}.webp", lossless=True)
        sixteen = np.asarray(image.convert("L")).astype(np.uint16) * 3
        Image.fromarray(sixteen).save(root / "a" / f"{number}-sixteen.png")
        turned[0x0112] = 5 + number % 4
        image.save(root / "a" / f"{number}-turned.jpg", quality=95, exif=turned.tobytes())
    return root


def judged(file: Path, filter_: Image.Resampling | None) -> np.ndarray:
    """Upright, RGB, resized by torchvision's rule for the short side, then the long side's limit."""
    with Image.open(file) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
    width, height = image.size
    if filter_ is not None:
        if min(width, height) > SHORT:
            width, height = SHORT * width // min(width, height), SHORT * height // min(width, height)
        if max(width, height) > LONG:
            width, height = LONG * width // max(width, height), LONG * height // max(width, height)
        if (width, height) != image.size:
            image = image.resize((width, height), filter_)
    return np.asarray(image, dtype=np.int16)


def stored(dataset: Path, root: Path) -> dict[str, Image.Image]:
    """Every record by its original path, decoded by Pillow."""
    packed.run_pack("extract", dataset, root)
    found = {}
    for file in sorted(root.rglob("*.*")):
        found[str(file.relative_to(root))] = Image.open(io.BytesIO(file.read_bytes()))
    return found


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_resized_pixels_are_pillows(folder: Path, tmp_path: Path, name: str) -> None:
    filter_ = Image.Resampling[name.upper()]
    options = ["--format", "raw", "--resize-short", SHORT, "--max-side", LONG, "--filter", name]
    packed.run_pack("create", folder, tmp_path / "data.shade", *options)
    packed.run_pack("verify", tmp_path / "data.shade", "--decode")
    images = stored(tmp_path / "data.shade", tmp_path / "back")
    assert len(images) == 50
    for path, image in images.items():
        assert image.format == "PPM"
        expected = judged(folder / path, filter_)
        found = np.asarray(image, dtype=np.int16)
        assert found.shape == expected.shape, path
        assert np.abs(found - expected).mean() <= 1, path


def test_unresized_pixels_are_exactly_pillows(folder: Path, tmp_path: Path) -> None:
    packed.run_pack("create", folder, tmp_path / "data.shade", "--format", "raw")
    for path, image in stored(tmp_path / "data.shade", tmp_path / "back").items():
        difference = np.abs(np.asarray(image, dtype=np.int16) - judged(folder / path, None))
        assert difference.max() <= (1 if path.endswith(".jpg") else 0), path


def test_jpeg_is_close_upright_and_free_of_exif(folder: Path, tmp_path: Path) -> None:
    options = ["--format", "jpeg", "--quality", 95, "--max-side", LONG]
    packed.run_pack("create", folder, tmp_path / "data.shade", *options)
    info = json.loads(packed.run_pack("info", tmp_path / "data.shade", "--json"))
    assert info["media"] == {"jpeg": 50} and info["compressed"] == 0
    for path, image in stored(tmp_path / "data.shade", tmp_path / "back").items():
        assert image.format == "JPEG" and not image.getexif(), path
        with Image.open(folder / path) as opened:
            upright = ImageOps.exif_transpose(opened).convert("RGB")
        size = upright.size
        if max(size) > LONG:
            size = (LONG * size[0] // max(size), LONG * size[1] // max(size))
        assert image.size == size, path
        # It loses hardly more than Pillow's own encoder at this quality.
        encoded = io.BytesIO()
        upright.resize(size, Image.Resampling.BILINEAR).save(encoded, "jpeg", quality=95)
        expected = np.asarray(Image.open(encoded), dtype=np.int16)
        assert np.abs(np.asarray(image, dtype=np.int16) - expected).mean() <= 2, path


def test_keep_never_touches_a_byte(folder: Path, tmp_path: Path) -> None:
    packed.run_pack("create", folder, tmp_path / "data.shade")
    packed.run_pack("extract", tmp_path / "data.shade", tmp_path / "back")
    for file in sorted((folder / "a").iterdir()):
        assert (tmp_path / "back" / "a" / file.name).read_bytes() == file.read_bytes()


def test_restart_markers_change_no_pixel(folder: Path, tmp_path: Path) -> None:
    """Metadata stays, too. Only a progressive JPEG becomes a baseline one."""
    photos = tmp_path / "photos"
    (photos / "a").mkdir(parents=True)
    for number, options in enumerate(
        [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"restart_marker_rows": 1}]
    ):
        picture(301 + 7 * number, 203, number).save(photos / "a" / f"{number}.jpg", quality=90, **options)
    picture(90, 70, 9).convert("L").save(photos / "a" / "grey.jpeg")
    for name in ("0-cmyk.jpg", "0-turned.jpg", "0-rgb.png", "0.webp"):
        os.link(folder / "a" / name, photos / "a" / name)
    packed.run_pack("create", photos, tmp_path / "plain.shade")
    packed.run_pack("create", photos, tmp_path / "marked.shade", "--restart-markers")
    packed.run_pack("verify", tmp_path / "marked.shade", "--decode")
    found = stored(tmp_path / "marked.shade", tmp_path / "back")
    assert len(found) == 10
    for path, image in found.items():
        with Image.open(photos / path) as before:
            assert (np.asarray(image) == np.asarray(before)).all(), path
            assert dict(image.getexif()) == dict(before.getexif()), path
            assert image.info.get("adobe_transform") == before.info.get("adobe_transform"), path
        assert "progressive" not in image.info
        data = (tmp_path / "back" / path).read_bytes()
        if image.format == "JPEG" and image.mode == "CMYK":
            # Restart markers bring nothing there.
            assert data == (photos / path).read_bytes(), path
        elif image.format == "JPEG":
            # A marker after each unit of 16 columns and 8 or 16 rows, or after two of 8 columns.
            assert sum(data.count(bytes([0xFF, marker])) for marker in range(0xD0, 0xD8)) > image.height // 16, path
        else:
            assert data == (photos / path).read_bytes()

    batches = {}
    for name in ("plain", "marked"):
        crops = [RandomResizedCrop(64), RandomHorizontalFlip()]
        options = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job=name)}
        with Loader(tmp_path / f"{name}.shade", 5, seed=3, decode=crops, **options) as loader:
            batches[name] = [(batch.ids.clone(), batch.images.clone()) for _ in range(4) for batch in loader]
    assert len(batches["plain"]) == 8
    for (ids, images), (other_ids, other_images) in zip(*batches.values(), strict=True):
        assert ids.tolist() == other_ids.tolist() and (images == other_images).all()


def test_raw_pixels_are_compressed_with_a_dictionary_and_delivered(tmp_path: Path) -> None:
    """Small flat images share a dictionary, which the loader needs to deliver them."""
    for number in range(300):
        path = tmp_path / "folder" / str(number % 3) / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        stripes = np.tile(np.arange(28, dtype=np.uint8) * 9, (28, 1))
        stripes[number % 28] = number % 251
        Image.fromarray(np.stack([stripes] * 3, axis=2)).save(path)
    packed.run_pack("create", tmp_path / "folder", tmp_path / "data.shade", "--format", "raw", "--compress", "zstd")
    info = json.loads(packed.run_pack("info", tmp_path / "data.shade", "--json"))
    assert info["compressed"] == 300 and info["stored_bytes"] * 10 < info["raw_bytes"]
    packed.run_pack("verify", tmp_path / "data.shade")
    files = sorted((tmp_path / "folder").rglob("*.png"))
    seen = 0
    with Loader(
        tmp_path / "data.shade", 32, image_size=28, plan=Plan(sampler="uniform"), daemon=Daemon(job="raw-pack")
    ) as loader:
        for batch in loader:
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                with Image.open(files[sample]) as judge:
                    assert (np.asarray(judge) == image.permute(1, 2, 0).numpy()).all()
                seen += 1
    assert seen == 300


def test_a_picture_that_cannot_be_decoded_is_named(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "folder" / "a" / "broken.png"
    broken.parent.mkdir(parents=True)
    os.link(folder / "a" / "0-rgb.png", tmp_path / "folder" / "a" / "0.png")
    broken.write_bytes((folder / "a" / "1-rgb.png").read_bytes()[:500])
    done = packed.try_pack("create", tmp_path / "folder", tmp_path / "data.shade", "--format", "jpeg")
    assert done.returncode == 1 and "broken.png" in done.stderr
    skip = packed.try_pack("create", tmp_path / "folder", tmp_path / "d", "--format", "jpeg", "--on-bad", "skip")
    assert skip.returncode == 4 and "broken.png" in skip.stdout
    assert json.loads(packed.run_pack("info", tmp_path / "d", "--json"))["samples"] == 1
