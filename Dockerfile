# Builds the same image as `make image`, with docker or buildah:
#
#     docker build -t sluice \
#       --build-arg VERSION=$(git describe --tags --always --dirty) \
#       --build-arg REVISION=$(git rev-parse HEAD) \
#       --build-arg COMMIT_DATE=$(TZ=UTC0 git log -1 --date=format-local:%FT%TZ --format=%cd) .
#
# tools/image assembles the files. A test compares the instructions after FROM scratch with that
# program. The digest differs, because docker sets its own timestamps. The build stage runs on the
# builder's platform and cross-compiles.
ARG GO_VERSION=1.26.8
FROM --platform=$BUILDPLATFORM docker.io/library/golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY . .
ARG VERSION=dev
ARG REVISION
ARG COMMIT_DATE
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make image-root ROOT=/image PLATFORMS=linux/${TARGETARCH:-$(go env GOARCH)} \
      VERSION="$VERSION" REVISION="$REVISION" COMMIT_DATE="$COMMIT_DATE"

FROM scratch
ARG VERSION=dev
ARG REVISION
ARG COMMIT_DATE
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="A rate-limit service for Envoy that decides in its own memory" \
      org.opencontainers.image.url="https://github.com/sluice-ratelimit/sluice" \
      org.opencontainers.image.source="https://github.com/sluice-ratelimit/sluice" \
      org.opencontainers.image.documentation="https://github.com/sluice-ratelimit/sluice/blob/main/docs/image.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$COMMIT_DATE"
COPY --from=build /image/ /
WORKDIR /
# A numeric ID, because Kubernetes' runAsNonRoot cannot resolve names.
USER 65532:65532
# 8080: /healthcheck and /json; 8081: gRPC; 9090: /metrics.
EXPOSE 8080 8081 9090
# The replacement for envoyproxy/ratelimit; /bin/sluice is the same file.
ENTRYPOINT ["/bin/ratelimit"]
