"""What is simulated: the commands, by name."""

from __future__ import annotations

from dataclasses import dataclass

CACHES = "10%,20%"
SAMPLERS = ("pads", "uniform")
EPOCHS, SKIPPED = 7, 2
# The part of the store and the data of one node, where all nodes together have N times as much.
SLOTS, GBIT = 4, 1
LATENCY = "2ms"
BATCH = 64
STRAGGLE = (0.0, 0.05)
# The store whose depth several nodes look for at the same time.
DEEP_SLOTS = 64


@dataclass(frozen=True)
class Run:
    """One command."""

    options: tuple[str, ...]

    def words(self) -> list[str]:
        """The arguments."""
        return list(self.options)

    def samples(self) -> int:
        """Samples of the dataset."""
        return int(self.options[self.options.index("--samples") + 1])


@dataclass(frozen=True)
class Scale:
    """How large the runs are."""

    name: str
    # Nodes of the hit ratios, with the samples of the dataset.
    hits: dict[int, int]
    sliced: int
    # Nodes of the weak scaling, and samples of each.
    scaling: tuple[int, ...]
    samples_each: int
    lost: int

    def runs(self) -> dict[str, Run]:
        """All runs, by name, the longest last."""
        runs = {**self._hits(), **self._others(), **self._scaling()}
        return dict(sorted(runs.items(), key=lambda named: named[1].samples()))

    def _hits(self) -> dict[str, Run]:
        runs = {}
        for sampler in SAMPLERS:
            for nodes, samples in self.hits.items():
                for count in (1, nodes):
                    words = _words(count, samples, sampler, CACHES, "32")
                    runs[f"hits, {sampler}, {samples} samples, {count} nodes"] = Run(words)
            samples = self.hits[self.sliced]
            words = (*_words(self.sliced, samples, sampler, CACHES, "32"), "--global-plan")
            runs[f"one plan, {sampler}, {samples} samples, {self.sliced} nodes"] = Run(words)
        return runs

    def _scaling(self) -> dict[str, Run]:
        runs = {}
        for sigma in STRAGGLE:
            straggle = ("--straggle", f"lognormal:{sigma}") if sigma else ()
            for nodes in self.scaling:
                words = _words(nodes, nodes * self.samples_each, "pads", "20%", str(BATCH))
                store = ("--sizes", "fixed:110KB", "--store", _store(nodes), "--compute", "1ms/sample")
                runs[f"weak scaling, {nodes} nodes, sigma {sigma}"] = Run((*words, *store, *straggle))
        return runs

    def _others(self) -> dict[str, Run]:
        samples = self.hits[self.sliced]
        runs = {}
        for sampler in SAMPLERS:
            words = _words(self.sliced, samples, sampler, str(samples * 104 // 100), "32")
            runs[f"everything cached, {sampler}, {self.sliced} nodes"] = Run(words)
        words = _words(self.sliced, samples, "pads", "20%", "32")
        runs[f"one node lost, {self.sliced} nodes"] = Run((*words, "--strata", str(self.sliced * (self.sliced - 1)), "--lose", f"3@{self.lost}"))
        # Hardly any compute, no cache: as fast as the store answers. Reads wait in wide rings.
        for nodes in (1, self.sliced):
            batch = str(2048 // nodes)
            words = _words(nodes, samples, "uniform", "0", batch)
            store = ("--sizes", "fixed:110KB", "--store", f"latency=lognormal:{LATENCY}:0.2,depth={DEEP_SLOTS}", "--compute", "1us/sample")
            runs[f"one store, {nodes} depth controllers"] = Run((*words, *store))
        return runs


def _words(nodes: int, samples: int, sampler: str, caches: str, batch: str) -> tuple[str, ...]:
    """The arguments that all runs have."""
    counted = ("--epochs", str(EPOCHS), "--skip-epochs", str(SKIPPED))
    plans = ("--sampler", sampler, "--policy", "lookahead", "--cache", caches, "--batch-size", batch)
    return ("--nodes", str(nodes), "--samples", str(samples), *counted, *plans)


def _store(nodes: int) -> str:
    """A store with an equal part for each node."""
    return f"latency={LATENCY},depth={SLOTS * nodes},bandwidth={GBIT * nodes}Gbit"


FULL = Scale(
    name="full",
    hits={2: 20_160, 4: 20_160, 8: 20_160, 64: 107_520, 1000: 1_280_000},
    sliced=8,
    scaling=(1, 8, 64, 1000),
    samples_each=640,
    lost=4,
)
QUICK = Scale(
    name="quick",
    hits={2: 6_720, 8: 6_720},
    sliced=8,
    scaling=(1, 8),
    samples_each=640,
    lost=4,
)
