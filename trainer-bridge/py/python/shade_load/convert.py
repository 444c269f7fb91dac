"""`convert`: packs a dataset of another library, sample by sample."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._native import ShadeError
from .encoded import IMAGE_NAMES, is_array, is_picture
from .writer import Writer

# Names under which datasets have images and labels, the likeliest first.
IMAGE_KEYS = ("image", "img", "jpg", "jpeg", "png", "webp", "ppm", "bmp", "tif", "tiff", "picture", "pixel_values")
LABEL_KEYS = ("label", "labels", "cls", "class", "target", "fine_label", "coarse_label")
# WebDataset's name of a sample. All other names that begin so are about its tar.
KEY = "__key__"


def convert(
    dataset: Any,
    out: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    image: str | None = None,
    label: str | None = None,
    map: Callable[[Any], Any] | None = None,
    format: str = "png",
    quality: int = 90,
    options: Sequence[str] = (),
    progress: bool = False,
) -> dict[str, Any]:
    """Packs a dataset of torchvision, Hugging Face, WebDataset, MosaicML Streaming, LitData or another library.

    Samples keep their order. A sample is an image, or (image, label), or a dict: its other entries become fields. What
    the dataset has as bytes is stored as it is, and files of Hugging Face datasets are not decoded.

    Args:
        dataset: Anything with `__len__` and `__getitem__`, or with `__iter__`.
        out: The dataset's directory, which must not exist; or an address where nothing is (s3://bucket/prefix).
        classes: Names of the classes, by label. By default those that the dataset has: names of a ClassLabel, or
            `dataset.classes`.
        image: Name of the image in a dict. By default it is found by usual names.
        label: Name of the label in a dict; "" for none.
        map: Called with each sample; gives an image, (image, label), or a dict.
        format, quality, options: As of `Writer`.
        progress: Show a bar, if tqdm is installed.

    Returns: What `shade-pack create --json` reports.

    Raises:
        ShadeError: A sample cannot be packed; the text has its number. Nothing is made then.
    """
    if isinstance(dataset, Mapping):
        names = ", ".join(repr(name) for name in dataset)
        raise ShadeError(f"this is a dict of datasets ({names}): convert one after the other, with equal classes")
    layout = Layout.of(dataset, image, label) if map is None else Layout(image, label)
    if classes is None:
        classes = layout.classes
    if classes is None and map is None:
        classes = classes_of(dataset)
    with Writer(out, classes, format=format, quality=quality, options=options) as writer:
        samples = enumerated(layout.undecoded(dataset), progress)
        for number, sample in samples:
            try:
                found = layout.sample(sample if map is None else map(sample))
            except Exception as error:
                raise ShadeError(f"sample {number}: {error}") from error
            writer.add_fields(found.image, found.label, found.key, found.fields)
    return writer.report or {}


def enumerated(dataset: Any, progress: bool) -> Iterator[tuple[int, Any]]:
    """All samples with their numbers, in the dataset's order.

    Raises: ShadeError: A sample cannot be had.
    """
    samples: Iterable[Any]
    length = length_of(dataset)
    if length is not None and gives_by_number(dataset):
        samples = (dataset[number] for number in range(length))
    elif hasattr(dataset, "__iter__"):
        samples = iter(dataset)
    else:
        kind = type(dataset).__name__
        raise ShadeError(f"a {kind} is no dataset: it has neither __getitem__ and __len__, nor __iter__")
    with contextlib.ExitStack() as stack:
        if progress:
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                samples = stack.enter_context(tqdm(samples, total=length, unit=" samples"))
        ahead = iter(samples)
        number = 0
        while True:
            try:
                sample = next(ahead)
            except StopIteration:
                return
            except Exception as error:
                raise ShadeError(f"sample {number}: the dataset cannot give it: {error!r}") from error
            yield number, sample
            number += 1


def key_of(sample: Mapping[str, Any]) -> Any:
    """The key of a WebDataset sample. Those of `tar -C folder .` begin with `./`, which does not count."""
    key = sample.get(KEY)
    while isinstance(key, str) and key.startswith("./"):
        key = key[2:]
    return key


def gives_by_number(dataset: Any) -> bool:
    """Whether it has a `__getitem__` of its own: torch's base of all datasets has one that only raises."""
    of_torch = getattr(sys.modules.get("torch.utils.data"), "Dataset", None)
    given = getattr(type(dataset), "__getitem__", None)
    return given is not None and given is not getattr(of_torch, "__getitem__", None)


def length_of(dataset: Any) -> int | None:
    """Its length, if it has one: some have the method and no length."""
    try:
        return len(dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def classes_of(dataset: Any) -> list[str] | None:
    """Names of classes as torchvision's datasets have them, also behind a Subset."""
    # A chain of wrappers ends.
    for _ in range(8):
        names = getattr(dataset, "classes", None)
        if isinstance(names, (list, tuple)) and names:
            # ImageNet has several names for a class.
            return [", ".join(name) if isinstance(name, (list, tuple)) else str(name) for name in names]
        dataset = getattr(dataset, "dataset", None)
    return None


@dataclass
class Found:
    """A sample: its image, label, key and fields."""

    image: Any
    label: Any = None
    key: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Layout:
    """Where images and labels are in a dataset's samples."""

    image: str | None = None
    label: str | None = None
    classes: list[str] | None = None
    # Columns of Hugging Face with images, which need not be decoded.
    columns: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: Any, image: str | None, label: str | None) -> Layout:
        """As a Hugging Face dataset's features say, for what the caller does not."""
        features = getattr(dataset, "features", None)
        if not isinstance(features, Mapping):
            return cls(image, label)
        kinds = {name: type(feature).__name__ for name, feature in features.items()}
        columns = [name for name, kind in kinds.items() if kind == "Image"]
        labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
        if image is None and columns:
            image = chosen(columns, IMAGE_KEYS, "image", "are images")
        if label is None and labels:
            label = chosen(labels, LABEL_KEYS, "label", "are labels")
        names = getattr(features.get(label), "names", None) if label else None
        return cls(image, label, list(names) if names else None, columns)

    def undecoded(self, dataset: Any) -> Any:
        """The dataset with the bytes of its images' files, where it is one of Hugging Face."""
        for name in self.columns:
            dataset = dataset.cast_column(name, type(dataset.features[name])(decode=False))
        return dataset

    def sample(self, sample: Any) -> Found:
        """What a sample is made of."""
        if isinstance(sample, Mapping):
            return self.of_dict(sample)
        if isinstance(sample, (tuple, list)):
            if len(sample) != 2:
                raise ShadeError(f"a tuple of {len(sample)} is not (image, label): map= says what it is, as a dict")
            return Found(image_in(sample[0]), label_in(sample[1]))
        return Found(image_in(sample))

    def of_dict(self, sample: Mapping[str, Any]) -> Found:
        """An entry is the image, one the label, and all others are fields."""
        names = [name for name in sample if not name.startswith("__")]
        image = self.image
        if image is None:
            found = [name for name in IMAGE_KEYS if name in names]
            found = found or [name for name in names if is_image(sample[name])]
            if not found:
                raise ShadeError(f"which of {', '.join(names)} is its image? Name it: image=")
            image = found[0]
        label = self.label
        if label is None:
            label = next((name for name in LABEL_KEYS if name in names), "")
        for name in (image, label):
            if name and name not in sample:
                raise ShadeError(f"it has no {name!r}, but {', '.join(names)}")
        fields = {}
        for name in names:
            if name not in (image, label):
                # A name of images alone could be taken for the sample's.
                field_name = f"other.{name}" if name.lower() in IMAGE_NAMES else name
                fields[field_name] = undecoded_field(sample[name])
        found_label = label_in(sample[label]) if label else None
        return Found(image_in(sample[image]), found_label, key_of(sample), fields)


def chosen(names: Sequence[str], usual: Sequence[str], argument: str, what: str) -> str:
    """The only name, or the likeliest.

    Raises: ShadeError: None of several is likelier.
    """
    if len(names) == 1:
        return names[0]
    for name in usual:
        if name in names:
            return name
    raise ShadeError(f"several columns {what}: {', '.join(names)}. Choose one: {argument}=")


def is_image(value: Any) -> bool:
    """Whether it looks like an image, and not like a label or a text."""
    return is_picture(value) or (is_array(value) and len(value.shape) in (2, 3))


def image_in(value: Any) -> Any:
    """The image, or the bytes of its file: a Hugging Face dataset that is not decoded has both or its path."""
    if isinstance(value, Mapping) and value.keys() <= {"bytes", "path"}:
        content = value.get("bytes")
        if content is not None:
            return content
        if value.get("path"):
            with open(value["path"], "rb") as file:
                return file.read()
        raise ShadeError("its image is empty")
    return value


def undecoded_field(value: Any) -> Any:
    """A field, or the bytes of its file."""
    is_file = isinstance(value, Mapping) and value.keys() == {"bytes", "path"}
    return image_in(value) if is_file else value


def label_in(value: Any) -> Any:
    """A label as `Writer.add` takes it: WebDataset has texts of numbers, others arrays of one number."""
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode().strip()
        return int(text) if text.isdecimal() else text
    if isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)) or is_array(value):
        if len(value) != 1:
            raise ShadeError(f"{len(value)} labels for one sample: map= says which, or makes a field of them")
        return label_in(value[0])
    return value.item() if hasattr(value, "item") else value
