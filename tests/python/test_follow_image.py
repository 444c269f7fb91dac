"""Masks and boxes follow their image: Loader(fields={"mask": "mask", "boxes": "boxes[xyxy]"})."""

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, ImageFolder, Loader, Plan, RecordError, ShadeError, Writer
from shade_load.transforms import (
    CenterCrop,
    ColorJitter,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

np = pytest.importorskip("numpy")

SIZES = [(40, 30), (30, 40), (64, 64), (33, 71), (20, 20), (97, 50), (24, 60), (51, 52), (128, 31), (45, 45)]
FORMATS = ["xyxy", "xywh", "cxcywh"]
FIELDS = {
    "mask.png": "mask",
    **{f"{name}.npy": f"boxes[{name}]" for name in FORMATS},
    **{f"class_{name}.npy": f"int64[{name}.npy]" for name in FORMATS},
    "areas.npy": "float32[xyxy.npy, 2]",
    "points.npy": "keypoints",
    "poses.npy": "keypoints[xyxy.npy, 3]",
    "note": str,
}


def levels(source: random.Random, size: tuple[int, int]) -> Image.Image:
    return Image.frombytes("L", size, source.randbytes(size[0] * size[1]))


def boxes_of(sample: int) -> torch.Tensor:
    """Boxes as left, top, right, bottom: some whole, some of fractions, thin, or reaching outside."""
    source = random.Random(sample)
    width, height = SIZES[sample % len(SIZES)]
    rows = []
    for number in range(sample % 7):
        x = sorted(source.uniform(-5, width + 5) for _ in range(2))
        y = sorted(source.uniform(-5, height + 5) for _ in range(2))
        row = [x[0], y[0], x[1], y[1]]
        if number % 3 == 0:
            row = [float(int(place)) for place in row]
        if number == 5:
            row[2] = row[0] + 1
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 4)


def points_of(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).uniform(-5, 100, shape).astype(np.float32)


def fields_of(sample: int) -> dict[str, Any]:
    boxes = boxes_of(sample)
    found: dict[str, Any] = {
        "mask": levels(random.Random(sample), SIZES[sample % len(SIZES)]),
        "note": f"nr. {sample}",
        "points": points_of(sample, (sample % 4, 2)),
        "poses": points_of(sample + 1000, (len(boxes), 3, 2)),
        "areas": np.array([[sample, number] for number in range(len(boxes))], np.float32).reshape(-1, 2),
    }
    for name in FORMATS:
        moved = functional.convert_bounding_box_format(boxes, "XYXY", name.upper()) if len(boxes) else boxes
        # What belongs to boxes may lie before them.
        found[f"class_{name}"] = np.arange(100 * sample, 100 * sample + len(boxes))
        found[name] = moved.numpy()
    return found


def image_of(sample: int) -> Image.Image:
    width, height = SIZES[sample % len(SIZES)]
    return Image.frombytes("RGB", (width, height), random.Random(sample).randbytes(3 * width * height))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same samples, stored in several ways."""
    root = tmp_path_factory.mktemp("follow")
    paths = {}
    for name, options in {"png": {}, "jpeg": {"format": "jpeg"}, "raw": {"options": ["--format", "raw"]}}.items():
        paths[name] = root / f"{name}.shade"
        with Writer(paths[name], **options) as writer:
            for sample in range(24):
                writer.add(image_of(sample), None, **fields_of(sample))
    return paths


def sides(size: Any) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


def followed(value: Any, steps: list[Any], crop: list[float], flipped: bool, down: bool) -> Any:
    """What torchvision makes of a mask or boxes with the draws of a row."""
    left, top, width, height = crop
    before = 0
    for step in steps:
        name = type(step).__name__
        if name == "Resize":
            value = functional.resize(value, sides(step.size) if not isinstance(step.size, int) else [step.size])
        elif name == "CenterCrop":
            value = middle(value, sides(step.size))
        elif name == "RandomResizedCrop":
            value = functional.resized_crop(value, int(top), int(left), int(height), int(width), sides(step.size))
        elif name == "Pad":
            value, before = functional.pad(value, [step.padding]), step.padding
        elif name == "RandomCrop":
            rows, columns = sides(step.size)
            scale = columns / width
            padding = step.padding or 0
            if padding:
                value = functional.pad(value, [padding])
            corner = [round(place * scale) + padding + before for place in (top, left)]
            value = functional.crop(value, *corner, rows, columns)
    value = functional.horizontal_flip(value) if flipped else value
    return functional.vertical_flip(value) if down else value


def middle(value: Any, size: list[int]) -> Any:
    """CenterCrop. Where an image is padded, torchvision rounds another way for boxes than for pixels."""
    canvas = value.shape[-2:] if isinstance(value, tv_tensors.Mask) else value.canvas_size
    small = [max(wanted - side, 0) for side, wanted in zip(canvas, size)]
    if any(small):
        ahead = [spare // 2 for spare in small]
        behind = [spare - half for spare, half in zip(small, ahead)]
        value = functional.pad(value, [ahead[1], ahead[0], behind[1], behind[0]])
    return functional.center_crop(value, size)


def points(places: Any, size: tuple[int, int]) -> Any:
    return tv_tensors.KeyPoints(torch.from_numpy(places), canvas_size=size[::-1])


def check(batch: Any, views: list[list[Any]], listed: bool, fill: int = 0) -> int:
    """Compares each row and view with torchvision's. Returns how many boxes were left out."""
    missing = 0
    of_views = (lambda column: column) if listed else (lambda column: [column])
    for view, steps in enumerate(views):
        images, crops = of_views(batch.images)[view], of_views(batch.crops)[view]
        rows = zip(batch.ids.tolist(), crops.tolist(), of_views(batch.flipped)[view], of_views(batch.flipped_down)[view])
        masks = of_views(batch["mask.png"])[view]
        assert masks.dtype == torch.uint8 and masks.shape == (len(batch), *images.shape[2:])
        for row, (sample, *draws) in enumerate(rows):
            size = SIZES[sample % len(SIZES)]
            stored = fields_of(sample)
            mask = followed(tv_tensors.Mask(stored["mask"]), steps, *draws)
            assert torch.equal(masks[row], mask[0]), (sample, steps, draws)
            values, offsets = of_views(batch["points.npy"])[view]
            moved = followed(points(stored["points"], size), steps, *draws).as_subclass(torch.Tensor)
            assert torch.equal(values[offsets[row] : offsets[row + 1]], moved), (sample, steps, draws)
            for name in FORMATS:
                boxes = tv_tensors.BoundingBoxes(
                    torch.from_numpy(stored[name]).reshape(-1, 4), format=name.upper(), canvas_size=size[::-1]
                )
                moved = functional.clamp_bounding_boxes(followed(boxes, steps, *draws))
                expected, left = functional.sanitize_bounding_boxes(moved)
                values, offsets = of_views(batch[f"{name}.npy"])[view]
                classes, class_offsets = of_views(batch[f"class_{name}.npy"])[view]
                assert torch.equal(offsets, class_offsets)
                start, end = offsets[row], offsets[row + 1]
                assert torch.equal(values[start:end], expected.as_subclass(torch.Tensor)), (sample, name, steps, draws)
                assert classes[start:end].tolist() == stored[f"class_{name}"][left.numpy()].tolist()
                if name == "xyxy":
                    areas = of_views(batch["areas.npy"])[view].values[start:end]
                    assert areas.tolist() == stored["areas"][left.numpy()].tolist()
                    poses = of_views(batch["poses.npy"])[view].values[start:end]
                    moved = followed(points(stored["poses"], size), steps, *draws)
                    assert torch.equal(poses, moved.as_subclass(torch.Tensor)[left]), (sample, steps, draws)
                missing += len(stored[name]) - len(expected)
        assert batch["note"] == [f"nr. {sample}" for sample in batch.ids.tolist()]
    return missing


FLIPS = [RandomHorizontalFlip(), RandomVerticalFlip()]
VIEWS: dict[str, list[list[Any]]] = {
    "random resized": [[RandomResizedCrop(24), RandomHorizontalFlip()]],
    "enlarged": [[RandomResizedCrop((70, 90), scale=(0.01, 0.3)), *FLIPS]],
    "stretched": [[Resize((20, 33)), RandomVerticalFlip(1.0)]],
    "enlarged whole": [[Resize((200, 300))]],
    "middle": [[Resize(28), CenterCrop(24), *FLIPS]],
    "padded middle": [[CenterCrop((80, 75)), RandomHorizontalFlip(1.0)]],
    "random": [[Resize(40), RandomCrop(32), *FLIPS]],
    "padded": [[RandomCrop(24, padding=4), RandomHorizontalFlip()]],
    "padded twice": [[Pad(3), RandomCrop(24, padding=4), RandomHorizontalFlip()]],
    "padded before": [[Pad(9), RandomCrop((26, 20))]],
    "very padded": [[RandomCrop((30, 28), padding=20)]],
    "pixels": [[ColorJitter(0.5), RandomHorizontalFlip(), RandomCrop(20), RandomErasing(1.0)]],
    "two": [[RandomResizedCrop(24), *FLIPS], [Resize(30), CenterCrop((20, 26))]],
    "dino": [[RandomResizedCrop(20)]] * 2 + [[RandomResizedCrop((8, 6), scale=(0.05, 0.4)), *FLIPS]] * 3,
}


@pytest.mark.parametrize(
    ("stored", "more"),
    [
        ("png", {}),
        ("jpeg", {"cache": 0, "channels_last": True}),
        ("raw", {"cache": "30%", "dtype": "float16"}),
    ],
    ids=["png", "jpeg", "raw"],
)
def test_masks_and_boxes_are_torchvisions(samples: dict[str, Path], stored: str, more: Any) -> None:
    for name, views in VIEWS.items():
        listed = len(views) > 1
        missing = 0
        with Loader(samples[stored], 5, decode=views if listed else views[0], fields=FIELDS, **more) as loader:
            for _ in range(2):
                for batch in loader:
                    missing += check(batch, views, listed)
        assert missing > 0, f"{name}: some boxes were left out"


def test_one_view_in_a_list_is_a_list(samples: dict[str, Path]) -> None:
    with Loader(samples["png"], 5, decode=[[CenterCrop(20)]], fields=FIELDS) as loader:
        batch = next(iter(loader))
        check(batch, [[CenterCrop(20)]], listed=True)
        assert isinstance(batch["mask.png"], list)
    with Loader(samples["png"], 5, decode=[FiveCrop(20)], fields={"mask.png": "mask"}) as loader:
        batch = next(iter(loader))
        for row, sample in enumerate(batch.ids.tolist()):
            mask = tv_tensors.Mask(fields_of(sample)["mask"])
            for view, (left, top, _, _) in enumerate(crops[row].tolist() for crops in batch.crops):
                assert torch.equal(batch["mask.png"][view][row], functional.crop(mask, int(top), int(left), 20, 20)[0])


@pytest.mark.parametrize("sampler", ["echo", "pads"])
def test_every_use_of_a_sample_has_its_own_draw(samples: dict[str, Path], sampler: Any) -> None:
    views = VIEWS["random resized"]
    plan = Plan(sampler=sampler, tail="pad", **({"gap": 3} if sampler == "echo" else {}))
    with Loader(samples["png"], 5, decode=views[0], fields=FIELDS, plan=plan) as loader:
        for _ in range(2):
            for batch in loader:
                check(batch, views, listed=False)
                if loader.needs_losses:
                    loader.report(batch, torch.rand(len(batch)))


def pairs(root: Path, masks: dict[str, bytes], side: int = 16) -> Path:
    """A packed dataset of an image for each mask, by name."""
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for number, (name, content) in enumerate(masks.items()):
        image = Image.frombytes("RGB", (side, side), random.Random(number).randbytes(3 * side * side))
        image.save(root / "images" / f"{name}.png")
        (root / "masks" / f"{name}.png").write_bytes(content)
    packed.run_pack("create", root / "images", root / "out.shade", "--labels", "none", "--pair", f"mask={root / 'masks'}")
    return root / "out.shade"


def png(image: Image.Image, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, "png", **options)
    return content.getvalue()


def test_every_kind_of_mask_has_the_levels_that_pillow_has(tmp_path: Path) -> None:
    source = random.Random(1)
    size = (13, 16)
    palette = Image.frombytes("P", size, bytes(source.randrange(200) for _ in range(13 * 16)))
    palette.putpalette(source.randbytes(600))
    few = Image.frombytes("P", size, bytes(source.randrange(4) for _ in range(13 * 16)))
    few.putpalette(source.randbytes(12))
    kinds = {
        "grey": png(levels(source, size)),
        "palette": png(palette),
        "transparent": png(palette, transparency=3),
        "black": png(levels(source, size).point(lambda level: 255 * (level > 99)).convert("1")),
        **{f"bits{bits}": png(few, bits=bits) for bits in (2, 4)},
        "grey4": grey_of_bits(source, size, 4),
        "grey2": grey_of_bits(source, size, 2),
    }
    (tmp_path / "images").mkdir()
    with Writer(tmp_path / "kinds.shade") as writer:
        for content in kinds.values():
            writer.add(np.zeros((16, 13, 3), np.uint8), None, mask=content)
    with Loader(tmp_path / "kinds.shade", 8, decode=[CenterCrop((16, 13))], fields={"mask": "mask"}, train=False) as loader:
        for batch in loader:
            for row, content in enumerate(kinds.values()):
                expected = tv_tensors.Mask(Image.open(io.BytesIO(content)))[0].to(torch.uint8)
                assert torch.equal(batch["mask"][row], expected), list(kinds)[row]


def grey_of_bits(source: random.Random, size: tuple[int, int], bits: int) -> bytes:
    """A PNG of grey of fewer than eight bits, which Pillow does not write."""
    import struct
    import zlib

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    pitch = -(-size[0] * bits // 8)
    lines = b"".join(b"\0" + source.randbytes(pitch) for _ in range(size[1]))
    header = struct.pack(">IIBBBBB", *size, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_what_is_no_mask_is_a_bad_record(tmp_path: Path) -> None:
    source = random.Random(2)
    good, size = png(levels(source, (16, 16))), (16, 16)
    jpeg = io.BytesIO()
    levels(source, size).save(jpeg, "jpeg")
    bad = {
        "b": (png(levels(source, (16, 15))), "16 x 15 pixels, where its image is 16 x 16"),
        # By its header: nothing behind that is decoded.
        "c": (png(levels(source, (15, 16)))[:-30], "15 x 16 pixels, where its image is 16 x 16"),
        "d": (png(Image.new("RGB", size)), "png with three colours a pixel, as a mask"),
        "e": (png(Image.new("LA", size)), "an alpha channel"),
        "f": (png(Image.new("I;16", size)), "16 bits a pixel"),
        "g": (good[:-30], "corrupt png"),
        "h": (jpeg.getvalue(), "jpeg, where masks are PNG"),
        "i": (b"nothing", "no image"),
    }
    masks = {name: bad.get(name, (good, ""))[0] for name in "abcdefghij"}
    path = pairs(tmp_path, masks)
    names = "abcdefghij"
    fields = {"mask": "mask"}
    for name, (_, text) in bad.items():
        plan = Plan(indices=[names.index(name)])
        with Loader(path, 1, image_size=8, fields=fields, plan=plan, daemon=Daemon(job=name)) as loader:
            with pytest.raises(RecordError, match=rf"{name}\.png.*\"mask\" is to be mask, and is .*{text}"):
                list(loader)
    for on_error in ("skip", "substitute"):
        plan = Plan(on_error=on_error, bad_max=1.0)
        seen = []
        with Loader(path, 4, image_size=16, fields=fields, plan=plan, train=False) as loader:
            for batch in loader:
                seen += batch.ids.tolist()
                assert all(torch.equal(mask, tv_tensors.Mask(Image.open(io.BytesIO(good)))[0]) for mask in batch["mask"])
        assert set(seen) == {names.index(name) for name in names if name not in bad}
        assert len(seen) == (len(names) if on_error == "substitute" else len(set(seen)))
    with Loader(path, 4, image_size=8, fields={"other": "mask"}, train=False) as loader:
        with pytest.raises(RecordError, match='it has no field "other", which is to be mask'):
            list(loader)


def test_what_lies_outside_the_image_is_what_was_asked_for(tmp_path: Path) -> None:
    path = pairs(tmp_path, {name: png(levels(random.Random(7), (16, 16))) for name in "abc"})
    with Loader(path, 3, decode=[Pad(3), RandomCrop(20)], fields={"mask": "mask[255]"}) as loader:
        batch = next(iter(loader))
        for row, (left, top, _, _) in enumerate(batch.crops.tolist()):
            mask = tv_tensors.Mask(levels(random.Random(7), (16, 16)))
            expected = functional.crop(functional.pad(mask, [3], fill=255), int(top) + 3, int(left) + 3, 20, 20)
            assert torch.equal(batch["mask"][row], expected[0])


def test_tars_that_were_not_packed_have_masks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tars").mkdir()
    with tarfile.open(tmp_path / "tars" / "0.tar", "w") as tar:
        for sample in range(12):
            found = fields_of(sample)
            boxes = io.BytesIO()
            np.save(boxes, found["xyxy"].reshape(-1, 4))
            members = {"mask.png": png(found["mask"]), "jpg": png(image_of(sample)), "xyxy.npy": boxes.getvalue(), "cls": b"1"}
            for name, content in members.items():
                member = tarfile.TarInfo(f"{sample:04}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    fields = {"mask.png": "mask", "xyxy.npy": "boxes[xyxy]"}
    views = [[RandomResizedCrop(12)], [RandomResizedCrop(20)]]
    with Loader(tmp_path / "tars", 4, decode=views, fields=fields) as loader:
        for batch in loader:
            for view, masks in enumerate(batch["mask.png"]):
                for row, sample in enumerate(batch.ids.tolist()):
                    draws = batch.crops[view][row].tolist(), False, False
                    mask = followed(tv_tensors.Mask(fields_of(sample)["mask"]), views[view], *draws)
                    assert torch.equal(masks[row], mask[0])


def test_what_does_not_belong_to_its_boxes_is_a_bad_record(tmp_path: Path) -> None:
    with Writer(tmp_path / "boxes.shade") as writer:
        for sample in range(4):
            boxes = np.ones((2, 4), np.float32)
            writer.add(np.zeros((8, 8, 3), np.uint8), None, boxes=boxes, classes=np.arange(2 + (sample == 3)))
        writer.add(np.zeros((8, 8, 3), np.uint8), None, note="no boxes")
        writer.add(np.zeros((8, 8, 3), np.uint8), None, boxes=np.zeros((0, 4), np.float32))
        writer.add(np.zeros((8, 8, 3), np.uint8), None, boxes=np.ones((2, 4), np.float32))
    fields = {"boxes.npy": "boxes[cxcywh]", "classes.npy": "int64[boxes.npy]"}
    for sample, rows in [(3, 3), (6, 0)]:
        plan = Plan(indices=[sample])
        text = rf"sample {sample} .*is to be int64\[boxes.npy\], and is of {rows} rows, where .* has 2"
        with Loader(tmp_path / "boxes.shade", 5, image_size=8, fields=fields, train=False, plan=plan) as loader:
            with pytest.raises(RecordError, match=text):
                list(loader)
    plan = Plan(on_error="skip", bad_max=1.0)
    with Loader(tmp_path / "boxes.shade", 7, image_size=8, fields=fields, train=False, plan=plan) as loader:
        [batch] = loader
        assert batch["boxes.npy"].offsets.tolist() == [0, 2, 4, 6, 6, 6] and batch["classes.npy"].values.tolist() == [0, 1] * 3


def test_boxes_that_no_sample_has_are_a_wrong_name(tmp_path: Path) -> None:
    for name, kind in [("boxes", "boxes[xyxy]"), ("points", "keypoints")]:
        with Writer(tmp_path / name) as writer:
            writer.add(np.zeros((8, 8, 3), np.uint8), None, boxes=np.float32([[1, 1, 3, 3]] * 2), note="two")
        with pytest.raises(ShadeError, match=f'no sample of the dataset has "{name}", .*: boxes.npy, note'):
            Loader(tmp_path / name, 1, image_size=8, fields={name: kind})
        # At once, though the daemon that was started for the other name lingers.
        with Loader(tmp_path / name, 1, image_size=8, fields={"boxes.npy": "boxes[xyxy]"}) as loader:
            [batch] = loader
            assert batch["boxes.npy"].offsets.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        (None, "follows images of one size"),
        ("none", "follows images of one size"),
        ([CenterCrop(8), RandomRotation(5)], "but not RandomRotation"),
        ([RandomAffine(5), CenterCrop(8)], "but not RandomAffine"),
        ([[CenterCrop(8)], [CenterCrop(8), RandomApply([RandomPerspective()])]], "but not RandomApply"),
    ],
)
def test_what_does_not_follow_is_refused(samples: dict[str, Path], decode: Any, text: str) -> None:
    for kind in ("mask", "boxes[xyxy]"):
        with pytest.raises(ValueError, match=text):
            Loader(samples["png"], 5, decode=decode, fields={"a": kind})


def test_wrong_kinds_say_what_is_expected(samples: dict[str, Path]) -> None:
    for fields, text in [
        ({"a": "boxes"}, "format of boxes"),
        ({"a": "boxes[xyz]"}, "use xyxy, xywh or cxcywh"),
        ({"a": "mask[256]"}, "mask"),
        ({"a": "int64[b]"}, 'no field "b" of boxes'),
        ({"a": "int64[b]", "b": "float32[*, 4]"}, 'no field "b" of boxes'),
    ]:
        with pytest.raises(ValueError, match=text):
            Loader(samples["png"], 5, image_size=8, fields=fields)
    with pytest.raises(ValueError, match="only a Loader's masks follow"):
        ImageFolder(samples["png"], fields={"mask.png": "mask"})
    folder = ImageFolder(samples["png"], fields={"xyxy.npy": "boxes[xyxy]", "class_xyxy.npy": "int64[xyxy.npy]"})
    for sample in range(8):
        _, _, found = folder[sample]
        assert torch.equal(found["xyxy.npy"], boxes_of(sample)) and len(found["class_xyxy.npy"]) == sample % 7


def coco(images: dict[str, int], annotations: list[dict[str, Any]]) -> str:
    return json.dumps({"images": [{"id": number, "file_name": name, "width": 1} for name, number in images.items()],
                       "annotations": annotations, "categories": [{"id": 1, "name": "ant"}]})  # fmt: skip


def test_annotations_of_coco_become_boxes_and_classes(tmp_path: Path) -> None:
    source = random.Random(3)
    (tmp_path / "images" / "deep").mkdir(parents=True)
    names = [f"{number}.png" for number in range(6)] + ["deep/7.png"]
    objects: dict[str, list[Any]] = {}
    for name in names:
        Image.new("RGB", (16, 16)).save(tmp_path / "images" / name)
        count = source.randrange(4) if name != "0.png" else 0
        objects[name] = [([source.uniform(0, 9) for _ in range(4)], source.randrange(90), source.choice([0, 1, True, False])) for _ in range(count)]
    numbers = {name: 900_000_000_000 + number for number, name in enumerate([*names, "elsewhere.png"])}
    annotations = [
        {"image_id": numbers[name], "bbox": box, "category_id": kind, "segmentation": [[1, 2]], "id": 3}
        | ({"iscrowd": crowd} if crowd or crowd is False else {})
        for name, found in objects.items()
        for box, kind, crowd in found
    ]
    boxless = [{"image_id": numbers[name], "category_id": 5, "keypoints": [1, 2, 2]} for name in names[:3]]
    annotations += boxless
    source.shuffle(annotations)
    (tmp_path / "objects.json").write_text(coco(numbers, annotations))
    options = ("--coco", tmp_path / "objects.json")
    done = packed.try_pack("create", tmp_path / "images", tmp_path / "out.shade", *options)
    assert done.returncode == 0, done.stderr
    assert "1 images of" in done.stdout + done.stderr and "elsewhere.png" in done.stdout + done.stderr
    first = min(map(annotations.index, boxless))
    told = f"note: 3 annotations of {tmp_path}/objects.json have no box and are left out, such as {first}"
    assert (done.stdout + done.stderr).count(told) == 1, done.stdout + done.stderr
    fields = {"boxes.npy": "float32[*, 4]", "classes.npy": "int64[*]", "crowds.npy": "uint8[*]"}
    seen = {}
    with Loader(tmp_path / "out.shade", 3, image_size=16, fields=fields, train=False) as loader:
        for batch in loader:
            for row, sample in enumerate(batch.ids.tolist()):
                parts = [batch[name] for name in fields]
                seen[sample] = [part.values[part.offsets[row] : part.offsets[row + 1]].tolist() for part in parts]
    by_image = {number: [one for one in annotations if one["image_id"] == number and "bbox" in one] for number in numbers.values()}
    for sample, name in enumerate(sorted(names)):
        own = by_image[numbers[name]]
        boxes, classes, crowds = seen[sample]
        assert boxes == np.array([one["bbox"] for one in own], np.float32).reshape(-1, 4).tolist()
        assert classes == [one["category_id"] for one in own] and crowds == [one.get("iscrowd", 0) for one in own]
    packed.run_pack("verify", tmp_path / "out.shade")
    refused = packed.try_pack("append", tmp_path / "images", tmp_path / "out.shade", "--labels", "none")
    assert refused.returncode == 2 and "--coco FILE says where" in refused.stderr, refused.stderr


def test_annotations_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / name)
    box = {"bbox": [1, 2, 3, 4], "category_id": 1}
    file = tmp_path / "objects.json"

    def create(*more: object) -> Any:
        return packed.try_pack("create", tmp_path / "images", tmp_path / "out.shade", "--coco", file, *more)

    both = {"a.png": 1, "b.png": 2}
    for text, part in [
        ("[]", "no file of annotations in COCO's JSON"),
        (coco(both, [{"image_id": 1, "bbox": [1, 2, 3, 4]}]), "missing field `category_id` at line 1 column"),
        (coco(both, [{"image_id": 1, **box, "bbox": [1, 2, 3]}]), "expected an array of length 4 at line 1 column"),
        (coco(both, [{"image_id": 1, **box, "bbox": [1, 2, 3, float("nan")]}]), "expected value at line 1 column"),
        *[(coco(both, [{"image_id": 1, **box, "iscrowd": crowd}]), "iscrowd is to be 0, 1, false or true at line 1 column")
          for crowd in (2, -1, "1", None, 0.5)],
        (coco(both, [{"image_id": 1, **box, "bbox": [0, 0, 1e39, 4]}]), "number out of range at line 1"),
        (coco(both, [{"image_id": 1, **box, "bbox": [5, 5, -1, 4]}]), "annotation 0 has a box with a negative side"),
        (coco(both, [{"image_id": 3, **box}]), "annotation 0 is of image 3, which is not among its images"),
        (coco({"a.png": 1, "b.png": 1}, []), "two of its images have the id 1"),
        (coco({"c.png": 1}, []), "none of its 1 images, such as c.png, lies in"),
        (coco({"a.png": 1}, []), "b.png: " + str(file) + " has no image of this name"),
    ]:
        file.write_text(text)
        done = create()
        assert done.returncode != 0 and part in done.stderr, done.stderr
    assert create("--on-bad", "skip").returncode == 4
    file.write_text(coco(both, []))
    for command in (
        ("create", tmp_path / "images", tmp_path / "new.shade", "--coco", file, "--pair", f"boxes.npy={tmp_path}"),
        ("plan", tmp_path / "images", tmp_path / "new.shade", "--coco", file),
        ("index", tmp_path / "images", tmp_path / "new.shade", "--coco", file),
        ("create", tmp_path / "images", tmp_path / "new.shade", "--part", "0/1", "--coco", file),
        ("create", "-", tmp_path / "new.shade", "--coco", file),
        ("create", file, tmp_path / "new.shade", "--coco", file),
        ("create", tmp_path, tmp_path.with_suffix(".shade"), "--coco", file, "--splits", "images"),
        ("list", tmp_path, tmp_path.with_suffix(".shade"), "--coco", file, "--splits", "images", "--part", "0/1"),
    ):
        done = packed.try_pack(*command)
        assert done.returncode == 2 and "--coco" in done.stderr, (command, done.stderr)
