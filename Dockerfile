# The image of ostler contains only the static binary:
#
#     docker build -t ostler:0.1.0 .
#
# See deploy/README.md for clusters, registries, and binaries that were built elsewhere.
ARG RUST_VERSION=1.95

FROM docker.io/library/rust:${RUST_VERSION}-bookworm AS build
WORKDIR /src
COPY . .
# Linked statically, since the image has no C library.
RUN cargo rustc --locked --profile dist --package ostler --bin ostler -- -C target-feature=+crt-static \
 && install -D target/dist/ostler /out/ostler

FROM scratch
LABEL org.opencontainers.image.title="ostler" \
      org.opencontainers.image.description="Kubernetes operator and inference gateway for vLLM, SGLang and other LLM engines" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/ostler /ostler
# The user of the Deployments in deploy/.
USER 65532:65532
ENTRYPOINT ["/ostler"]
