"""How each script is run on a CPU for an epoch or two: its arguments, its stand-ins, and what can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .data import CLASSES, Data, cifar, photos, small_vit

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR100 = (
    (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
    (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
)
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# Where a script writes, below the folder in which it runs.
OUT = "out"
BATCH = "16"
SIDE = "64"
# The scripts' recipes have m9, by which timm sometimes asks Pillow to keep no bits of a level.
# Pillow 13 refuses that, and ends the original.
POLICY = "rand-m7-mstd0.5-inc1"
# Training images for a script that makes many large views of each: two batches of 4 and a tail.
FEW = 11


@dataclass(frozen=True)
class Script:
    """One script. Arguments may contain {data}, {split} ("" or ".shade") and {vit}."""

    file: str
    make_data: Callable[[Path, Path | None], Data]
    arguments: tuple[str, ...]
    one_epoch: tuple[str, ...]
    resumed: tuple[str, ...]
    mean_std: tuple[tuple[float, ...], tuple[float, ...]]
    # The filter by which training crops are resized, or None where they are only cut out.
    interpolation: str | None
    stand_ins: tuple[str, ...] = ()
    # Whether its recipe changes pixels at random after crop and flip: then a run without that is
    # compared.
    has_operations: bool = False
    validates: bool = True
    # Links in the folder in which it runs, to the data.
    links: tuple[str, ...] = ()
    # The epoch that the script tells its loaders first, and after it is resumed.
    epochs: tuple[int, int] = (0, 1)
    # Whether the runner ends it, since it has no option for the number of epochs.
    is_ended: bool = False
    # What it saves, for those that cannot resume by themselves: a pattern below the folder.
    checkpoint: str | None = None
    # Folder of packages that it needs in other versions, an option of the runner.
    needs_old_timm: bool = False
    differs: str = ""


def _cifar10(root: Path, given: Path | None) -> Data:
    return cifar(root, 10)


def _cifar100(root: Path, given: Path | None) -> Data:
    return cifar(root, 100)


def _few(root: Path, given: Path | None) -> Data:
    return photos(root, given, train=FEW)


def _with_vit(root: Path, given: Path | None) -> Data:
    data = photos(root, given)
    small_vit(root / "vit")
    return data


_HF_EPOCHS = ("--num_train_epochs",)
ALL = {
    "timm-train": Script(
        "train.py",
        photos,
        ("--data-dir", "{data}", "--val-split", "val", "--model", "test_vit", "--num-classes", str(CLASSES),
         "--img-size", SIDE, "--batch-size", BATCH, "--workers", "0", "--device", "cpu",
         "--train-interpolation", "bicubic", "--warmup-epochs", "0", "--aa", POLICY,
         "--reprob", "0.25", "--mixup", "0.8", "--cutmix", "1.0", "--output", OUT,
         "--experiment", "run"),
        ("--epochs", "1"),
        ("--epochs", "2", "--resume", f"{OUT}/run/last.pth.tar"),
        HALF,
        "bicubic",
        has_operations=True,
        differs="`--train-interpolation bicubic` in place of `random`, so that its crops can be compared. "
        "Options of other sources of data are gone. Normalizing is the Loader's, as with `--no-prefetcher`.",
    ),
    "convnext": Script(
        "main.py",
        photos,
        ("--data_path", "{data}", "--model", "convnext_tiny", "--input_size", SIDE, "--batch_size", BATCH,
         "--num_workers", "0", "--device", "cpu", "--aa", POLICY, "--mixup", "0", "--cutmix", "0", "--warmup_epochs", "0",
         "--output_dir", OUT),
        ("--epochs", "1"),
        ("--epochs", "2"),
        IMAGENET,
        "bicubic",
        stand_ins=("no GPU", "torch._six"),
        has_operations=True,
        needs_old_timm=True,
        differs="`set_epoch` in every epoch, where the script has it for distributed runs only.",
    ),
    "dino": Script(
        "main_dino.py",
        _few,
        ("--data_path", "{data}/train{split}", "--arch", "vit_tiny", "--patch_size", "32", "--out_dim", "128",
         "--local_crops_number", "2", "--batch_size_per_gpu", "4", "--num_workers", "0", "--use_fp16", "false",
         "--warmup_epochs", "0", "--saveckp_freq", "0", "--output_dir", OUT),
        ("--epochs", "1"),
        ("--epochs", "2"),
        IMAGENET,
        "bicubic",
        stand_ins=("no GPU", "no hub"),
        has_operations=True,
        validates=False,
        differs="Its blur and its solarization are classes of its own, which `decode` refuses by name: four lines.",
    ),
    "lightly-simclr": Script(
        "examples/pytorch_lightning/simclr.py",
        _cifar10,
        (),
        (),
        (),
        IMAGENET,
        "bilinear",
        stand_ins=("made CIFAR", "ckpt_path"),
        has_operations=True,
        validates=False,
        links=("datasets/cifar10",),
        is_ended=True,
        checkpoint="lightning_logs/*/checkpoints/*.ckpt",
        differs="CIFAR-10 as PNG files.",
    ),
    "pytorch-cifar": Script(
        "main.py",
        _cifar10,
        (),
        (),
        ("--resume",),
        CIFAR10,
        None,
        stand_ins=("made CIFAR", "LeNet"),
        links=("data",),
        epochs=(0, 0),
        is_ended=True,
        differs="CIFAR-10 as PNG files. "
        "The script itself repeats the epoch that it saved.",
    ),
    "pytorch-cifar100": Script(
        "train.py",
        _cifar100,
        ("-net", "squeezenet", "-b", "64"),
        (),
        ("-resume",),
        CIFAR100,
        None,
        stand_ins=("made CIFAR", "saves each epoch"),
        has_operations=True,
        links=("data",),
        epochs=(1, 2),
        is_ended=True,
        differs="CIFAR-100 as PNG files. "
        "It tests in order, where the script shuffles.",
    ),
    "pytorch-examples-imagenet": Script(
        "imagenet/main.py",
        photos,
        ("{data}", "-a", "mobilenet_v3_small", "-b", BATCH, "-j", "0", "--no-accel"),
        ("--epochs", "1"),
        ("--epochs", "2", "--resume", "checkpoint.pth.tar"),
        IMAGENET,
        "bilinear",
        differs="`set_epoch` in every epoch, where the script has it for distributed runs only. "
        "`--dummy` ignores ranks.",
    ),
    "transformers-image-classification": Script(
        "examples/pytorch/image-classification/run_image_classification.py",
        _with_vit,
        ("--train_dir", "{data}/train{split}", "--validation_dir", "{data}/val{split}", "--model_name_or_path", "{data}/vit",
         "--output_dir", OUT, "--do_train", "--do_eval", "--per_device_train_batch_size", BATCH,
         "--per_device_eval_batch_size", BATCH, "--save_strategy", "epoch", "--eval_strategy", "epoch",
         "--remove_unused_columns", "False", "--use_cpu", "--report_to", "none"),
        (*_HF_EPOCHS, "1"),
        (*_HF_EPOCHS, "2", "--resume_from_checkpoint", f"{OUT}/checkpoint-7"),
        HALF,
        "bilinear",
        stand_ins=("accuracy",),
        differs="Options of the hub and of subsets are gone.",
    ),
}  # fmt: skip
