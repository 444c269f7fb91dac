"""One rank: `mpirun -n N python -m benches.dlio.rank [--touch] OPTION...`, DLIO's options as its own program has them."""

import sys

from benches.dlio import repairs


def main() -> None:
    """Applies the repairs, then is DLIO."""
    touches = "--touch" in sys.argv
    if touches:
        sys.argv.remove("--touch")
    repairs.apply(sys.argv)
    if touches:
        _touch_all_batches()
    from dlio_benchmark.main import main as dlio

    dlio()


def _touch_all_batches() -> None:
    from dlio_benchmark.data_loader.data_loader_factory import DataLoaderFactory

    from benches.dlio.loaders import touched

    bare = DataLoaderFactory.get_loader

    def touching(*arguments: object, **options: object) -> object:
        loader = bare(*arguments, **options)
        following = loader.next
        loader.next = lambda: touched(following())
        return loader

    DataLoaderFactory.get_loader = staticmethod(touching)


if __name__ == "__main__":
    main()
