"""What papers claim, beside what was seen: hits and waits from the record of simulations, accuracy
from this study's records."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.accuracy import frontier, results
from studies.accuracy.cells import CELLS
from studies.accuracy.results import Run
from studies.accuracy.statistics import Difference, difference, mean, verdicts

RECORD = Path(__file__).parents[2] / "benches/record/2026-11-28-hit-ratio/results.json"
PACKAGES = Path(__file__).parents[2] / "benches/record/2026-11-27-packages/rows.json"
JOBS = Path(__file__).parents[2] / "benches/record/2026-11-24-jobs/rows.json"
# What `python -m studies.accuracy claims` simulates beside these. Time is virtual, so other
# programs do not matter.
OWN = results.RESULTS / "claims.json"
RHOS = (0.4, 0.3, 0.2, 0.1)
RECORD_BYTES, SAMPLES = 110_000, 50_000
SHADE, LRU = "SHADE as published, rep 3", "permutations, LRU"
_PLANS = {
    LRU: ("--sampler", "uniform", "--policy", "lru"),
    SHADE: (*("--sampler", "pads", "--policy", "app", "--order", "hits_first"), *("--rep", "3", "--hit-cap", "1", "--cover", "0")),
}
Cells = Mapping[str, Sequence[Run]]


def simulate() -> Path:
    """Simulates what no other record has: SHADE with its own settings over stores of several rates."""
    from shade_load import find_daemon

    program = find_daemon()
    common = ["--samples", str(SAMPLES), "--batch-size", "64", "--epochs", "12", "--skip-epochs", "4", "--seeds", "5"]
    common += ["--sizes", f"fixed:{RECORD_BYTES}", "--compute", "1ms/sample", "--cache", "20%", "--json"]
    rows = {}
    for rho in RHOS:
        store = f"latency=2ms,bandwidth={round(rho * RECORD_BYTES * 1000)}B,depth=64"
        for name, words in _PLANS.items():
            command = [program, "simulate", *common, "--store", store, *words]
            said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows[f"{name}, {rho:g}"] = {"command": " ".join(["shade-load", *map(str, command[1:])]), **said["rows"][0]}
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    OWN.write_text(json.dumps({"version": version, "rows": rows}, indent=1) + "\n")
    return OWN


def on_time() -> list[str]:
    """The table of claims on hits, bytes and time, which no recipe changes."""
    simulated = _Simulated(json.loads(RECORD.read_text())["runs"])
    packages = _Packages(json.loads(PACKAGES.read_text())["rows"])
    jobs, own = json.loads(JOBS.read_text())["rows"], json.loads(OWN.read_text())["rows"]
    return [
        "## Claims of the papers on hits and time",
        "",
        "Simulated (`benches/record/2026-11-28-hit-ratio`: 50,000 samples, cache 20 %, a store at ρ = 0.4,",
        "five seeds) unless the row says otherwise. *Not tried* is no word on the claim.",
        "",
        *_table((*_of_shade(simulated, own), *_of_icache(simulated, packages, jobs))),
    ]


def on_learning(cells: Cells, judged: Mapping[str, str], wanted: Collection[str]) -> list[str]:
    """The table of claims on accuracy, with this recipe's cells and the verdicts of its tables. Of cells that have not run it
    names the `wanted` ones."""
    return [
        "### Claims of the papers on accuracy",
        "",
        "Verdicts beside permutations are those of the tables above; the others hold for all of this table",
        "at once (Holm). *Not tried* is no word on the claim.",
        "",
        *_table(_of_learning(cells, judged, wanted)),
    ]


def _table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    return ["| claim | seen | so |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]


class _Simulated:
    """The rows of the record of hit ratios."""

    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self.rows = {(run["label"], row["policy"], row["cache"]): row for run in runs for row in run["rows"]}

    def row(self, label: str, policy: str, cache: str = "20%") -> Mapping[str, Any]:
        return self.rows[label, policy, cache]

    def time(self, label: str, policy: str) -> float:
        """Compute and waits; epochs with fewer samples compute less."""
        row = self.row(label, policy)
        return row["accesses"] * (1 + row["stall_share"])


class _Packages:
    """iCACHE with packages, from the record of packages: small records, a cache of 20 %, 10 Gbit/s."""

    def __init__(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.rows = rows

    def over(self, other: str) -> float:
        """How many times as long `other` takes, which reads neighbours together, as the daemon does."""
        return self._time(f"{other}, neighbours") / self._time("icache, 64KiB")

    def _time(self, name: str) -> float:
        (row,) = (row for row in self.rows[f"10 Gbit/s: {name}"] if row["cache"] == "20%")
        return row["accesses"] * (1 + row["stall_share"])


def _of_shade(of: _Simulated, own: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    def over_lru(order: str, baseline: str) -> float:
        hits = of.row(f"4.5x: rep 3, {order}, unguarded", "app", "5%")["hit_ratio"]
        return hits / of.row(baseline, "lru", "5%")["hit_ratio"]

    def gain(rho: float) -> float:
        times = [own[f"{name}, {rho:g}"] for name in (LRU, SHADE)]
        lru, shade = (row["accesses"] * (1 + row["stall_share"]) for row in times)
        return lru / shade

    default = of.time("stall: presets, 0.4", "default")
    rep_2 = default / of.time("stall: SHADE as published, rep 2, 0.4", "app")
    permuted = of.row("4.5x: permutations", "min")["hit_ratio"]
    app, best = (of.row(f"stall: {name}, 0.4", name)["hit_ratio"] for name in ("app", "min"))
    distinct = own[f"{SHADE}, {RHOS[-1]:g}"]["distinct_share"]
    uniform = "4.5x: uniform draws"
    return [
        (
            "SHADE: up to 4.5 x the hit ratio",
            f"{over_lru('hits_first', uniform):.2f} x LRU on uniform draws (10,000 samples, cache 5 %, rep 3, hits first, no "
            f"guards). Beside LRU in a training of its own, which replicates what LRU holds: "
            f"{over_lru('hits_first', '4.5x: rep 3, hits_first, unguarded'):.2f} x, and shuffled "
            f"{over_lru('shuffled', '4.5x: rep 3, shuffled, unguarded'):.2f} x",
            "reproduced with uniform draws as the baseline; with hits first, replication and order make it and not the policy, "
            "shuffled the policy has a part. LRU on the same accesses is not in a record",
        ),
        (
            "SHADE: 2.7 x the throughput",
            f"with rep 3, hits first and no guards, cache 20 %: {', '.join(f'{gain(rho):.2f} x at ρ = {rho:g}' for rho in RHOS)} "
            f"over LRU on permutations, where an epoch has {100 * distinct:.0f} % of the samples "
            f"(`results/{OWN.name}`). With rep 2 and guards {rep_2:.2f} x at ρ = 0.4; one node, records of 110 KB",
            "in reach for stores that serve a tenth to a fifth of what the trainer computes, with settings that train on a part "
            "of the data; what they do to accuracy: `shade-published` (rep 2)",
        ),
        (
            "SHADE: hits more than MIN",
            f"APP {100 * app:.1f} %, MIN {100 * best:.1f} % on the same accesses; MIN on permutations {100 * permuted:.1f} %",
            "true of MIN on another training; on the same accesses no policy can",
        ),
    ]


def _of_icache(of: _Simulated, packages: _Packages, jobs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, str, str]]:
    icache, base, fixed = (of.time("stall: presets, 0.4", name) for name in ("icache", "base", "coordl"))
    hits = of.row("stall: presets, 0.4", "icache")["hit_ratio"]

    def fewer(number: int) -> float:
        rows = [row for row in jobs[f"iCACHE, {number} jobs"] if row["cache"] == "20%"]
        shared, parts = (next(row["datasets_per_epoch"] for row in rows if row["is_shared"] == is_shared) for is_shared in (True, False))
        return parts / shared

    return [
        (
            "iCACHE: 2.3 x over Base, 1.7 x over the best other",
            f"records of 3 KB, packages of 64 KiB (the default), cache 20 %, 8 operations of 2 ms, 10 Gbit/s: "
            f"{packages.over('base'):.2f} x and {packages.over('coordl'):.2f} x, where the others read neighbours together "
            f"(`benches/record/{PACKAGES.parent.name}`). Records of 110 KB without packages: {base / icache:.2f} x and "
            f"{fixed / icache:.2f} x ({100 * hits:.1f} % hits)",
            "about reproduced for small records, by packages, which help Quiver and lookahead as much; not for records of 110 KB",
        ),
        (
            "iCACHE: 1.2 x with several jobs",
            f"one cache for 2, 4 and 8 jobs reads {fewer(2):.2f}, {fewer(4):.2f} and {fewer(8):.2f} x fewer bytes than a part for "
            f"each (`benches/record/{JOBS.parent.name}`)",
            "bytes only; times, and INDA and INDB beside it, are not tried",
        ),
        (
            "iCACHE: 8.6 and 7.6 x on 2 and 4 nodes; I/O time 2.4 x less than Default",
            "its directory of peers is not built: nodes draw from strata of their own",
            "not tried",
        ),
    ]


# Claims on accuracy: what it is, a cell, what it stands beside, and what the verdict cannot say.
# Empty: the verdict stands.
_LEARNED = (
    ("SHADE: importance, beyond the repeats", "pads", "pads-explore-1", ""),
    ("SHADE: its own settings keep accuracy", "shade-published", "uniform", ""),
    ("SHADE: 3 x faster convergence", "pads-30", "uniform", ""),
    ("Importance beside echoes", "pads", "echo", ""),
    (
        "iCACHE, Table III: substitution costs 0.56 to 1.03 points",
        "icache-exchange",
        "iis",
        "not tested: there a sample takes another's place, here two change places and each still comes; three epochs select",
    ),
    ("iCACHE, Table III, with packages", "icache-packages", "iis", "not tested, for the same reason"),
    ("iCACHE: IIS keeps accuracy", "iis", "uniform", ""),
    ("Quiver: substitution does not change accuracy", "quiver-exchange", "uniform", ""),
    ("InfoBatch: a quarter to 40 % fewer samples without loss", "infobatch-by-loss", "uniform", ""),
    ("SeTa: up to half of the samples fewer without loss", "seta", "uniform", ""),
    ("RS2: a part of the data in each epoch, its schedule", "rs2-50", "uniform-cosine", ""),
    ("Data echoing: repeats are almost as good as fresh samples", "echo", "uniform", ""),
)


def _of_learning(cells: Cells, judged: Mapping[str, str], wanted: Collection[str]) -> list[tuple[str, str, str]]:
    def beside(cell: str, baseline: str) -> Difference | None:
        return difference(frontier.accuracies(cells.get(cell, ())), frontier.accuracies(cells.get(baseline, ())))

    found = {claim: beside(cell, baseline) for claim, cell, baseline, _ in _LEARNED}
    of_table = {claim: judged[cell] for claim, cell, beside_, _ in _LEARNED if CELLS[cell].baseline == beside_ and cell in judged}
    said = verdicts({claim: found[claim] for claim, *_, not_tested in _LEARNED if claim not in of_table and not not_tested}) | of_table
    rows = [_convergence(cells), _ranks(cells)]
    if cells.get("cis-dropped") or "cis-dropped" in wanted:
        rows.append(_cis(cells))
    for claim, cell, baseline, not_tested in _LEARNED:
        gap = found[claim]
        if gap is None and cell not in wanted:
            continue
        if gap is None or gap.count < 2:
            rows.append((claim, f"`{cell}` beside `{baseline}`: not run yet", "not tried"))
            continue
        seen = f"`{cell}` beside `{baseline}`: {gap} points"
        if cells.get("uniform"):
            share = _mean_of("samples_trained", cells[cell]) / _mean_of("samples_trained", cells["uniform"])
            read = _mean_of("bytes_read", cells[cell]) / _mean_of("bytes_read", cells["uniform"])
            seen += f"; {100 * share:.0f} % of the samples and {100 * read:.0f} % of the live bytes of permutations"
        rows.append((claim, seen, not_tested or said[claim]))
    return rows


def _ranks(cells: Cells) -> tuple[str, str, str]:
    """Whether a loss's rank in its batch stands for its rank in the dataset."""
    claim = "SHADE: ranks within a batch stand for ranks of all samples"
    found = [run["curve"][-1]["rank_correlation"] for run in cells.get("uniform", ()) if "rank_correlation" in run["curve"][-1]]
    if not found:
        return (claim, "no record of `uniform` has the correlation yet", "not tried")
    seen = f"in the last epoch of `uniform` they correlate at {min(found):.3f} or more ({len(found)} seeds, the recipe's batch size)"
    return (claim, seen, "over the epoch's losses, while the network learns")


def _cis(cells: Cells) -> tuple[str, str, str]:
    """How much less a training computes that drops rows of weight 0 before the backward pass."""
    claim = "iCACHE: CIS is 1.3 x where compute is the limit, 1.02 x where the store is"
    dropped, whole = (cells.get(name, ()) for name in ("cis-dropped", "uniform"))
    if not dropped:
        return (claim, "`cis-dropped` beside `uniform`: not run yet", "not tried")
    compute = _mean_of("cpu_seconds", whole) / _mean_of("cpu_seconds", dropped)
    read = _mean_of("bytes_read", whole) / _mean_of("bytes_read", dropped)
    beside = difference(frontier.accuracies(dropped), frontier.accuracies(whole))
    seen = f"`cis-dropped` takes 1/{compute:.2f} of the CPU time and 1/{read:.2f} of the bytes; {beside} points"
    return (claim, seen, "CPU times of other days; three of ten epochs select")


def _convergence(cells: Cells) -> tuple[str, str, str]:
    """The epoch in which `pads` has the accuracy that `uniform` has at the end."""
    claim = "SHADE: faster convergence"
    goal = {run["seed"]: run["test_accuracy"] for run in cells.get("uniform", ())}
    epochs = []
    for run in cells.get("pads", ()):
        if run["seed"] in goal:
            reached = [row["epoch"] + 1 for row in run["curve"] if row["test_accuracy"] >= goal[run["seed"]]]
            epochs.append(min(reached, default=None))
    if not epochs:
        return (claim, "`pads` beside `uniform`: not run yet", "open")
    got = [epoch for epoch in epochs if epoch is not None]
    seen = f"`pads` reaches the final accuracy of permutations in {len(got)} of {len(epochs)} seeds"
    if got:
        seen += f", after {mean(got).value:.1f} of {cells['pads'][0]['epochs']} epochs"
    return (claim, seen, "not within one schedule; `pads` with 30 % of the epochs is below")


def _mean_of(key: str, runs: Sequence[Run]) -> float:
    return sum(run[key] for run in runs) / len(runs)
