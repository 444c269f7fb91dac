"""What JAX has of each batch, without a break and resumed, as one file of arrays."""

import sys
import warnings
from typing import Any

# As where torch is not installed: columns are `View`s, not tensors.
sys.modules["torch"] = None

import jax
import jax.numpy as jnp
import numpy as np
from shade_load import Daemon, Loader, Plan

dataset, out, mean, std = sys.argv[1], sys.argv[2], *(tuple(map(float, text.split(","))) for text in sys.argv[3:])
OPTIONS: dict[str, Any] = {"image_size": (12, 9), "dtype": "bfloat16", "normalize": (mean, std), "seed": 3}
EPOCHS, BREAK = 3, (1, 4)


@jax.jit
def losses_of(images: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.abs(images.astype(jnp.float32)).mean(axis=(1, 2, 3)) + labels


def epoch_of(loader: Loader, epoch: int, stop: int | None = None) -> list[dict[str, jax.Array]]:
    """The batches of an epoch, of which every array is kept."""
    loader.set_epoch(epoch)
    kept = []
    for number, batch in enumerate(loader, start=1):
        kept.append({name: jnp.from_dlpack(getattr(batch, name)) for name in ("ids", "labels", "images", "weights")})
        if len(kept) == 1:
            theirs = np.from_dlpack(batch.ids)
            assert not np.shares_memory(theirs, np.asarray(kept[0]["ids"])), "int32 are copies"
        loader.report(batch, losses_of(kept[-1]["images"], kept[-1]["labels"]))
        if number == stop:
            break
    return kept


def joined(batches: list[dict[str, jax.Array]]) -> dict[str, np.ndarray]:
    # NumPy's files have no bfloat16.
    return {
        name: np.concatenate([np.asarray(batch[name].astype(jnp.float32)) for batch in batches]) for name in batches[0]
    }


# Whole epochs are kept on purpose, so that batches are copied.
warnings.simplefilter("ignore", RuntimeWarning)
plan = Plan(sampler="pads")
with Loader(dataset, 8, daemon=Daemon(job="whole"), plan=plan, **OPTIONS) as loader:
    whole = [epoch_of(loader, epoch) for epoch in range(EPOCHS)]
with Loader(dataset, 8, daemon=Daemon(job="begun"), plan=plan, **OPTIONS) as loader:
    begun = [epoch_of(loader, 0), epoch_of(loader, BREAK[0], BREAK[1])]
    state = loader.state_dict()
with Loader(dataset, 8, daemon=Daemon(job="resumed"), plan=plan, **OPTIONS) as loader:
    loader.load_state_dict(state)
    begun[1] += epoch_of(loader, 1)
    begun.append(epoch_of(loader, 2))
np.savez(
    out,
    **{
        f"{name} {epoch} {column}": array
        for name, epochs in (("whole", whole), ("resumed", begun))
        for epoch, batches in enumerate(epochs)
        for column, array in joined(batches).items()
    },
)
