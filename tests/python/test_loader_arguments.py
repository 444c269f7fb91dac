"""Arguments: what is not right is refused by name, before any daemon is started."""

import inspect
import json
import subprocess
from collections.abc import Collection
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path
from typing import get_args

import documents
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError, _native, find_daemon
from shade_load.daemon import Policy
from shade_load.options import size_bytes
from shade_load.plan import Order, Preset, Sampler
from shade_load import transforms
from shade_load.ranks import ranks
from shade_load.transforms import (
    CenterCrop,
    Grayscale,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    document,
)
from shade_load.transforms import RandomInvert as Invert
from torchvision import transforms as tv
from torchvision.transforms import v2 as tv2

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a dataset, and a daemon that must not be started."""
    (tmp_path / "dataset.shade").touch()
    monkeypatch.setenv("SHADE_LOAD_BIN", "/bin/false")
    return tmp_path


BAD = [
    ("batch_size", 0),
    ("batch_size", 32_769),
    ("batch_size", 8.0),
    ("batch_size", True),
    ("image_size", 0),
    ("image_size", (16, 16_385)),
    ("image_size", (16, 16, 3)),
    ("image_size", "big"),
    ("train", 0),
    ("cache", "120%"),
    ("cache", "many"),
    ("cache", -1),
    ("seed", -1),
    ("seed", 1 << 64),
    ("seed", None),
    ("preset", "SHADE"),
    ("plan", "uniform"),
    ("plan", None),
    ("daemon", "default"),
]
BAD_PLANS = [
    ("sampler", "random"),
    ("order", "sorted"),
    ("rep", 0.5),
    ("rep", float("nan")),
    ("rep", None),
    ("hit_cap", 1.5),
    ("hit_cap", "0.5"),
    ("cover", -1),
    ("cover", 1 << 32),
    ("explore", 2),
    ("echo", 0.5),
    ("echo", float("inf")),
    ("gap", 0),
    ("gap", 1.5),
    ("prune", -0.5),
    ("whole_from", 1.5),
    ("replacement", 1),
    ("weights", [1.0]),
    ("pace", 1),
    ("draw_ahead", "yes"),
    ("mix", 1.5),
    ("mix", "5%"),
    ("epoch_length", "last"),
    ("epoch_length", 0),
    ("bucket", [(8, 0)]),
    ("bucket", [8.5]),
    ("group", ""),
    ("group", "a/b"),
    ("group", 3),
    ("tail", "keep"),
    ("on_error", "ignore"),
    ("bad_max", -0.01),
    ("bad_max", 1.5),
    ("bad_max", "1%"),
]
BAD_DAEMONS = [
    ("job", ""),
    ("job", "a/b"),
    ("policy", "mru"),
    ("lookahead", -1),
    ("lookahead", float("nan")),
    ("package_bytes", "some"),
    ("package_bytes", 300_000),
    ("store", "2ms"),
    ("store", 2),
    ("depth", 0),
    ("depth", 4097),
    ("workers", 0),
    ("jpeg", "baseline"),
    ("engine", "aio"),
    ("io", "mmap"),
    ("linger", -1.0),
    ("linger", "3 days"),
    ("ring", "big"),
    ("ring", 0),
    ("timeout", 0.0),
    ("timeout", "long"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_arguments_are_refused_by_name(folder: Path, name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
        Loader(folder, **{"batch_size": 8, name: value})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [*((Plan, *bad) for bad in BAD_PLANS), *((Daemon, *bad) for bad in BAD_DAEMONS)],
)
def test_plan_and_daemon_refuse_bad_fields_by_name(kind: type, name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{name}\b"):
        kind(**{name: value})


def test_plan_and_daemon_are_keyword_only_frozen_and_show_what_is_not_default() -> None:
    assert repr(Plan()) == "Plan()"
    assert repr(Plan(sampler="uniform", cover=0)) == "Plan(sampler='uniform', cover=0)"
    assert repr(Daemon(job="x")) == "Daemon(job='x')"
    assert Plan(rep=1) == Plan() != Plan(rep=2.0)
    for kind in (Plan, Daemon):
        with pytest.raises(TypeError):
            kind("uniform")
        with pytest.raises(FrozenInstanceError):
            kind().cover = 3


def test_a_plans_defaults_are_those_of_the_daemon() -> None:
    job = json.loads(_native.DEFAULTS)
    plan, given = job.pop("plan"), vars(Plan())
    # Preset and number of nodes decide on these, and tables have digests.
    for name in ("sampler", "order", "strata", "group", "indices", "weights"):
        assert given.pop(name) is None
        plan.pop(name, None)
    assert inspect.signature(Loader).parameters["seed"].default == plan.pop("seed")
    assert (plan.pop("weights_digest"), plan.pop("subset_digest")) == (0, 0)
    assert (plan.pop("gap"), given.pop("gap")) == ("auto", None)
    assert plan.pop("parts") == []
    assert (plan.pop("bucket"), given.pop("bucket")) == ([], ())
    assert given == {**plan, **{name: job[name] for name in ("tail", "on_error", "bad_max")}}


def test_program_package_and_pages_have_one_default_sampler() -> None:
    preset = inspect.signature(Loader).parameters["preset"].default
    (policy, _), plan = _native.PRESETS[preset], json.loads(_native.job_document(json.dumps({"preset": preset})))["plan"]
    sampler, order = plan["sampler"], plan["order"]
    program = find_daemon()
    said = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    assert f"[default: {preset}]" in said
    command = [program, "simulate", "--samples", "9", "--epochs", "1", "--policy", "lru", "--cache", "1", "--json"]
    row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["rows"][0]
    assert (row["sampler"], row["order"]) == (sampler, order)
    assert f'"{sampler}"' in Plan.__doc__.split("the preset's, which is")[1].split(":")[0]
    expected = {
        "README.md": [f"(`{sampler}`), the default"],
        "docs/which-sampler.md": [f"**The default is\n`{sampler}`", f"| `{sampler}`, the default |"],
        "docs/decisions/022-the-default-sampler.md": [f"the preset `{preset}`", f"(`{sampler}`), the default"],
        "docs/algorithms.md": [f"| `{preset}`, the default | `" + "` | `".join((sampler, policy, order)) + "` |"],
        "docs/comparison.md": [f"`{preset}`, the default"],
        "docs/loader.md": [
            f'| `preset` | `"{preset}"` |', f'| `sampler` | the preset\'s: `"{sampler}"` |',
            f'| `order` | the preset\'s: `"{order}"` |', f'| `policy` | the preset\'s: `"{policy}"` |',
        ],
    }  # fmt: skip
    for page, parts in expected.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [part for part in parts if part not in text] == [], page


def test_there_are_at_most_nineteen_arguments_and_the_others_are_where_the_error_says(folder: Path) -> None:
    parameters = inspect.signature(Loader).parameters.values()
    assert len([each for each in parameters if each.kind is not each.VAR_KEYWORD]) <= 19
    with pytest.raises(TypeError, match=r"hit_cap belongs into plan=Plan\(hit_cap=2\)"):
        Loader(folder, 8, hit_cap=2)
    with pytest.raises(TypeError, match=r"job belongs into daemon=Daemon\(job='a'\); there is no argument 'shuffled'"):
        Loader(folder, 8, job="a", shuffled=True)
    with pytest.raises(TypeError, match="there is no argument 'batchsize'; 'batch_size' is one$"):
        Loader(folder, 8, batchsize=8)
    with pytest.raises(TypeError, match=r"no argument 'num_worker'; num_workers is a DataLoader's: leave it out"):
        Loader(folder, 8, num_worker=8)
    with pytest.raises(TypeError, match=r"no argument 'hitcap'; hit_cap belongs into plan=Plan\(hit_cap=0.5\)"):
        Loader(folder, 8, hitcap=0.5)
    with pytest.raises(TypeError, match=r"exchange belongs into daemon=Daemon\(exchange=None\)"):
        Loader(folder, 8, exchange=None)


@pytest.mark.parametrize(
    ("rank", "world_size"), [(0, None), (None, 2), (2, 2), (-1, 2), (0, 0), (0, 65_537), (0.0, 1)]
)
def test_bad_ranks_are_refused(folder: Path, rank: int | None, world_size: int | None) -> None:
    with pytest.raises((TypeError, ValueError), match="rank|world_size"):
        Loader(folder, 8, rank=rank, world_size=world_size)


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}]
)
def test_bad_ranks_in_the_environment_are_refused(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert ranks(None, None) == (0, 1)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="rank"):
        ranks(None, None)


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (Preset, _native.PRESETS),
        (Sampler, _native.SAMPLERS),
        (Order, _native.ORDERS),
        (Policy, _native.POLICIES),
    ],
)
def test_the_names_in_the_signatures_are_those_that_there_are(names: object, known: Collection[str]) -> None:
    assert set(get_args(names)) == set(known)


def test_a_folder_that_is_no_dataset_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="shade-pack create"):
            Loader(path, 8)


def test_a_daemon_that_cannot_start_is_an_error(png_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADE_LOAD_BIN", "/bin/false")
    with pytest.raises(ShadeError, match=r"/bin/false"):
        Loader(png_dataset, 8)


def test_the_daemon_is_looked_for_in_three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "shade-load"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("SHADE_LOAD_BIN", str(program))
    with pytest.raises(ShadeError, match="SHADE_LOAD_BIN"):
        find_daemon()
    program.chmod(0o755)
    assert find_daemon() == program
    monkeypatch.delenv("SHADE_LOAD_BIN")
    monkeypatch.setattr("importlib.metadata.files", lambda _: [])
    monkeypatch.setattr("shade_load.launch.__file__", str(tmp_path / "target" / "shade_load" / "launch.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_daemon() == program
    packaged = tmp_path / "target" / "bin" / "shade-load"
    packaged.parent.mkdir(parents=True)
    program.rename(packaged)
    assert find_daemon() == packaged
    packaged.unlink()
    with pytest.raises(ShadeError, match="SHADE_LOAD_BIN"):
        find_daemon()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("1 KiB", 1024),
        ("256MiB", 256 << 20),
        ("256mib", 256 << 20),
        ("1.5GiB", 3 << 29),
        ("2MB", 2_000_000),
        ("8G", 8_000_000_000),
    ],
)
def test_sizes(given: int | str, expected: int) -> None:
    assert size_bytes("ring", given, 1, 1 << 40) == expected
    assert Daemon(ring=given).ring_bytes() == expected


@pytest.mark.parametrize("given", ["16iB", "5i", "1 QiB", "GiB", "-1", ""])
def test_what_is_no_size_is_told_by_its_argument(given: str) -> None:
    with pytest.raises(ValueError, match="ring: got"):
        size_bytes("ring", given, 1, 1 << 40)


def crop(**options: object) -> dict[str, object]:
    options = {"scale": [0.08, 1.0], "ratio": [3 / 4, 4 / 3], "interpolation": "bilinear", **options}
    return {"RandomResizedCrop": {"size": [224, 224], **options}}


def resize(size: object, interpolation: str = "bilinear") -> dict[str, object]:
    return {"Resize": {"size": size, "interpolation": interpolation}}


CENTER = {"CenterCrop": {"size": [224, 224]}}
RANDOM = {"RandomCrop": {"size": [224, 224], "padding": 0}}
GREY = {"Grayscale": {"num_output_channels": 1}}


def flip(p: float) -> dict[str, object]:
    return {"RandomHorizontalFlip": {"p": p}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Resize((224, 192)), [resize([224, 192])]),
        (CenterCrop(224), [CENTER]),
        ([Resize(256), CenterCrop((224, 224))], [resize(256), CENTER]),
        (
            [Resize(256), RandomCrop(224, padding=4)],
            [resize(256), {"RandomCrop": {"size": [224, 224], "padding": 4}}],
        ),
        ([RandomResizedCrop(224, scale=(0.2, 0.9)), RandomHorizontalFlip()], [crop(scale=[0.2, 0.9]), flip(0.5)]),
        (tv.Compose([tv.Resize([256]), tv.CenterCrop(224)]), [resize(256), CENTER]),
        (tv.Resize((9, 8), tv.InterpolationMode.BICUBIC), [resize([9, 8], "bicubic")]),
        ([tv2.RandomResizedCrop(224), tv2.RandomHorizontalFlip(0.25)], [crop(), flip(0.25)]),
        (tv.RandomCrop(224, padding=[4, 4, 4, 4]), [{"RandomCrop": {"size": [224, 224], "padding": 4}}]),
        ([CenterCrop(224), RandomHorizontalFlip(1.0), tv.Grayscale()], [CENTER, flip(1.0), GREY]),
        ([CenterCrop(224), tv2.Grayscale(), RandomHorizontalFlip()], [CENTER, GREY, flip(0.5)]),
    ],
)
def test_transforms_are_torchvisions_names_and_arguments(given: object, expected: list[object]) -> None:
    assert documents.view(given) == expected


def test_none_leaves_images_as_they_are() -> None:
    assert documents.views("none") == "none"


@pytest.mark.parametrize("name", [name for name in transforms.__all__ if inspect.isclass(getattr(transforms, name, None))])
def test_a_transforms_defaults_are_those_of_the_document(name: str) -> None:
    kind = getattr(transforms, name)
    needed = {"size": 8, "kernel_size": 3, "threshold": 9, "bits": 4, "sharpness_factor": 2, "transforms": [Invert()], "degrees": 5, "padding": 4}
    given = {field.name: needed[field.name] for field in fields(kind) if field.default is MISSING}
    step = kind(**given)
    place = [] if name in ("Resize", "Pad", "CenterCrop", "FiveCrop", "RandomCrop", "RandomResizedCrop") else [CENTER]
    place += {"Resize": [CENTER], "Pad": [RANDOM]}.get(name, [])
    alone = document(step)[0][name]
    only = {name: value for name, value in alone.items() if name in given}
    spelled_out, left_out = ([{name: alone}, *place] if name in ("Resize", "Pad") else [*place, {name: each}] for each in (alone, only))
    assert checked(spelled_out) == checked(left_out)


def checked(decode: object) -> object:
    return json.loads(_native.job_document(json.dumps({"decode": decode})))["decode"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Pad(4), "decode: got"),
        (Resize(224), r"decode: Resize\(224\) keeps each image's ratio"),
        ([CenterCrop(224), Resize((2, 2))], "decode: got"),
        ([RandomHorizontalFlip(), CenterCrop(224)], "expected RandomHorizontalFlip behind CenterCrop"),
        ([Resize(256), RandomResizedCrop(224)], "decode: got"),
        ([Grayscale(), CenterCrop(224), Grayscale()], "decode: got"),
        ([CenterCrop(224), Grayscale(2)], "Grayscale: num_output_channels is 2, but must be 3, or 1 in the last of all"),
        (CenterCrop(0), "CenterCrop: size is 0"),
        (RandomResizedCrop(224, scale=(0.5, 0.2)), "RandomResizedCrop: scale is"),
        ([CenterCrop(224), RandomHorizontalFlip(1.5)], "RandomHorizontalFlip: p is 1.5"),
        (RandomResizedCrop(224, interpolation="cubic"), "RandomResizedCrop: expected one of `nearest`, `box`"),  # type: ignore[arg-type]
        (tv.RandomCrop(224, padding=[1, 2]), "padding"),
        (tv.RandomCrop(224, pad_if_needed=True), "pad_if_needed"),
        (tv.RandomCrop(224, padding=2, fill=7), "fill"),
        (tv.Compose([tv.CenterCrop(224), tv.ToTensor()]), "the daemon has no ToTensor"),
        (lambda image: image, r"PerSample\(.* shade_load.ImageFolder with your DataLoader, or Loader\(transform="),
        ("raw", "decode: got 'raw', expected transforms of shade_load.transforms, torchvision's .*, or \"none\""),
        (["none"], r"decode: got 'none'"),
    ],
)
def test_what_the_daemon_cannot_do_is_said(given: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        documents.views(given)


def test_a_function_of_images_needs_images(png_dataset: Path) -> None:
    with pytest.raises(ValueError, match="transform: got .* for raw records; give image_size or decode"):
        Loader(png_dataset, 4, transform=len)


def test_one_way_of_decoding_at_a_time(folder: Path) -> None:
    with pytest.raises(ValueError, match="^decode: image_size is given as well"):
        Loader(folder, 8, image_size=224, decode=CenterCrop(224))
    with pytest.raises(ValueError, match="^exact: raw records"):
        Loader(folder, 8, exact=True)
    with pytest.raises(TypeError, match="^transform: "):
        Loader(folder, 8, image_size=224, transform=224)  # type: ignore[arg-type]


def test_a_tier_is_named_without_a_password() -> None:
    for text in ("valkey://a", "redis://a:1,b:2", "rediss://me@a:1", "valkeys://[fd00::1]:7000,b"):
        assert "a" in Daemon(tier=text).settings("20%", "permutations")["tier"]
    for text in ("", "a:6379", "http://a", "valkey://"):
        with pytest.raises(ValueError, match="^tier: .*write valkey://HOST"):
            Daemon(tier=text)
    for text in ("valkey://me:hunter2@a", "valkey://:hunter2@a"):
        with pytest.raises(ValueError, match="SHADE_TIER_PASSWORD") as error:
            Daemon(tier=text)
        assert "hunter2" not in str(error.value)
    with pytest.raises(ValueError, match="^tier: "):
        Daemon(tier=6379)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^tier_cache: "):
        Daemon(tier="valkey://a", tier_cache="much")


def test_settings_are_the_daemons_own_words() -> None:
    assert Daemon().settings(None, "permutations") == {
        "cache": "auto", "policy": "lookahead", "lookahead": 1.0, "package_bytes": "auto", "tier": "none",
        "fields": "none", "tier_cache": "auto", "depth": "auto", "workers": "auto",
        "decode_once": 256 << 20,
        "jpeg": "auto", "engine": "auto", "io": "auto", "store": "none", "linger": 3.0,
    }  # fmt: skip
    every = Daemon(
        policy="lru",
        lookahead=0.25,
        package_bytes="16KiB",
        tier="valkey://cache-0,cache-1:7000",
        tier_cache="1GiB",
        store="latency=2ms,bandwidth=1Gbit",
        depth=8,
        workers=2,
        decode_once=0,
        jpeg="turbo",
        engine="threads",
        io="buffered",
        linger=0.5,
    )
    papers = Daemon().settings(None, "coordl")
    assert (papers["cache"], papers["policy"]) == ("20%", "static")
    assert Daemon().settings("auto", "coordl")["cache"] == "auto"
    assert every.settings("8GiB", "permutations") == {
        "cache": 8 << 30, "policy": "lru", "lookahead": 0.25, "fields": "none", "package_bytes": 16384,
        "tier": "valkey://cache-0:6379,cache-1:7000", "tier_cache": 1 << 30, "depth": 8, "workers": 2,
        "decode_once": 0, "jpeg": "turbo", "engine": "threads", "io": "buffered",
        "store": "latency=2ms,bandwidth=125000000B", "linger": 0.5,
    }  # fmt: skip
