"""What is compared: cells, each a way to choose an epoch's samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from ..options import choice
from ..plan import BY_LOSS, Plan

# The cell that changes nothing of the script's own plan.
SCRIPT = "script"
# A cell's own share of the epochs, which no Plan has.
EPOCHS = "epochs"
# Samples and weights are the script's.
_OPTIONS = {field.name: field.default for field in fields(Plan) if field.name not in ("sampler", "indices", "weights")}
_TRUTH = {"": True, "true": True, "false": False}
# Whole numbers whose default is none.
_WHOLE = ("strata", "gap", "epoch_length")
# Epochs before a sampler does anything but take each sample once: `pads` and others know losses
# after the first, and `iis` and `cis` take all in the first five.
_ALIKE = {**dict.fromkeys(BY_LOSS, 1), "iis": 5, "cis": 5}


@dataclass(frozen=True)
class Cell:
    """A name as the user wrote it, the options of a Plan that it stands for, and its share of the epochs."""

    name: str
    plan: dict[str, Any]
    share: float = 1.0

    @classmethod
    def of(cls, text: str) -> Cell:
        """The cell of a text such as "echo", "pads:draw_ahead" or "uniform:epochs=0.5".

        Raises: ValueError, TypeError: There is no such sampler or option.
        """
        sampler, *options = text.strip().split(":")
        plan: dict[str, Any] = {} if sampler == SCRIPT else {"sampler": sampler}
        share = 1.0
        for option in options:
            name, _, value = option.partition("=")
            if name == EPOCHS:
                share = _number(float, name, value)
            else:
                choice(f"cell {text!r}", name, (EPOCHS, *_OPTIONS))
                plan[name] = _value(name, value)
        if not 0 < share <= 1:
            raise ValueError(f"epochs: got {share:g}, expected a share of the epochs, above 0 and at most 1")
        Plan(**plan)
        return cls(text.strip(), plan, share)

    @property
    def file_name(self) -> str:
        """The name as a part of a path."""
        return re.sub(r"[^A-Za-z0-9._=-]", "-", self.name)

    @property
    def epochs_min(self) -> int:
        """Epochs in which its sampler is another than permutations."""
        alike = _ALIKE.get(self.plan.get("sampler", ""), 0)
        # A plan that is drawn an epoch early knows no losses of the epoch between.
        is_later = alike == 1 and self.plan.get("draw_ahead", False)
        return alike + is_later + 1

    def epochs(self, epochs: int) -> int:
        """The cell's epochs, where the others have `epochs`."""
        return max(1, round(epochs * self.share))


def cells_of(text: str) -> list[Cell]:
    """The cells of a list such as "uniform,echo,pads"; the first is the baseline."""
    cells = [Cell.of(part) for part in text.split(",") if part.strip()]
    if len(cells) < 2 or len({cell.file_name for cell in cells}) < len(cells):
        raise ValueError(f"cells: got {text!r}, expected two or more that differ, such as uniform,echo,pads")
    return cells


def _value(name: str, text: str) -> Any:
    """An option's value in the type of its default. Plan itself says which values there are."""
    default = _OPTIONS[name]
    if isinstance(default, bool):
        if text.lower() not in _TRUTH:
            raise ValueError(f"{name}: got {text!r}, expected true or false")
        return _TRUTH[text.lower()]
    if isinstance(default, float):
        return _number(float, name, text)
    if name == "epoch_length" and not text.isdecimal():
        return text
    return _number(int, name, text) if isinstance(default, int) or name in _WHOLE else text


def _number(kind: type[int] | type[float], name: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}: got {text!r}, expected a number") from None
