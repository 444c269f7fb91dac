"""convert: datasets of other libraries, real ones, become packed ones with their bytes, labels, names and fields."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import streaming
import torch
import torchvision
import webdataset
from PIL import Image
from shade_load import Daemon, Loader, ShadeError, convert
from test_writer import delivered, file_of, left_in, pixels

datasets = pytest.importorskip("datasets", reason="setup/pages-requirements.lock is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An ImageFolder, in two forms."""
    packed.image_folder(tmp_path / "images", "jpeg", {"ant": 3, "bee": 4})
    return tmp_path / "images"


def files_of(folder: Path) -> list[tuple[bytes, int]]:
    kinds = enumerate(sorted(folder.iterdir()))
    return [(file.read_bytes(), label) for label, kind in kinds for file in sorted(kind.iterdir())]


def classes_of(out: Path) -> list[str]:
    with Loader(out, 2, image_size=8, daemon=Daemon(linger=0)) as loader:
        return loader.classes


def pictures_of(out: Path) -> list[Any]:
    return [np.asarray(Image.open(io.BytesIO(record))) for record, *_ in delivered(out)]


def test_hugging_face_keeps_files_names_and_columns(folder: Path, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(
        "imagefolder", data_dir=str(folder), split="train", cache_dir=str(tmp_path / "cache")
    )
    captioned = loaded.add_column("caption", [f"caption {number}" for number in range(len(loaded))])
    for name, dataset in {"map": captioned, "stream": captioned.to_iterable_dataset()}.items():
        out = tmp_path / f"{name}.shade"
        convert(dataset, out)
        found = delivered(out)
        assert [(record, label) for record, label, _ in found] == files_of(folder), name
        assert [fields["caption"] for *_, fields in found] == [b"caption %d" % number for number in range(7)]
        assert classes_of(out) == ["ant", "bee"]
    with pytest.raises(ShadeError, match="dict of datasets .'train'"):
        convert(datasets.DatasetDict(train=loaded), tmp_path / "no.shade")


def test_hugging_face_pictures_in_memory_and_several_columns(tmp_path: Path) -> None:
    features = datasets.Features({
        "img": datasets.Image(), "segmentation": datasets.Image(), "fine_label": datasets.ClassLabel(names=["a", "b"]),
        "objects": datasets.Sequence({"x": datasets.Value("int64")}),
    })  # fmt: skip
    masks = [Image.fromarray(pixels(10 + number, 1)) for number in range(3)]
    dataset = datasets.Dataset.from_dict(
        {
            "img": [Image.fromarray(pixels(number)) for number in range(3)],
            "segmentation": masks,
            "fine_label": [1, 0, 1],
            "objects": [{"x": [number]} for number in range(3)],
        },
        features=features,
    )
    convert(dataset, tmp_path / "out.shade")
    found = delivered(tmp_path / "out.shade")
    assert [label for _, label, _ in found] == [1, 0, 1]
    for number, (_, _, fields) in enumerate(found):
        mask = Image.open(io.BytesIO(fields["segmentation"]))
        assert (np.asarray(mask) == np.asarray(masks[number])).all()
        assert fields["objects.json"] == {"x": [number]}
    assert all((picture == pixels(number)).all() for number, picture in enumerate(pictures_of(tmp_path / "out.shade")))
    convert(dataset, tmp_path / "masks.shade", image="segmentation", label="")
    assert (pictures_of(tmp_path / "masks.shade")[1] == np.asarray(masks[1])).all()
    with pytest.raises(ShadeError, match="several columns are images: left, right. Choose one: image="):
        two = dataset.rename_columns({"img": "left", "segmentation": "right"})
        convert(two, tmp_path / "no.shade")


def test_torchvision(folder: Path, tmp_path: Path) -> None:
    of_files = torchvision.datasets.ImageFolder(str(folder))
    convert(of_files, tmp_path / "pixels.shade")
    expected = [(np.asarray(image), label) for image, label in of_files]
    found = delivered(tmp_path / "pixels.shade")
    assert [label for _, label, _ in found] == [label for _, label in expected]
    pictures = pictures_of(tmp_path / "pixels.shade")
    assert all((picture == image).all() for picture, (image, _) in zip(pictures, expected, strict=True))
    assert classes_of(tmp_path / "pixels.shade") == ["ant", "bee"]
    part = torch.utils.data.Subset(of_files, [6, 0])
    convert(part, tmp_path / "part.shade", map=lambda sample: {"image": sample[0], "label": sample[1], "side": 3})
    side = {"side.json": 3}
    assert [(label, fields) for _, label, fields in delivered(tmp_path / "part.shade")] == [(1, side), (0, side)]
    tensors = torchvision.datasets.ImageFolder(str(folder), torchvision.transforms.PILToTensor())
    convert(tensors, tmp_path / "tensors.shade")
    assert delivered(tmp_path / "tensors.shade") == found


def test_webdataset(tmp_path: Path) -> None:
    samples = [(file_of(Image.fromarray(pixels(number)), "PNG"), number % 3) for number in range(9)]
    with webdataset.ShardWriter(str(tmp_path / "%d.tar"), maxcount=5, verbose=0) as writer:
        for number, (image, label) in enumerate(samples):
            more = {"json": {"at": number}, "mask.png": image, "txt": f"text {number}"}
            writer.write({"__key__": f"deep/{number:03}", "png": image, "cls": str(label).encode(), **more})
    pipeline = webdataset.WebDataset([str(tmp_path / f"{number}.tar") for number in range(2)], shardshuffle=False)
    convert(pipeline, tmp_path / "raw.shade", progress=True)
    found = delivered(tmp_path / "raw.shade")
    assert [(record, label) for record, label, _ in found] == samples
    assert found[4][2] == {"json": {"at": 4}, "mask.png": samples[4][0], "txt": b"text 4"}
    assert "deep/003.png" in packed.run_pack("ls", tmp_path / "raw.shade")
    convert(pipeline.decode("pil"), tmp_path / "decoded.shade")
    again = delivered(tmp_path / "decoded.shade")
    assert [(label, fields["json"], fields["txt"]) for _, label, fields in again] == [
        (label, fields["json"], fields["txt"]) for _, label, fields in found
    ]
    convert(pipeline.decode("pil").to_tuple("png", "cls"), tmp_path / "tuples.shade")
    assert (pictures_of(tmp_path / "tuples.shade")[8] == pixels(8)).all()


@pytest.mark.parametrize("encoding", ["bytes", "pil", "png", "jpeg"])
def test_mosaicml_streaming(encoding: str, tmp_path: Path) -> None:
    pictures = [Image.fromarray(pixels(number)) for number in range(4)]
    columns = {"image": encoding, "label": "int", "note": "str"}
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns=columns) as writer:
        for number, picture in enumerate(pictures):
            image = file_of(picture, "PNG") if encoding == "bytes" else picture
            writer.write({"image": image, "label": number % 2, "note": f"note {number}"})
    dataset = streaming.StreamingDataset(local=str(tmp_path / "mds"), shuffle=False, batch_size=1)
    convert(dataset, tmp_path / "out.shade")
    found = delivered(tmp_path / "out.shade")
    assert [(label, fields) for _, label, fields in found] == [
        (number % 2, {"note": b"note %d" % number}) for number in range(4)
    ]
    # Streaming's JPEGs are its own.
    expected = pictures if encoding != "jpeg" else [sample["image"] for sample in dataset]
    for picture, original in zip(pictures_of(tmp_path / "out.shade"), expected, strict=True):
        assert (picture == np.asarray(original)).all()


class Failing:
    """A dataset of ten samples, of which one cannot be had."""

    def __init__(self, at: int, error: Exception) -> None:
        self.at, self.error = at, error

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        if number == self.at:
            raise self.error
        return pixels(number), 0


def generated(count: int) -> Iterator[Any]:
    for number in range(count):
        yield pixels(number)


def test_anything_that_can_be_iterated(tmp_path: Path) -> None:
    convert(generated(5), tmp_path / "images.shade")
    assert len(delivered(tmp_path / "images.shade")) == 5
    convert([{"a": pixels(1), "b": "text"}], tmp_path / "dicts.shade")
    assert delivered(tmp_path / "dicts.shade")[0][2] == {"b": b"text"}
    report = convert(Failing(99, ValueError()), tmp_path / "all.shade", classes=["only", "none"], options=["--cls"])
    assert report["parts"][0]["classes"] == 2


def test_errors_name_the_sample_and_nothing_is_made(tmp_path: Path) -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (Failing(3, OSError("gone")), {}, "^sample 3: the dataset cannot give it: OSError('gone')"),
        (Failing(0, IndexError("early")), {}, "^sample 0: the dataset cannot give it"),
        ([(pixels(0), 0), (pixels(0), 0, 1)], {}, "^sample 1: a tuple of 3 is not (image, label): map="),
        ([{"text": "a", "number": 1}], {}, "^sample 0: which of text, number is its image? Name it: image="),
        ([{"image": pixels(0)}, {"photo": pixels(0)}], {"image": "image"}, "^sample 1: it has no 'image', but photo"),
        ([(pixels(0), torch.tensor([1, 0]))], {}, "^sample 0: 2 labels for one sample"),
        ([(pixels(0), 0), (pixels(0) / 255, 0)], {}, "^sample 1: its pixels are float64, not uint8"),
        (3, {}, "a int is no dataset"),
        ([], {}, "no sample was added"),
    ]  # fmt: skip
    for dataset, more, words in cases:
        pattern = f"^{re.escape(words[1:])}" if words.startswith("^") else re.escape(words)
        with pytest.raises(ShadeError, match=pattern):
            convert(dataset, tmp_path / "no.shade", **more)
        assert left_in(tmp_path) == [], words
    with pytest.raises(ShadeError, match="^sample 1: .* by zero"):
        convert([1, 0], tmp_path / "no.shade", map=lambda number: pixels(1 // number))


def test_an_iterable_dataset_may_have_a_length(tmp_path: Path) -> None:
    class Some(torch.utils.data.IterableDataset):
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return ({"__key__": f"./{number}", "png": Image.new("RGB", (8, 8)), "cls": number} for number in range(3))

    convert(Some(), tmp_path / "out.shade")
    assert [label for _, label, _ in delivered(tmp_path / "out.shade")] == [0, 1, 2]
