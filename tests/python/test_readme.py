"""README's Python examples run as they stand there, one after the other, on a small dataset."""

import re
import subprocess
import sys
from pathlib import Path

import packed
import pytest

pytest.importorskip("torchvision")

ROOT = Path(__file__).parents[2]
# What the examples leave to their reader.
READERS = """
import torch
from torchvision.transforms import v2

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 224 * 224, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
augment = v2.Compose([v2.PILToTensor(), v2.RandomCrop(8)])
"""


def examples() -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.S | re.M)
    assert len(blocks) >= 5
    return blocks


def test_they_run_in_their_order(tmp_path: Path) -> None:
    packed.image_folder(tmp_path / "train", "png")
    packed.image_folder(tmp_path / "val", "png")
    made = packed.pack(tmp_path / "train", tmp_path / "plain.shade")
    captioned = packed.with_fields(made, tmp_path / "captions", lambda sample: {"json": f'{{"caption": {sample}}}'.encode()})
    captioned.path.rename(tmp_path / "photos-train.shade")
    packed.pack(tmp_path / "val", tmp_path / "photos-val.shade")
    script = "\n".join([READERS, *examples(), "print(sorted(captions), len(train), len(loader.dataset))"])
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-W", "ignore::RuntimeWarning", tmp_path / "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *epochs, shown = done.stdout.splitlines()
    assert len(epochs) == 10, "figures of each epoch that importance drew"
    captions, lengths = shown.rsplit("]", 1)
    assert captions.startswith("[") and lengths.split() == ["61", "61"]
