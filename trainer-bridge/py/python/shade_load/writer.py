"""`Writer`: makes a dataset of samples that are given one by one."""

from __future__ import annotations

import contextlib
import json
import numbers
import os
import re
import subprocess
import tarfile
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ._native import ShadeError
from .encoded import IMAGE_NAMES, field_member, image_member
from .launch import find_program

# bytes of an image file, its path, a PIL image, an array (height x width x channels) or a tensor
# (channels x height x width).
ImageLike = Any

FORMS = ("png", "jpeg")
FIELD_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?<!\.)")
BLOCK_BYTES = 512
END_MARK = bytes(2 * BLOCK_BYTES)
# Exit codes of shade-pack: done, and done with samples left out.
DONE = (0, 4)


class Writer:
    """Makes a packed dataset of samples, in the order in which they are added.

    with Writer("photos.shade", classes=["cat", "dog"]) as writer:
        writer.add(image=jpeg_bytes, label="cat", caption="a cat")

    It gives the samples to `shade-pack create - OUT`. The dataset appears when the block ends. If it raises, nothing
    appears and nothing is left. Equal samples in equal order give equal bytes.

    Args:
        out: The dataset's directory, which must not exist; or an address where nothing is (s3://bucket/prefix).
        classes: Names of the classes, by label. Without them, labels are whole numbers, or texts that become classes
            in their sorted order.
        format: How PIL images, arrays and tensors are stored: "png", without loss, or "jpeg". Bytes of image files
            stay what they are.
        quality: Of "jpeg", 1 to 100.
        options: Further options of `shade-pack create`, such as ["--format", "raw"] or ["--on-bad", "skip"].

    `report` is what `shade-pack create --json` says, once the dataset is made.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        classes: Sequence[str] | None = None,
        *,
        format: str = "png",
        quality: int = 90,
        options: Sequence[str] = (),
    ) -> None:
        if format not in FORMS:
            raise ValueError(f"format: {format!r} is neither 'png' nor 'jpeg'")
        if not is_whole(quality) or not 1 <= quality <= 100:
            raise ValueError(f"quality: {quality!r} is no whole number from 1 to 100")
        # No Path: it would make 's3:/' of an address.
        self.out = os.fspath(out)
        self.classes = None if classes is None else texts("classes", classes)
        self.report: dict[str, Any] | None = None
        self._labels = {name: label for label, name in enumerate(self.classes or ())}
        # ImageNet has two classes that are called crane: as numbers they are told apart.
        named = Counter(self.classes)
        self._shared = {name for name, times in named.items() if times > 1}
        if self.classes is not None and not self.classes:
            raise ValueError("classes: there must be one")
        self._format, self._quality, self._options = format, quality, texts("options", options)
        self._samples = 0
        # Those that were given: samples of one key would be one sample.
        self._keys: set[str] = set()
        self._kind: str | None = None
        self._program: _Program | None = None
        self._is_over = False

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __len__(self) -> int:
        """Samples that were added."""
        return self._samples

    def add(
        self, image: ImageLike, label: int | str | None = None, *, key: str | None = None, **fields: object
    ) -> None:
        """Adds a sample.

        Args:
            image: Bytes of an image file, its path, a PIL image, an array of uint8 (height x width x channels) or a
                tensor of uint8 (channels x height x width).
            label: Number or name of its class. All samples have one, or none has.
            key: What its path in the dataset is without an extension; by default its number in nine digits.
            fields: What is kept beside the image, for `batch.fields()`: bytes and texts as they are, PIL images as
                NAME.png, arrays as NAME.npy, all else as NAME.json. None is left out. Names are stored in lower case.

        Raises:
            ShadeError: The sample cannot be packed, or shade-pack has ended. The text has the sample's number. The
                Writer is of no use then.
        """
        self.add_fields(image, label, key, fields)

    def add_fields(
        self, image: ImageLike, label: int | str | None, key: str | None, fields: Mapping[str, object]
    ) -> None:
        """As `add`, for fields with any names."""
        if self._is_over:
            raise ShadeError("this Writer is closed, or a sample before failed")
        number = self._samples
        try:
            try:
                members = self._members(number, image, label, key, fields)
            except (ShadeError, TypeError, ValueError, OSError) as error:
                raise ShadeError(f"sample {number}: {error}") from error
            if self._program is None:
                self._program = _Program(self.out, self._options, self.classes, has_labels=self._kind != "none")
            self._program.write(members)
        except BaseException:
            self.abort()
            raise
        self._samples += 1

    def close(self) -> None:
        """Makes the dataset. The end of a `with` block does so.

        Raises: ShadeError: It cannot be made. The text is what shade-pack says, and nothing is left then.
        """
        if self._is_over:
            return
        self._is_over = True
        if self._program is None:
            raise ShadeError(f"{self.out}: no sample was added, and a dataset has at least one")
        self.report = self._program.end()

    def abort(self) -> None:
        """Makes nothing, and leaves nothing. A `with` block that raises does so."""
        self._is_over = True
        if self._program is not None:
            self._program.give_up()

    def _members(
        self, number: int, image: ImageLike, label: int | str | None, key: str | None, fields: Mapping[str, object]
    ) -> bytes:
        """The sample's part of the tar."""
        if key is None:
            key = f"{number:09}"
        elif checked_key(key) in self._keys:
            raise ShadeError(f"its key {key!r} is that of a sample before")
        else:
            self._keys.add(key)
        text = self._label(label)
        extension, content = image_member(image, self._format, self._quality)
        parts = [member(f"{key}.{extension}", content)]
        if text is not None:
            parts.append(member(f"{key}.cls", text.encode()))
        names = set()
        for given, value in fields.items():
            if value is None:
                continue
            name, content = field_member(given, value)
            name = name.lower()
            if not FIELD_NAME.fullmatch(name) or name in IMAGE_NAMES or name == "cls":
                raise ShadeError(
                    f"{given!r} cannot name a field: use A-Z, a-z, 0-9, '_', '.' and '-', with no dot at either end, "
                    "and neither 'cls' nor an image's extension alone"
                )
            if name in names:
                raise ShadeError(f"two fields are called {name!r}")
            names.add(name)
            parts.append(member(f"{key}.{name}", content))
        return b"".join(parts)

    def _label(self, label: int | str | None) -> str | None:
        """The label as the tar has it. All samples have labels of one kind."""
        if hasattr(label, "item"):
            label = label.item()
        kind = "none" if label is None else "name" if isinstance(label, str) else "number"
        if kind == "number" and not is_whole(label):
            raise ShadeError(f"its label {label!r} is neither a whole number nor a text")
        if self.classes is not None:
            return str(self._known(label))
        if self._kind not in (None, kind):
            raise ShadeError(f"its label is {label!r}, but samples before have labels of another kind: {self._kind}")
        self._kind = kind
        return None if label is None else label if isinstance(label, str) else str(int(label))

    def _known(self, label: int | str | None) -> int:
        """The number of the class, which has a name."""
        if label is None:
            raise ShadeError("it has no label, but classes are named")
        if isinstance(label, str):
            if label not in self._labels:
                raise ShadeError(f"its label {label!r} is none of the {len(self.classes or ())} classes")
            if label in self._shared:
                raise ShadeError(f"its label {label!r} is that of several classes: give the class's number")
            return self._labels[label]
        if not 0 <= label < len(self.classes or ()):
            raise ShadeError(f"its label {label} is none of the {len(self.classes or ())} classes")
        return int(label)


def texts(name: str, given: object) -> list[str]:
    """The argument, if it is a list of texts.

    Raises: TypeError: It is something else.
    """
    if not isinstance(given, (list, tuple)) or not all(isinstance(text, str) for text in given):
        raise TypeError(f"{name}: {given!r} is no list of texts")
    return list(given)


def is_whole(label: object) -> bool:
    """Whether it is a whole number, of NumPy, too."""
    return isinstance(label, numbers.Integral) and not isinstance(label, bool)


def checked_key(key: str) -> str:
    """The key, if it makes a path below the dataset.

    Raises: ShadeError: It does not.
    """
    parts = key.split("/")
    is_plain = all(part not in ("", ".", "..") for part in parts) and "\0" not in key
    # Tars keep what is of all their samples under such names.
    is_of_all = len(parts[0]) >= 4 and parts[0].startswith("__") and parts[0].endswith("__")
    if not is_plain or is_of_all or "." in parts[-1]:
        raise ShadeError(
            f"its key {key!r} cannot be a path without an extension: no '.', '..' or dot in its last part, and no __NAME__ first"
        )
    return key


def member(name: str, content: bytes) -> bytes:
    """A tar's member."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    padding = bytes(-len(content) % BLOCK_BYTES)
    return b"".join((info.tobuf(tarfile.GNU_FORMAT), content, padding))


class _Program:
    """`shade-pack create - OUT` and its standard input."""

    def __init__(self, out: str, options: list[str], classes: list[str] | None, has_labels: bool) -> None:
        self._files = contextlib.ExitStack()
        try:
            command = [find_program("shade-pack"), "create", "-", out, "--json", "--progress", "none"]
            if classes is not None:
                names = self._files.enter_context(tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8"))
                json.dump(classes, names)
                names.flush()
                command += ["--labels", names.name]
            elif not has_labels:
                command += ["--labels", "none"]
            # In files, so that no thread need read them meanwhile.
            self._result: IO[bytes] = self._files.enter_context(tempfile.TemporaryFile())
            self._words: IO[bytes] = self._files.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [*command, *options], stdin=subprocess.PIPE, stdout=self._result, stderr=self._words, bufsize=0
            )
        except BaseException:
            self._files.close()
            raise
        _alive.add(self)

    def write(self, content: bytes) -> None:
        """Raises: ShadeError: The program has ended. The text is what it said."""
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[self._process.stdin.write(rest) :]  # type: ignore[union-attr]
        except BrokenPipeError:
            raise ShadeError(self._last_words()) from None

    def end(self) -> dict[str, Any]:
        """What it reports."""
        try:
            self.write(END_MARK)
            if self._ended() not in DONE:
                raise ShadeError(self._last_words())
            self._result.seek(0)
            return json.load(self._result)  # type: ignore[no-any-return]
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Ends it. A tar without an end mark makes no dataset."""
        if self._process.poll() is None:
            self._ended()
        self._files.close()

    def forget(self) -> None:
        """In a child after a fork: the pipe is the parent's."""
        self._process.stdin.close()  # type: ignore[union-attr]

    def _ended(self) -> int:
        _alive.discard(self)
        self._process.stdin.close()  # type: ignore[union-attr]
        return self._process.wait()

    def _last_words(self) -> str:
        code = self._ended()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()
        return words or f"shade-pack ended with exit code {code}"


# A child of a fork has the pipe, too. While it had, shade-pack would wait for it, also if this
# process is gone.
_alive: weakref.WeakSet[_Program] = weakref.WeakSet()


def _forget_all() -> None:
    for program in list(_alive):
        program.forget()


os.register_at_fork(after_in_child=_forget_all)
