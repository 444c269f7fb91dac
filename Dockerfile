# shade-load, shade-pack and the Python package, without PyTorch: docs/install.md. Both stages have
# the same Debian, as the wheel needs the C library that it was built with, or a newer one.
FROM rust:1.95-bookworm AS build
WORKDIR /shade
COPY . .
RUN rustup component add clippy rustfmt && make wheel

FROM python:3.13-slim-bookworm
RUN --mount=type=bind,from=build,source=/shade/dist,target=/dist \
    pip install --no-cache-dir --no-index /dist/shade_load-*.whl
CMD ["shade-load", "--help"]
