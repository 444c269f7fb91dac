"""Folders in pairs, and tars with captions, arrive in a training sample by sample."""

import io
import json
import random
from pathlib import Path

import packed
import pytest
import torch
import webdataset
from PIL import Image
from shade_load import Daemon, Loader, Plan
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop
from torchvision.transforms import InterpolationMode, functional

BATCH = 8
SIDE = 32


def content(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **({"quality": 95} if form == "jpeg" else {}))
    return file.getvalue()


def scenes(images: Path, masks: Path, count: int) -> list[str]:
    """Images and masks that show the same: a bright square, elsewhere in each. Their stems."""
    stems = []
    for number in range(count):
        source = random.Random(number)
        stem = f"{number % 3}/{number:03}"
        left, top = source.randrange(SIDE // 2), source.randrange(SIDE // 2)
        mask = Image.new("L", (SIDE, SIDE))
        mask.paste(255, (left, top, left + SIDE // 2, top + SIDE // 2))
        for folder, name, image, form in (
            (images, f"{stem}.jpg", mask.convert("RGB"), "jpeg"),
            (masks, f"{stem}_mask.gif", mask, "gif"),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content(image, form))
        stems.append(stem)
    return stems


def followed(mask: torch.Tensor, crop: torch.Tensor, *, flipped: bool, size: int) -> torch.Tensor:
    """The mask as the image was cropped and flipped."""
    left, top, width, height = (int(side) for side in crop)
    moved = functional.resized_crop(mask, top, left, height, width, [size, size], InterpolationMode.NEAREST)
    return functional.hflip(moved) if flipped else moved


def test_a_training_sees_each_image_with_its_mask(tmp_path: Path) -> None:
    images, masks, out = tmp_path / "imgs", tmp_path / "masks", tmp_path / "data.shade"
    stems = scenes(images, masks, 61)
    packed.run_pack("create", images, out, "--pair", f"masks={masks}/*_mask.gif", "--shard-size", "32KiB")
    packed.run_pack("verify", out, "--decode")
    paths = [line.split("\t")[2] for line in packed.run_pack("ls", out).splitlines()]
    assert sorted(paths) == sorted(f"{stem}.jpg" for stem in stems)
    model = torch.nn.Conv2d(3, 1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recipe = [RandomResizedCrop(SIDE), RandomHorizontalFlip()]
    with Loader(out, BATCH, decode=recipe, daemon=Daemon(job="pairs"), plan=Plan(sampler="uniform")) as loader:
        assert loader.classes == ["none"]
        for epoch in range(2):
            loader.set_epoch(epoch)
            seen = set()
            for batch in loader:
                targets = []
                for sample, fields, crop, flipped in zip(
                    batch.ids.tolist(), batch.fields(), batch.crops, batch.flipped.tolist(), strict=True
                ):
                    assert set(fields) == {"masks"}
                    assert fields["masks"] == (masks / f"{paths[sample][:-4]}_mask.gif").read_bytes()
                    with Image.open(io.BytesIO(fields["masks"])) as mask:
                        whole = torch.frombuffer(bytearray(mask.convert("L").tobytes()), dtype=torch.uint8)
                    whole = whole.reshape(1, SIDE, SIDE)
                    targets.append(followed(whole, crop, flipped=bool(flipped), size=SIDE))
                    seen.add(sample)
                inputs, target = batch.images.float() / 255, torch.stack(targets).float() / 255
                # Image and mask show one square. Edges are blurred, by JPEG and by resizing.
                agree = ((inputs.mean(dim=1, keepdim=True) > 0.5) == (target > 0.5)).float().mean()
                assert agree > 0.9, float(agree)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            assert len(seen) == len(stems)


@pytest.mark.parametrize("with_json", [False, True])
def test_img2dataset_s_tars_need_no_flag(tmp_path: Path, *, with_json: bool) -> None:
    (tmp_path / "tars").mkdir()
    captions = [f"a photo of {number} dogs" if number % 4 else "" for number in range(40)]
    for shard in range(2):
        with webdataset.TarWriter(str(tmp_path / "tars" / f"{shard:05}.tar")) as writer:
            for number in range(shard * 20, shard * 20 + 20):
                image = content(Image.new("RGB", (8, 8), (number, 0, 0)), "jpeg")
                sample = {"__key__": f"{number:09}", "jpg": image, "txt": captions[number]}
                writer.write(sample | ({"json": {"url": f"u/{number}", "width": 8}} if with_json else {}))
        (tmp_path / "tars" / f"{shard:05}_stats.json").write_text("{}")
    out = tmp_path / "data.shade"
    report = json.loads(packed.run_pack("create", tmp_path / "tars", out, "--json"))
    assert any(".txt members are captions" in note for note in report["notes"])
    with Loader(out, BATCH, daemon=Daemon(job=f"captions-{with_json}")) as loader:
        assert loader.classes == ["none"]
        seen = {}
        for batch in loader:
            assert batch.labels.tolist() == [0] * len(batch)
            seen |= dict(zip(batch.ids.tolist(), batch.fields(), strict=True))
    assert sorted(seen) == list(range(40))
    for number, fields in seen.items():
        assert fields["txt"] == captions[number].encode()
        assert ("json" in fields) == with_json and fields.get("json", {}).get("url", f"u/{number}") == f"u/{number}"
