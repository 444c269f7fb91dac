"""What samplers promise to a training: how often a sample comes, with which weight, and what is read."""

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

torch = pytest.importorskip("torch")

BATCH = 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[packed.Packed]:
    root = tmp_path_factory.mktemp("samplers")
    packed.image_folder(root / "folder", "png")
    yield packed.pack(root / "folder", root / "data.shade")


def open_loader(dataset: packed.Packed, job: str, plan: Plan, cache: str = "50%") -> Loader:
    return Loader(dataset.path, BATCH, image_size=packed.SIDE, cache=cache, plan=plan, daemon=Daemon(job=job))


def test_echo_reads_a_part_and_delivers_it_again(dataset: packed.Packed) -> None:
    with open_loader(dataset, "echo", Plan(sampler="echo", echo=2)) as loader:
        samples = len(loader.dataset)
        epochs = [Counter(sample for batch in loader for sample in batch.ids.tolist()) for _ in range(4)]
        read = loader.stats()["total"]["reads"] + loader.stats()["total"]["coalesced"]
    assert all(epoch.total() == samples for epoch in epochs)
    # An odd number of samples: one of them comes once more, or once less.
    assert all(sum(count != 2 for count in epoch.values()) <= 1 for epoch in epochs)
    assert epochs[0].keys().isdisjoint(epochs[1]), "what was read gives way to the rest"
    assert len(epochs[0] | epochs[1]) == samples
    # The second use is a hit while the cache has room for the samples between the two.
    assert read <= 4 * samples / 2 + 1, "each sample is read once per epoch that delivers it"


def test_echo_goes_on_in_the_middle_after_a_restart(dataset: packed.Packed) -> None:
    plan = Plan(sampler="echo", echo=1.5)
    with open_loader(dataset, "echo-whole", plan) as loader:
        whole = [[batch.ids.tolist() for batch in loader] for _ in range(3)]
    with open_loader(dataset, "echo-first", plan) as loader:
        list(loader)
        batches = iter(loader)
        begun = [next(batches).ids.tolist() for _ in range(3)]
        state = loader.state_dict()
    with open_loader(dataset, "echo-second", plan) as loader:
        loader.load_state_dict(state)
        rest = [batch.ids.tolist() for batch in loader]
        third = [batch.ids.tolist() for batch in loader]
    assert begun + rest == whole[1]
    assert third == whole[2]


def test_infobatch_leaves_out_the_easy_and_weights_the_rest(dataset: packed.Packed) -> None:
    plan = Plan(sampler="infobatch", cover=0, whole_from=3)
    with open_loader(dataset, "infobatch", plan) as loader:
        samples = len(loader.dataset)
        lengths = []
        for _ in range(4):
            delivered, weights = 0, 0.0
            for batch in loader:
                delivered += len(batch)
                weights += float(batch.weights.sum())
                loader.report(batch, [float(sample) for sample in batch.ids.tolist()])
            lengths.append(delivered)
            assert weights == pytest.approx(samples), "the weighted mean is that of a plain pass"
    assert lengths[0] == lengths[3] == samples, "before any loss, and from whole_from on"
    assert all(length < samples for length in lengths[1:3])


def test_seta_delivers_three_groups_of_five_by_their_losses(dataset: packed.Packed) -> None:
    plan = Plan(sampler="seta", cover=0, whole_from=4)
    with open_loader(dataset, "seta", plan) as loader:
        samples = len(loader.dataset)
        epochs = []
        for _ in range(5):
            epochs.append([])
            for batch in loader:
                epochs[-1].extend(batch.ids.tolist())
                assert set(batch.weights.tolist()) == {1.0}
                loader.report(batch, [float(sample) for sample in batch.ids.tolist()])
    assert len(epochs[0]) == len(epochs[4]) == samples, "before any loss, and from whole_from on"
    for number, ids in enumerate(epochs[1:4], start=1):
        assert sorted(ids) == list(range(min(ids), max(ids) + 1)), "neighbouring losses, each sample once"
        assert 0.5 * samples < len(ids) < 0.7 * samples
        # From the middle to the hardest, and then from the easiest on.
        assert (min(ids) == 0) == (number == 3) and (max(ids) == samples - 1) == (number == 2)


def test_replacement_repeats_without_any_loss(dataset: packed.Packed, recwarn: pytest.WarningsRecorder) -> None:
    with open_loader(dataset, "replacement", Plan(sampler="replacement", cover=0)) as loader:
        samples = len(loader.dataset)
        epochs = [Counter(sample for batch in loader for sample in batch.ids.tolist()) for _ in range(2)]
    assert all(epoch.total() == samples and len(epoch) < samples for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert not [warning for warning in recwarn if "loss" in str(warning.message)]


@pytest.fixture(scope="module")
def imbalanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[packed.Packed]:
    root = tmp_path_factory.mktemp("imbalanced")
    packed.image_folder(root / "folder", "png", {"common": 40, "rare": 5, "some": 15})
    yield packed.pack(root / "folder", root / "data.shade")


def epoch_of(loader: Loader) -> Counter[int]:
    return Counter(sample for batch in loader for sample in batch.ids.tolist())


@pytest.mark.parametrize("kind", ["list", "array", "tensor"])
def test_weighted_draws_by_the_users_table(dataset: packed.Packed, kind: str) -> None:
    samples = len(dataset)
    table = [float(sample % 4) for sample in range(samples)]
    weights = {"list": table, "array": np.array(table, "float32"), "tensor": torch.tensor(table, requires_grad=True)}
    plan = Plan(sampler="weighted", weights=weights[kind], replacement=False)
    assert repr(plan) == f"Plan(sampler='weighted', weights=<{samples} weights>, replacement=False)"
    assert plan == Plan(sampler="weighted", weights=[2 * weight for weight in table], replacement=False)
    expected = [weight * samples / sum(table) for weight in table]
    with open_loader(dataset, f"weighted-{kind}", plan) as loader:
        for _ in range(2):
            delivered: Counter[int] = Counter()
            for batch in loader:
                delivered.update(batch.ids.tolist())
                given = [expected[sample] ** -1 for sample in batch.ids.tolist()]
                assert batch.weights.tolist() == pytest.approx(given)
            assert delivered.total() == samples
            for sample in range(samples):
                assert delivered[sample] in (int(expected[sample]), int(expected[sample]) + 1), sample


def test_weighted_goes_on_in_the_middle_and_needs_its_table(dataset: packed.Packed) -> None:
    table = [float(sample % 3) for sample in range(len(dataset))]
    plan = Plan(sampler="weighted", weights=table)
    with open_loader(dataset, "weighted-whole", plan) as loader:
        whole = [[batch.ids.tolist() for batch in loader] for _ in range(2)]
    with open_loader(dataset, "weighted-first", plan) as loader:
        batches = iter(loader)
        begun = [next(batches).ids.tolist() for _ in range(3)]
        state = loader.state_dict()
    with open_loader(dataset, "weighted-second", plan) as loader:
        loader.load_state_dict(state)
        assert begun + [batch.ids.tolist() for batch in loader] == whole[0]
        assert [batch.ids.tolist() for batch in loader] == whole[1]
    with open_loader(dataset, "weighted-other", Plan(sampler="weighted", weights=table[::-1])) as loader:
        with pytest.raises(ValueError, match=r"state: saved with other weights than this Loader's Plan\(weights"):
            loader.load_state_dict(state)


def test_ranks_share_a_table_and_another_one_is_refused(dataset: packed.Packed) -> None:
    def rank(number: int, weights: list[float]) -> Loader:
        plan = Plan(sampler="weighted", weights=weights, replacement=False)
        daemon = Daemon(job="weighted-ranks")
        return Loader(
            dataset.path, BATCH, image_size=packed.SIDE, rank=number, world_size=2, plan=plan, daemon=daemon
        )

    equal = [1.0] * len(dataset)
    with rank(0, equal) as first:
        with pytest.raises(ShadeError, match="other arguments"):
            rank(1, [2.0, *equal[1:]])
        with rank(1, equal) as second, ThreadPoolExecutor() as threads:
            ranks = list(threads.map(epoch_of, (first, second)))
    assert ranks[0] + ranks[1] == Counter(range(len(dataset))), "equal weights: a permutation"


def test_balanced_delivers_all_classes_alike(imbalanced: packed.Packed) -> None:
    with open_loader(imbalanced, "balanced", Plan(sampler="balanced", replacement=False)) as loader:
        for _ in range(3):
            classes: Counter[int] = Counter()
            for batch in loader:
                classes.update(batch.labels.tolist())
            # 20 of each of the three classes; only the 40 and the 15 are rounded at random.
            assert classes.total() == len(imbalanced)
            assert classes[1] == 20
            assert 14 <= classes[0] <= 26
    with open_loader(imbalanced, "balanced-drawn", Plan(sampler="balanced")) as loader:
        labels = [label for _ in range(10) for batch in loader for label in batch.labels.tolist()]
    # 200 of each, with a standard deviation of 11.5.
    assert all(abs(labels.count(label) - 200) < 58 for label in range(3))


BAD_WEIGHTS = [
    ([1.0, float("nan")], ValueError, "weights is NaN for sample 1"),
    ([1.0, -1.0], ValueError, "weights is -1 for sample 1"),
    ([0.0, 0.0], ValueError, "weights is 0 for every sample"),
    ([[1.0], [2.0]], TypeError, "weights: expected a number for each sample, in one dimension"),
    (["1", "2"], TypeError, "weights: expected a number for each sample"),
    ("12", TypeError, "weights: got '12', expected a number for each sample"),
    (1.0, TypeError, "weights: got 1.0, expected a number for each sample"),
    ({0: 0.5, 1: 2.0}, TypeError, "weights: got {0: 0.5, 1: 2.0}, expected a number for each sample"),
]


@pytest.mark.parametrize(("weights", "kind", "text"), BAD_WEIGHTS)
def test_what_is_no_table_of_weights_is_refused(weights: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        Plan(sampler="weighted", weights=weights)


def test_weights_belong_to_weighted_and_to_the_dataset(dataset: packed.Packed) -> None:
    with pytest.raises(ValueError, match="weights: got none; give them with sampler"):
        Plan(sampler="weighted")
    with pytest.raises(ValueError, match="weights: got <2 weights> with the sampler 'pads'"):
        Plan(sampler="pads", weights=[1, 2])
    with pytest.raises(ValueError, match=f"a table for 2 samples.*{len(dataset)} samples"):
        open_loader(dataset, "weighted-short", Plan(sampler="weighted", weights=[1, 2]))
    with pytest.raises(ShadeError, match="balanced goes by the samples' labels, and this dataset has fewer than two"):
        one = dataset.path.parent / "one-class"
        packed.image_folder(one, "png", {"all": 9})
        open_loader(packed.pack(one, one.with_suffix(".shade")), "one-class", Plan(sampler="balanced"))
