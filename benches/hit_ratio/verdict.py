"""The report's conclusions: good, bad, what to choose, and what was not measured."""

from benches.hit_ratio import by_capacity, lookahead, published, stall, tables
from benches.hit_ratio.results import Results, Row
from benches.hit_ratio.tables import hits, percent

# Points of compute by which the last row of study 4 may exceed its bound.
BOUND_POINTS = 1.0

IN_SHORT = """\
## In short

Good:

- **Knowing the plan pays, more than any ranking.** PADS rep 1, shuffled, c = 20 % (D/N {dn} %): `lookahead` hits
  {look_20} % where, on the same trace, LRU hits {lru_20}, APP {app_20} and MIN {min_20}. At c = 5 %: {look_5},
  {lru_5}, {app_5} and {min_5}.
- **`--draw-ahead` gives the rest** up to c = 20 %: {ahead_20} % (MIN of those plans: {min_ahead_20}). A larger cache
  would have to see further than one epoch: at 50 % it hits {ahead_50}, MIN {min_ahead_50}. D/N and largest repeat
  stay.
- **`spaced` makes a small cache do**: at c = 5 % `lookahead` hits {spaced_5} %, more than MIN can on the shuffled
  order ({min_5}), and 0.1 epochs of lookahead are enough for {spaced_short_5}. With `--draw-ahead` it is MIN's
  {spaced_ahead_5} %, and the bound is {bound_5}. At 20 % it adds {spaced_gain_20} points only.
- **Stall**, ρ = 0.4, c = 20 %, in per cent of compute: LRU {stall_lru}, APP {stall_app}, `lookahead` {stall_look},
  with `--draw-ahead` {stall_ahead}, which is {above_ahead} above what its reads cost at least.
- **`spaced` with `--pace` is {within} within 1 % of compute of its bound**: {above_paced} points above it at ρ = 0.3,
  0.4 and 0.5. At 0.5 training waits {stall_paced} % of its compute, with `lookahead` alone {look_stall}.

Bad:

- **On permutations no cache hits more than c**, MIN included. `static` has that without any plan; `lookahead` has no
  more, and waits as long: at ρ = 0.4 {stall_permutations} % of compute, `static` {stall_static}.
- **"4.5x LRU" needs its baseline**: LRU on uniform draws. The most at rep 3 is {best_ratio} ± {best_ci} at c =
  {best_cache}, with hits_first and without guards; D/N is then {best_dn} %, {best_same} at rep 1. Over `static` the
  same row is {best_static}x, over LRU in its own replicated training {best_own}x. With the guards on it is
  {best_guarded}, in the daemon's shuffled order {best_shuffled}, both over LRU on uniform draws. The smaller c, the
  higher the ratio: a batch never has a sample twice, which costs LRU more there.
- **It is replication and order, not the policy.** APP without replication hits {app_gain}x LRU on the same trace (c =
  10 %, shuffled). With hits_first LRU in its own training hits {first_lru} % and APP {first_app} %: LRU is better.
- **With the guard on, rep is no friend of APP**: shuffled, rep 3, c = 20 %: `static` hits {static_rep_3} %, LFU
  {lfu_rep_3}, APP {app_rep_3}. The guard plans as many repeats for all of them, and APP evicts samples whose repeats
  are still to come.
- **Hits are not speed.** SHADE as published with rep 2 hits {published_hits} % and `lookahead` {look_20}, about the
  same; at ρ = 0.5 one waits {published_stall} %, the other {look_stall}. Hits first means misses last.
- **Plain `lookahead` waits more than it must**: its reads are bunched at an epoch's beginning. In points of compute
  above its bound, at ρ = 0.3, 0.4 and 0.5: {above_shuffled}. `--pace` alone does not help it, as it moves samples by a
  few batches; `--draw-ahead` does: {above_shuffled_ahead}.
- **`--draw-ahead` does not help `spaced` with `--pace`** where the store is nearly fast enough, although it hits
  more: at ρ = 0.5 training waits {stall_paced_ahead} % instead of {stall_paced}; without `--pace` {stall_spaced_ahead}
  instead of {stall_spaced}. Hits that cross the epoch's boundary all come where the epoch begins, and `--pace` knows
  the residents of an epoch ago. `hits_first` and rep go by them, too, which costs hits.
- **iCACHE's hits are fewer than `static`'s where much is cached**: PADS, c = 75 %: {icache_75} % and {static_75} %.
  It reads less all the same, as other samples stand in for {stood_in} % of the accesses: that is another training.
  DeepIO hits as often as Quiver and waits longer, and its order is not a shuffle (study 5).
"""

WHAT_FOLLOWS = """\
## What follows

**For draws by importance, at equal risk for accuracy** (the draws unchanged, the order a shuffle): `pads`, `lookahead`,
`shuffled`, no `--pace`, no `--draw-ahead`, rep 1. Nothing else among those that leave the draws alone comes near it.
With `uniform`, the default, every good policy hits c, and `lookahead` is no gain. Why that is the default:
`docs/decisions/022-the-default-sampler.md`.

**What trades risk for hits or time**, in the order in which it should be tried on real training:

| option | what it changes for the model | what it gives (c = 20 %, PADS) |
|---|---|---|
| `--draw-ahead` | importance is one epoch older; order, D/N and repeats stay | hits {look_20} to {ahead_20} %; \
stall at ρ = 0.4 {stall_look} to {stall_ahead} % |
| `--order spaced` | repeats come 20 to 60 batches apart, not anywhere | hits {look_20} to {spaced_20} %, at c = 5 % \
{look_5} to {spaced_5}; stall at ρ = 0.4 {stall_look} to {stall_spaced_04} % |
| `--rep` above 1 | fewer different samples: D/N {dn} to {dn_rep_3} % at rep 3 | hits {look_20} to {look_rep_3} % |
| `--order spaced --pace` | the same, and what is cached comes somewhat earlier | stall at ρ = 0.5 {look_stall} to \
{stall_paced} % |
| `--order hits_first` | each epoch begins with what is cached | worse: it is for reproduction |

`--draw-ahead` and `spaced` together wait longer than `--draw-ahead` alone at every ρ here. `spaced` alone gains most
where the cache is small, up to some 10 %.

**Not measured.** Accuracy and convergence of anything. Losses of a real model: the skew of importance, and with it
APP's share, is the model's. A real store: its reads are virtual here, in plan order, as far ahead as the ring reaches
(8 batches) and, with `lookahead`, as the cache has room for where the store is idle. Nor is it in here that an epoch's
first batches could be read before it begins. Other ratios of store to trainer, latencies that vary, several ranks or jobs, peers. Sizes that differ.
LRU on APP's own replicated trace, and epoch 0 drawn by weight as in the published code: `loader/core/tests/hit_ratios.rs`
has both. Longer trainings than 12 epochs. SHADE's adaptive rep, which follows a validation score.
"""


def in_short(results: Results) -> list[str]:
    """Good and bad, with this run's numbers."""
    facts = {**_of_capacity(results), **_of_lookahead(results), **_of_stall(results), **_of_published(results)}
    return tables.prose(IN_SHORT.format(**facts))


def what_follows(results: Results) -> list[str]:
    """What to choose, trade-offs, and open questions."""
    facts = {**_of_capacity(results), **_of_lookahead(results), **_of_stall(results)}
    return tables.prose(WHAT_FOLLOWS.format(**facts))


def _of_capacity(results: Results) -> dict[str, str]:
    def of(policy: str, cache: str, trace: str = by_capacity.PADS) -> Row:
        return results.row(trace, policy, cache)

    ahead, rep_3 = by_capacity.ahead(by_capacity.PADS), "PADS rep 3"
    facts = {"dn": percent(of("lru", "20%")["distinct_share"])}
    for name, policy in (("look", "lookahead"), ("lru", "lru"), ("app", "app"), ("min", "min")):
        facts |= {f"{name}_{share}": hits(of(policy, f"{share}%")) for share in (5, 20)}
    for share in (20, 50):
        facts[f"ahead_{share}"] = hits(of("lookahead", f"{share}%", ahead))
        facts[f"min_ahead_{share}"] = hits(of("min", f"{share}%", ahead))
    for name, policy in (("static", "static"), ("lfu", "lfu"), ("app", "app"), ("look", "lookahead")):
        facts[f"{name}_rep_3"] = hits(of(policy, "20%", rep_3))
    facts["dn_rep_3"] = percent(of("lookahead", "20%", rep_3)["distinct_share"])
    facts |= {f"{policy}_75": hits(of(policy, "75%")) for policy in ("icache", "static")}
    facts["stood_in"] = percent(of("icache", "75%")["exchanged"] / of("icache", "75%")["accesses"])
    return facts


def _of_lookahead(results: Results) -> dict[str, str]:
    def of(cache: str, far: str, order: str = "spaced", draw_ahead: bool = False) -> Row:
        return results.row(lookahead.label(order, draw_ahead, far), "lookahead", cache)

    gain = of("20%", "1")["hit_ratio"] - of("20%", "1", order="shuffled")["hit_ratio"]
    ahead = of("5%", "1", draw_ahead=True)
    return {
        "spaced_5": hits(of("5%", "1")),
        "spaced_20": hits(of("20%", "1")),
        "spaced_short_5": hits(of("5%", "0.1")),
        "spaced_ahead_5": hits(ahead),
        "bound_5": percent(lookahead.bound(ahead)),
        "spaced_gain_20": percent(gain),
    }


def _of_stall(results: Results) -> dict[str, str]:
    rows = {ratio: stall.of_variants(results, ratio) for ratio in stall.RATIOS}

    def of(variant: str, ratio: str = "0.4") -> str:
        return percent(rows[ratio][variant]["stall_share"])

    def above(variant: str) -> list[float]:
        return [100 * stall.above(of_ratio[variant], ratio) for ratio, of_ratio in rows.items()]

    def told(variant: str) -> str:
        return ", ".join(f"{points:.1f}" for points in above(variant))

    paced, paced_ahead = stall.PACED, stall.ahead(stall.PACED)
    return {
        "stall_lru": of("lru"),
        "stall_app": of("app"),
        "stall_look": of("lookahead"),
        "stall_ahead": of(stall.ahead("lookahead")),
        "above_ahead": percent(stall.above(rows["0.4"][stall.ahead("lookahead")], "0.4")),
        "stall_static": of(stall.STATIC),
        "stall_permutations": of(stall.LOOKAHEAD),
        "published_hits": hits(rows["0.5"]["SHADE as published, rep 2"]),
        "published_stall": of("SHADE as published, rep 2", "0.5"),
        "look_stall": of("lookahead", "0.5"),
        "stall_spaced": of("lookahead, spaced", "0.5"),
        "stall_spaced_04": of("lookahead, spaced"),
        "stall_spaced_ahead": of(stall.ahead("lookahead, spaced"), "0.5"),
        "within": "always" if max(above(paced)) <= BOUND_POINTS else "not always",
        "above_paced": told(paced),
        "stall_paced": of(paced, "0.5"),
        "stall_paced_ahead": of(paced_ahead, "0.5"),
        "above_shuffled": told("lookahead"),
        "above_shuffled_ahead": told(stall.ahead("lookahead")),
    }


def _of_published(results: Results) -> dict[str, str]:
    cache, row, ratio, ci95 = published.best(results, "unguarded", "3")

    def of(order: str, rep: str, policy: str = "app", at: str = cache) -> Row:
        return results.row(published.label("unguarded", order, rep), policy, at)

    baselines = published.Baselines(results, cache)
    return {
        "best_ratio": f"{ratio:.2f}",
        "best_ci": f"{ci95:.2f}",
        "best_cache": cache,
        "best_dn": percent(row["distinct_share"]),
        "best_same": percent(of("hits_first", "1")["distinct_share"]),
        "best_guarded": f"{published.best(results, 'guarded', '3')[2]:.2f}",
        "best_static": f"{published.ratio(row, baselines.static):.2f}",
        "best_own": f"{published.ratio(row, of('hits_first', '3', 'lru')):.2f}",
        "best_shuffled": f"{published.ratio(of('shuffled', '3'), baselines.uniform_draws):.2f}",
        "app_gain": f"{published.ratio(of('shuffled', '1', at='10%'), of('shuffled', '1', 'lru', '10%')):.2f}",
        "first_lru": hits(of("hits_first", "1", "lru", "10%")),
        "first_app": hits(of("hits_first", "1", at="10%")),
    }
