"""What samplers promise to a training: how often a sample comes, with which weight, and what is read."""

from collections import Counter
from collections.abc import Iterator

import packed
import pytest
from shade_load import Daemon, Loader, Plan

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


def test_replacement_repeats_without_any_loss(dataset: packed.Packed, recwarn: pytest.WarningsRecorder) -> None:
    with open_loader(dataset, "replacement", Plan(sampler="replacement", cover=0)) as loader:
        samples = len(loader.dataset)
        epochs = [Counter(sample for batch in loader for sample in batch.ids.tolist()) for _ in range(2)]
    assert all(epoch.total() == samples and len(epoch) < samples for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert not [warning for warning in recwarn if "loss" in str(warning.message)]
