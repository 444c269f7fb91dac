"""Images from the daemon are equal to those of torchvision's transforms, whoever decoded them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packed
import PIL
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Plan, ShadeError
from shade_load.transforms import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from torchvision import transforms as tv
from torchvision.transforms import functional

WIDTH, HEIGHT = 500, 375


def picture(seed: int, size: tuple[int, int], grainy: float = 0.08) -> Image.Image:
    """Much like a photograph: large soft shapes, edges, and a little grain."""
    source = random.Random(seed)
    soft = Image.frombytes("RGB", (7, 5), source.randbytes(7 * 5 * 3)).resize(size, Image.Resampling.BICUBIC)
    patch = Image.frombytes("RGB", (24, 18), source.randbytes(24 * 18 * 3)).resize(size, Image.Resampling.NEAREST)
    grain = Image.frombytes("RGB", (size[0] // 2, size[1] // 2), source.randbytes(size[0] // 2 * (size[1] // 2) * 3))
    return Image.blend(Image.blend(soft, patch, 0.25), grain.resize(size, Image.Resampling.BILINEAR), grainy)


def save_all_kinds(folder: Path) -> None:
    """One image of each kind that ImageFolders have, all of 500 x 375 pixels."""
    folder.mkdir(parents=True)
    rgb = picture(1, (WIDTH, HEIGHT))
    exif = Image.Exif()
    exif[0x0112] = 6
    rgb.save(folder / "baseline.jpg", quality=92)
    rgb.save(folder / "progressive.jpg", quality=85, progressive=True)
    rgb.save(folder / "full.jpg", quality=95, subsampling=0)
    rgb.save(folder / "turned.jpg", quality=90, exif=exif)
    rgb.convert("L").save(folder / "grey.jpg", quality=90)
    rgb.convert("CMYK").save(folder / "cmyk.jpg", quality=90)
    rgb.save(folder / "plain.png")
    rgb.convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "palette.png")
    rgb.convert("RGBA").save(folder / "alpha.png")
    Image.frombytes("I;16", (WIDTH, HEIGHT), random.Random(2).randbytes(2 * WIDTH * HEIGHT)).save(folder / "deep.png")
    rgb.save(folder / "lossy.webp", quality=90)
    rgb.save(folder / "pixels.ppm")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    folder = tmp_path_factory.mktemp("kinds")
    save_all_kinds(folder / "images" / "all")
    return packed.pack(folder / "images", folder / "data.shade")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """JPEGs so large that they are reduced while they are decoded."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "images" / "all").mkdir(parents=True)
    for seed in range(4):
        picture(seed, (1600, 1200), 0.08 * (seed + 1)).save(folder / "images" / "all" / f"{seed}.jpg", quality=90)
    return packed.pack(folder / "images", folder / "data.shade")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    folder = tmp_path_factory.mktemp("small")
    packed.image_folder(folder / "images", "png")
    return packed.pack(folder / "images", folder / "data.shade")


def pil(dataset: packed.Packed, sample: int) -> Image.Image:
    with Image.open(dataset.files[sample]) as image:
        return image.convert("RGB")


def differences(dataset: packed.Packed, expected: Callable[[Image.Image], Image.Image], **options: Any) -> dict[str, float]:
    """Mean absolute difference of each image to torchvision's, in grey levels, by file name."""
    found = {}
    with Loader(dataset.path, 5, plan=Plan(sampler="uniform"), daemon=Daemon(job="agreement"), **options) as loader:
        for batch in loader:
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                wanted = functional.pil_to_tensor(expected(pil(dataset, sample)))
                assert image.shape == wanted.shape
                found[dataset.files[sample].name] = (image.int() - wanted.int()).abs().float().mean().item()
    assert len(found) == len(dataset)
    return found


DETERMINED = {
    "evaluation": [Resize(256), CenterCrop(224)],
    "stretched": [Resize((60, 120))],
    "enlarged": [Resize((400, 900))],
    "middle": [CenterCrop(200)],
    "padded": [CenterCrop((420, 510))],
    "mirrored": [Resize((90, 120)), RandomHorizontalFlip(1.0)],
}


def torchvisions(steps: list[Any]) -> Any:
    """The same images by torchvision."""

    def of_torchvision(name: str, value: Any) -> Any:
        return functional.InterpolationMode(value) if name == "interpolation" else value

    options = [{name: of_torchvision(name, value) for name, value in vars(step).items()} for step in steps]
    return tv.Compose([getattr(tv, type(step).__name__)(**given) for step, given in zip(steps, options, strict=True)])


@pytest.mark.parametrize("name", DETERMINED)
def test_transforms_are_torchvisions(kinds: packed.Packed, name: str) -> None:
    expected = torchvisions(DETERMINED[name])
    exact = differences(kinds, expected, decode=DETERMINED[name], exact=True)
    # They differ by rounding in the decoder or the filter.
    assert max(exact.values()) <= 0.25, exact
    quick = differences(kinds, expected, decode=DETERMINED[name])
    if name in ("stretched", "mirrored"):
        # To less than a quarter of the size, where a JPEG is reduced while it is decoded.
        assert max(quick.values()) <= 1.5, quick
    else:
        assert quick == exact, "the part that is decoded has the pixels of the whole"


@pytest.mark.parametrize("interpolation", ["nearest", "box", "hamming", "bicubic", "lanczos"])
def test_every_filter_is_pillows_pixel_by_pixel(kinds: packed.Packed, interpolation: Any) -> None:
    for steps in (
        [Resize(256, interpolation), CenterCrop(224)],
        [Resize((60, 120), interpolation)],
        [Resize((400, 900), interpolation)],
        [Resize((375, 90), interpolation), RandomHorizontalFlip(1.0)],
        [RandomResizedCrop((33, 200), (1.0, 1.0), (4 / 3, 4 / 3), interpolation)],
        # 8 pixels of the image for 7 of the result: middles lie just between two pixels.
        [Resize((328, 437), interpolation)],
    ):
        for channels_last in (False, True):
            exact = differences(kinds, torchvisions(steps), decode=steps, exact=True, channels_last=channels_last)
            # These are turned, and the ratio of their sides is another one.
            exact.pop("turned.jpg")
            assert max(exact.values()) == 0.0, (steps, exact)
        quick = differences(kinds, torchvisions(steps), decode=steps)
        if interpolation == "nearest" or "Crop" in repr(steps[-1]):
            quick.pop("turned.jpg")
            assert max(quick.values()) == 0.0, (steps, quick)
        else:
            assert max(quick.values()) <= 3.0, (steps, quick)


def test_one_of_two_filters_is_drawn_for_each_image(kinds: packed.Packed) -> None:
    # Filters of other reach, so that parts of a JPEG differ, too.
    names: tuple[Any, Any] = ("bilinear", "lanczos")
    side, drawn = 40, []
    loaders = [
        Loader(kinds.path, 5, decode=RandomResizedCrop(side, interpolation=each), plan=Plan(sampler="uniform"),
               exact=True, seed=3, daemon=Daemon(job=f"filter-{number}"))
        for number, each in enumerate((names, names[::-1], *names))
    ]  # fmt: skip
    for _ in range(8):
        for either, turned, *alone in zip(*loaders, strict=True):
            for row, image in enumerate(either.images):
                found = [torch.equal(image, batch.images[row]) for batch in alone]
                assert any(found), "it is one of them"
                assert torch.equal(either.crops[row], alone[0].crops[row]), "the crops are the same"
                # A flat part is the same by both.
                if not all(found):
                    assert torch.equal(turned.images[row], alone[found.index(False)].images[row])
                    drawn.append(found.index(True))
    for loader in loaders:
        loader.close()
    assert len(drawn) > 60
    # Five standard deviations.
    assert abs(sum(drawn) - len(drawn) / 2) < 5 * (len(drawn) / 4) ** 0.5, (sum(drawn), len(drawn))


def noise(source: random.Random, size: tuple[int, int]) -> Image.Image:
    """Black and white noise in three colours: by a filter with weights below 0 all its sums overshoot."""
    levels = bytes(255 * bit for bit in source.choices((0, 1), k=3 * size[0] * size[1]))
    return Image.frombytes("RGB", size, levels)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images of any shape, some tall and some wide."""
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(5)
    sizes = [(40, 200), (200, 40), (1, 90), (90, 1), *((source.randint(1, 150), source.randint(1, 150)) for _ in range(12))]
    for number, size in enumerate(sizes):
        noise(source, size).save(folder / "images" / "all" / f"{number:02}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def is_vertical_first(image: Image.Image, size: tuple[int, int], filter: int) -> bool:
    """Whether Pillow resizes it vertically first, and that shows."""
    once, other = image.resize((image.width, size[1]), filter), image.resize((size[0], image.height), filter)
    resized = image.resize(size, filter).tobytes()
    return once.resize(size, filter).tobytes() == resized != other.resize(size, filter).tobytes()


@pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="Pillow 12 resizes all images horizontally first")
@pytest.mark.parametrize("interpolation", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_parts_of_any_shape_are_resized_in_pillows_order(shapes: packed.Packed, interpolation: Any) -> None:
    source, mode = random.Random(interpolation), functional.InterpolationMode(interpolation)
    filter = Image.Resampling[interpolation.upper()]
    worst = 1 if interpolation == "bilinear" else 0
    vertical_first = 0
    for _ in range(6):
        height, width = source.randint(1, 120), source.randint(1, 120)
        steps = [RandomResizedCrop((height, width), (0.05, 1.0), (0.1, 10.0), interpolation), RandomHorizontalFlip()]
        with Loader(shapes.path, 5, decode=steps, plan=Plan(sampler="uniform"), daemon=Daemon(job="shapes")) as loader:
            for batch in loader:
                rows = zip(batch.ids.tolist(), batch.images, batch.crops.tolist(), batch.flipped, strict=True)
                for sample, image, (left, top, columns, lines), flipped in rows:
                    part = functional.crop(pil(shapes, sample), *map(int, (top, left, lines, columns)))
                    expected = functional.pil_to_tensor(functional.resize(part, [height, width], mode))
                    expected = expected.flip(2) if flipped else expected
                    assert (image.int() - expected.int()).abs().max() <= worst, (sample, part.size, height, width)
                    vertical_first += is_vertical_first(part, (width, height), filter)
        resize = [Resize((height, width), interpolation)]
        for name, levels in differences(shapes, torchvisions(resize), decode=resize).items():
            assert levels <= worst, (name, height, width)
    assert vertical_first > 2 or interpolation == "nearest"


# To just below a quarter, where the decoder's reduction shows most, and to less.
@pytest.mark.parametrize("short", [299, 256])
def test_reduced_jpegs_stay_close_and_exact_ones_closer(large: packed.Packed, short: int) -> None:
    steps = [Resize(short), CenterCrop(224)]
    quick = differences(large, torchvisions(steps), decode=steps)
    exact = differences(large, torchvisions(steps), decode=steps, exact=True)
    assert max(quick.values()) <= 3.0, quick
    assert max(exact.values()) <= 0.25, exact
    assert min(quick.values()) > max(exact.values()), "reducing leaves a trace"


def gradient(folder: Path) -> packed.Packed:
    """Images whose red is the column and whose green is the row. Blue is constant."""
    (folder / "images" / "all").mkdir(parents=True)
    red = Image.linear_gradient("L").rotate(90).resize((240, 180))
    green = Image.linear_gradient("L").resize((240, 180))
    image = Image.merge("RGB", (red, green, Image.new("L", (240, 180), 200)))
    for number in range(24):
        image.save(folder / "images" / "all" / f"{number:02}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def box_of(image: torch.Tensor, whole: torch.Tensor) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the crop that `image` shows, from its edges' colours."""

    def along(seen: torch.Tensor, scale: torch.Tensor) -> tuple[int, int]:
        # The outer pixels show places half a result's pixel inside the crop.
        places = [int((scale - value).abs().argmin()) for value in (seen[0], seen[-1])]
        pixel = (places[1] - places[0]) / (len(seen) - 1)
        return round(places[0] - pixel / 2), round(places[1] - places[0] + pixel)

    left, width = along(image[0].float().mean(0), whole[0].float().mean(0))
    top, height = along(image[1].float().mean(1), whole[1].float().mean(1))
    return top, left, height, width


def test_random_crops_are_crops_that_torchvision_could_have_drawn(tmp_path: Path) -> None:
    dataset = gradient(tmp_path)
    source = pil(dataset, 0)
    whole = functional.pil_to_tensor(source)
    boxes = set()
    with Loader(
        dataset.path, 8, decode=[RandomResizedCrop(64), RandomHorizontalFlip()], daemon=Daemon(job="parts")
    ) as loader:
        mirrored = 0
        for image in (image for batch in loader for image in batch.images):
            flipped = bool(image[0, :, 0].float().mean() > image[0, :, -1].float().mean())
            mirrored += flipped
            upright = image.flip(-1) if flipped else image
            top, left, height, width = box_of(upright, whole)
            # The box is exact to a pixel or two. One of its neighbours must give exactly this
            # image.
            near = [
                (top + a, left + b, height + c, width + d)
                for a in (-2, -1, 0, 1, 2)
                for b in (-2, -1, 0, 1, 2)
                for c in (-3, -2, -1, 0, 1, 2, 3)
                for d in (-3, -2, -1, 0, 1, 2, 3)
            ]
            inside = [box for box in near if min(box) >= 0 and box[0] + box[2] <= 180 and box[1] + box[3] <= 240 and min(box[2:]) > 0]
            best = min(
                (functional.pil_to_tensor(functional.resized_crop(source, *box, [64, 64])).int() - upright.int()).abs().float().mean().item()
                for box in inside
            )
            assert best <= 0.25, (top, left, height, width)
            assert 0.05 < height * width / (180 * 240) <= 1.05
            assert 0.7 < width / height < 1.4
            boxes.add((top, left, height, width))
    assert len(boxes) > 20, "each has its own"
    assert 3 <= mirrored <= 21


def test_random_crops_move_within_their_padding(dataset: packed.Packed) -> None:
    """CIFAR's augmentation: the image is somewhere in the row, and black is beside it."""
    side, padding = packed.SIDE, 2
    corners = set()
    with Loader(dataset.path, 10, decode=RandomCrop(side, padding=padding), daemon=Daemon(job="crops")) as loader:
        for batch in loader:
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                padded = functional.pad(functional.pil_to_tensor(pil(dataset, sample)), [padding])
                places = [
                    (top, left)
                    for top in range(2 * padding + 1)
                    for left in range(2 * padding + 1)
                    if torch.equal(image, padded[:, top : top + side, left : left + side])
                ]
                assert len(places) == 1
                corners.update(places)
    assert len(corners) > 15


def all_images(loader: Loader, epochs: int = 1) -> dict[tuple[int, int], torch.Tensor]:
    """Every image by epoch and sample."""
    return {
        (batch.epoch, sample): image.clone()
        for _ in range(epochs)
        for batch in loader
        for sample, image in zip(batch.ids.tolist(), batch.images, strict=True)
    }


AUGMENTED = [RandomResizedCrop(12), RandomHorizontalFlip()]


@pytest.mark.parametrize("folder", ["kinds", "large"])
def test_both_jpeg_decoders_give_the_same_pixels(request: pytest.FixtureRequest, folder: str, tmp_path: Path) -> None:
    dataset = request.getfixturevalue(folder)
    crops = [RandomResizedCrop(64), RandomHorizontalFlip()]
    options = {"decode": crops, "seed": 7, "plan": Plan(sampler="uniform")}
    with (
        Loader(dataset.path, 5, daemon=Daemon(job="auto"), **options) as auto,
        # In a daemon of its own, as a daemon has one decoder.
        Loader(dataset.path, 5, daemon=Daemon(socket=tmp_path / "s", jpeg="turbo"), **options) as turbo,
    ):
        expected, found = all_images(auto, 2), all_images(turbo, 2)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[row], found[row]) for row in expected)


def test_batches_do_not_depend_on_workers_ranks_or_interruptions(dataset: packed.Packed) -> None:
    def loader(job: str, workers: int | None = None, **options: Any) -> Loader:
        plan, daemon = Plan(sampler="uniform"), Daemon(job=job, workers=workers)
        return Loader(dataset.path, 5, decode=AUGMENTED, seed=7, plan=plan, daemon=daemon, **options)

    with loader("one", workers=1) as one:
        expected = all_images(one, 2)
    assert not torch.equal(expected[0, 3], expected[1, 3]), "another epoch is another part"
    with loader("three", workers=3) as three:
        found = all_images(three, 2)
    with loader("ranks", rank=0, world_size=2) as first, loader("ranks", rank=1, world_size=2) as second:
        halves = {}
        iterators = [iter(first), iter(second)]
        while iterators:
            for iterator in list(iterators):
                batch = next(iterator, None)
                if batch is None:
                    iterators.remove(iterator)
                    continue
                halves.update({(0, s): i.clone() for s, i in zip(batch.ids.tolist(), batch.images, strict=True)})
                del batch
    with loader("resumed") as saved:
        batches = iter(saved)
        for _ in range(4):
            next(batches)
        state = saved.state_dict()
    with loader("resumed-elsewhere") as resumed:
        resumed.load_state_dict(state)
        rest = all_images(resumed)
    assert len(expected) == len(found) == 2 * len(dataset)
    assert len(halves) == len(dataset) and len(rest) == len(dataset) - 4 * 5
    for delivered in (found, halves, rest):
        assert all(torch.equal(image, expected[key]) for key, image in delivered.items())


def test_channels_last_is_torchs_format_and_the_same_images(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, decode=AUGMENTED, plan=Plan(sampler="uniform"), daemon=Daemon(job="planar")) as loader:
        expected = all_images(loader)
    with Loader(
        dataset.path, 8, decode=AUGMENTED, channels_last=True, plan=Plan(sampler="uniform"), daemon=Daemon(job="last")
    ) as loader:
        batch = next(iter(loader))
        assert batch.images.shape == (8, 3, 12, 12)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
            assert torch.equal(image, expected[0, sample])


def test_transform_makes_the_batchs_images(dataset: packed.Packed) -> None:
    def scaled(images: torch.Tensor) -> torch.Tensor:
        return images.float() / 255

    with Loader(dataset.path, 8, image_size=packed.SIDE, transform=scaled, daemon=Daemon(job="scaled")) as loader:
        batch = next(iter(loader))
        assert batch.images.dtype == torch.float32
        assert 0 <= batch.images.min() < batch.images.max() <= 1


def test_an_image_too_small_for_a_crop_is_named(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, decode=RandomCrop(32), daemon=Daemon(job="small")) as loader:
        with pytest.raises(ShadeError, match=r"crop of 32 x 32 from an image of 16 x 16 .*: resize it first"):
            next(iter(loader))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_validation_takes_every_sample_once_and_in_order(dataset: packed.Packed, world_size: int) -> None:
    loaders = [
        Loader(
            dataset.path,
            4,
            image_size=packed.SIDE,
            train=False,
            rank=rank,
            world_size=world_size,
            daemon=Daemon(job=f"v{world_size}"),
        )
        for rank in range(world_size)
    ]
    for _ in range(2):
        seen: list[int] = []
        for batches in zip(*loaders, strict=True):
            ids = [batch.ids.tolist() for batch in batches]
            # The ranks take samples in turn.
            seen += [ids[row % world_size][row // world_size] for row in range(sum(map(len, ids)))]
            del batches
        assert seen == list(range(len(dataset)))
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("policy", ["quiver", "icache"])
def test_validation_is_in_order_whatever_the_cache_would_rather_have(
    dataset: packed.Packed, policy: Any, tmp_path: Path
) -> None:
    daemon = Daemon(job="order", policy=policy, socket=tmp_path / "order.sock")
    options: dict[str, Any] = {"cache": "30%", "daemon": daemon}

    def in_order(validates: Loader) -> None:
        for _ in range(3):
            assert [sample for batch in validates for sample in batch.ids.tolist()] == list(range(len(dataset)))

    # Alone, beside a training, and when that has left.
    with Loader(dataset.path, 4, train=False, **options) as validates:
        in_order(validates)
        with Loader(dataset.path, 4, **options) as trains:
            for batch in trains:
                del batch
            in_order(validates)
        in_order(validates)


@pytest.mark.parametrize("preset", ["permutations", "deepio", "coordl-prep", "shade", "quiver"])
def test_validation_uses_of_a_plan_what_concerns_it(
    dataset: packed.Packed, preset: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_training = Plan(
        order="hits_first",
        rep=3.0,
        hit_cap=0.5,
        cover=1,
        explore=0.5,
        echo=3.0,
        prune=0.1,
        whole_from=2,
        replacement=False,
        pace=True,
        draw_ahead=True,
        strata=3,
        mix=0.5,
        group="sweep",
    )
    daemon = Daemon(job="part", exchange=None, socket=tmp_path / "part.sock")
    # One rank of two nodes.
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    jobs = []
    for plan in (of_training, Plan()):
        with Loader(
            dataset.path, 4, preset=preset, train=False, plan=plan, rank=1, world_size=2, daemon=daemon
        ) as validates:
            seen = [sample for batch in validates for sample in batch.ids.tolist()]
            jobs.append(validates._job)
        assert seen == list(range(1, len(dataset), 2))
    assert jobs[0] == jobs[1]


def test_validation_leaves_training_as_it_is(dataset: packed.Packed) -> None:
    def stats() -> dict[str, Any]:
        return {name: trains.stats()[name] for name in ("total", "resident", "cache_used_bytes")}

    plan, daemon = Plan(sampler="pads"), Daemon(job="both")
    with Loader(dataset.path, 8, image_size=packed.SIDE, seed=3, plan=plan, daemon=daemon) as trains:
        for batch in trains:
            trains.report(batch, batch.labels.float())
        before, state = stats(), trains.state_dict()["daemon"]
        with Loader(dataset.path, 8, image_size=packed.SIDE, train=False, daemon=daemon) as validates:
            assert (validates.daemon_pid, validates.job) == (trains.daemon_pid, "both.eval")
            batch = next(iter(validates))
            with pytest.raises(ShadeError, match="validates"):
                validates.report(batch, [0.0] * len(batch))
            del batch
        assert stats() == before
        assert trains.state_dict()["daemon"] == state
    with pytest.raises(ValueError, match="^sampler: got pads in a validation, which takes each sample once, in order"):
        Loader(dataset.path, 8, train=False, plan=Plan(sampler="pads"))
