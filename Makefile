# Everything that is built or installed here goes to .build/, bin/ and
# dist/.
# `make` or `make help` lists the targets.

ENVOY_VERSION := 1.40.0
VALKEY_VERSION := 9.1.2.post2
CHROMIUM_VERSION := 153.0.0
PRE_COMMIT_VERSION := 4.7.0
FUZZTIME      ?= 10s
# Flags of make bench; -h lists them.
BENCHFLAGS    ?=
SOAKTIME      ?= 3m
# Flags of go test for make torture, such as -run, and of the tests, such as -soak.
TORTUREFLAGS  ?=
TORTUREARGS   ?=
# NAMESPACES=1: fail where the drop-in test cannot run, rather than do without it.
NAMESPACES    ?=
# KEEP=1: make demo goes on until Ctrl-C.
KEEP          ?=
# FRESH=1: make test runs tests that have passed with the same inputs too, as CI and make test-all do.
FRESH         ?= $(CI)
# What make image builds for, where it puts what it builds, and a repository to push
# it to.
PLATFORMS     ?= linux/amd64 linux/arm64
DIST          ?= dist
PUSH          ?=

BUILD   := $(CURDIR)/.build
PRE_COMMIT := $(BUILD)/pre-commit-$(PRE_COMMIT_VERSION)
MODULES := . $(patsubst %/go.mod,%,$(wildcard */go.mod))
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
# The commit and its date in UTC, as of the clone; empty without one.
REVISION    ?= $(shell git rev-parse HEAD 2>/dev/null)
COMMIT_DATE ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# FIPS=1: with the FIPS 140-3 validated module of Go's cryptography, and no other; the version says so.
FIPS        ?=
ifneq ($(FIPS),)
override VERSION := $(patsubst %-fips,%,$(VERSION))-fips
export GOFIPS140 := certified
endif
STAMPS      = FIPS='$(FIPS)' VERSION='$(VERSION)' REVISION='$(REVISION)' COMMIT_DATE='$(COMMIT_DATE)'

# Not stamped by go build, which fails where git distrusts the directory's owner;
# -X does it.
GOBUILD = CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags \
	'-s -w -X main.release=$(VERSION) -X main.revision=$(REVISION) -X main.commitDate=$(COMMIT_DATE)'

# What make release builds archives for.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

PROGRAMS = $(foreach platform,$(PLATFORMS),'$(abspath $(DIST))/sluice-$(subst /,-,$(platform))')
IMAGE    = go -C tools run -buildvcs=false ./image \
	-version '$(VERSION)' -revision '$(REVISION)' -commit-date '$(COMMIT_DATE)'

# Where the home directory cannot be written, as in some containers, the caches of
# Go, pip and the linters go below .build.
ifneq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo yes),yes)
export HOME := $(BUILD)/home
endif

# The Envoy that tests and the demo run: yours if ENVOY_BIN is set.
ifdef ENVOY_BIN
ENVOY := $(ENVOY_BIN)
else
ENVOY := $(BUILD)/envoy-$(ENVOY_VERSION)
endif
export ENVOY_BIN := $(ENVOY)

# The server of the shared store's tests: yours if VALKEY_BIN is set. STORE_BINS are others that
# they run with too, such as Redis 6.2 and 7, separated by colons.
ifdef VALKEY_BIN
VALKEY := $(VALKEY_BIN)
else
VALKEY := $(BUILD)/valkey-$(VALKEY_VERSION)
endif
export VALKEY_BIN := $(VALKEY)

# The browser of conformance/page: yours if CHROMIUM_BIN is set.
ifdef CHROMIUM_BIN
CHROMIUM :=
else
CHROMIUM := $(BUILD)/chromium-$(CHROMIUM_VERSION)
endif

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@echo 'sluice: a rate-limit service for Envoy'
	@echo
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target what; do printf '%-19s  %s\n' "$$target" "$$what"; done
	@echo
	@echo 'Needs Go 1.26. The tests and the demo also need Python 3 with venv, which'
	@echo 'fetches Envoy and grpcio once into .build/, or an Envoy of yours in ENVOY_BIN.'

.PHONY: demo
demo: $(ENVOY) | need-go ## watch sluice limit requests behind a real Envoy (KEEP=1: then try it yourself)
	@go build -buildvcs=false -o $(BUILD)/demo ./e2e/demo
	@$(BUILD)/demo $(if $(KEEP),-keep)

.PHONY: build
build: | need-go ## bin/sluice
	$(GOBUILD) -o bin/sluice ./cmd/sluice

.PHONY: image
image: programs ## the container image in dist/, without docker (PUSH=ghcr.io/you/sluice: then push it)
	@$(IMAGE) -out '$(abspath $(DIST))' $(if $(PUSH),-push '$(PUSH)') $(PROGRAMS)

# For the Dockerfile: the same files in the directory ROOT.
.PHONY: image-root
image-root: programs
	@$(IMAGE) -root '$(abspath $(ROOT))' $(PROGRAMS)

# Archives beside the image: of all platforms, though there are images for Linux only.
.PHONY: release
release: image ## what a release is made of in dist/: archives, chart, image, bills of materials, checksums (FIPS=1: with Go's validated cryptography)
	@$(MAKE) -s programs PLATFORMS='$(filter-out $(PLATFORMS),$(RELEASE_PLATFORMS))'
	@$(IMAGE) -out '$(abspath $(DIST))' -release \
		$(foreach platform,$(RELEASE_PLATFORMS),'$(abspath $(DIST))/sluice-$(subst /,-,$(platform))')

.PHONY: chart
chart: | need-go ## the Helm chart in dist/
	@$(IMAGE) -out '$(abspath $(DIST))' -chart

.PHONY: programs
programs: | need-go
	@mkdir -p '$(DIST)'
	@set -e; for platform in $(PLATFORMS); do \
		echo "building for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GOBUILD) \
			-o "$(DIST)/sluice-$${platform%/*}-$${platform#*/}" ./cmd/sluice; \
	done

# Tests and linters compile as sluice is built, so each package is compiled once.
AS_BUILT = export CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath"

# The tests of limiter that stop goroutines where another may do most harm, the decisions by a clock
# that goes wrong, of which there are many more here, and all models: memory that is used again is
# garbage here before each use.
HOOKED := ^TestHistories|OfOneMoment|IsNotAbsent|IsNotLost|NoLogLocked|ConcurrentReclaim|ClockFaults|^Fuzz
HOOKED := $(HOOKED)|^Test(Adopt|BatchesAreUsedAgain|Conclude|LeasesOfManyTenants|Model|Oracles|PenaltyOracle)

# Bounds tests that hang. Where 30 processes wait for each core, the longest package takes half an hour.
BOUND := -timeout 1h

# Packages whose tests start no process: where nothing has changed, their results are in Go's test cache.
CACHED := descriptors docs envoyconfig internal limiter quota server/transport/h2 simulate

# Tests that take long and have few inputs besides sluice itself, with those inputs. They run if one of
# them has changed since the tests last passed.
ONCE := kustomize bench e2e/ci e2e/dropin $(patsubst %/,%,$(sort $(dir $(wildcard conformance/*/*_test.go tools/*/*_test.go))))
once-kustomize: INPUTS := charts dashboards docs/kubernetes.md examples tools/image
once-e2e/ci: INPUTS := .pre-commit-hooks.yaml action.yml docs/ci.md envoy.yaml examples/quickstart
once-e2e/dropin: INPUTS := tools/image tools/go.mod tools/go.sum LICENSE
once-tools/image: INPUTS := LICENSE Makefile Dockerfile .dockerignore README.md CHANGELOG.md docs/image.md charts examples/quickstart

# The tests of each module, two stages at a time: many tests wait for other processes, not for a
# processor. The largest comes first.
STAGES := test-in-. test-cached test-hooked test-in-dashboards $(ONCE:%=once-%)
# By a variable: make -n would run a recipe that names MAKE itself.
IN_STAGES = $(MAKE) -s -j2 $(STAGES)

# The tortures run last and alone: other tests beside them would make their calls late.
.PHONY: test
test: $(ENVOY) $(VALKEY) | need-go $(BUILD)/clients/python $(CHROMIUM) $(PRE_COMMIT) ## everything a change can break, with a real Envoy (9 minutes on 2 cores, more the first time)
	@$(AS_BUILT); \
	notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; \
	export SLUICE_NOT_RUN="$$notrun" SLUICE_NAMESPACES=$(if $(NAMESPACES),required); \
	$(IN_STAGES) || exit 1; \
	$(TORTURE) || exit 1; \
	while read -r why; do echo "make test: passed WITHOUT $$why"; done <"$$notrun"

.PHONY: $(STAGES)
SHUFFLED := -count=1 -shuffle=on
APART = $(subst $(eval ) ,|,$(strip $(CACHED) $(filter e2e/%,$(ONCE))))
test-in-.:
	@go test $(SHUFFLED) -p 3 $(BOUND) $$(go list ./... | grep -vE '/sluice/($(APART))(/|$$)')
test-cached:
	@go test $(if $(FRESH),$(SHUFFLED)) -p 3 $(BOUND) $(CACHED:%=./%/...)
test-hooked:
	@SLUICE_CLOCK_STEPS=250000 go test $(if $(FRESH),-count=1) $(BOUND) -tags limiterhooks -run '$(HOOKED)' ./limiter
test-in-dashboards:
	@cd dashboards && go test $(SHUFFLED) -p 3 $(BOUND) ./...
$(ONCE:%=once-%): once-%:
	@FRESH='$(FRESH)' tools/test-once.sh $* $(INPUTS)

# The short tier, whose tests wait too. The long one runs one test at a time.
TORTURE := go test -count=1 -tags torture $(BOUND) -parallel 4 ./e2e/torture

# Tortures that measure memory or need all the machine's speed are left out.
RACED := ^Test(Certificates|ConfigFile|ConnectionErrorsWithAStore|DrainOnTheWire|Handshakes|HostileHTTP|Logs|OddMessages|Reloads|Starves|Steady|Volume)$$

# Long tests of one goroutine, in which the race detector has nothing to find and takes ten times as
# long, and scripts of commands that end by themselves, or whose servers answer little. make test runs
# them.
ALONE := ^Test(ADamagedSnapshotIsNotTaken|AbsurdTimes|Adopt|Booleans|BytesPerLiveCounter|CalendarWindowsAreThoseOfAnother|CountersMoveWhileTheyAreSaved|ExampleGreedy|FloodsEvictNoMore|HeaderBlocksEnd|LiveOfALargeTable|Model|Oracles|PenaltyOracle|RatelimitNamesMeanOneCounter|RecommendedNumbersAreTheSmallest|ReservedMemory|SameBlocks|SimulatePage|SizeChangesNothing|TheServiceDecidesTheSame)$$|^TestScripts$$/^(arguments|call_flags|check.*|commands|envoy_.*|environment.*|explain|flags|simulate)$$

.PHONY: test-race
test-race: $(VALKEY) | need-go ## concurrent code under the race detector, and a raced sluice under load (5 minutes; needs a C compiler)
	@[ "$$(go env CGO_ENABLED)" = 1 ] || { \
		echo 'make test-race: the race detector needs a C compiler and CGO_ENABLED=1.' >&2; \
		echo 'Install one (Debian, Ubuntu: apt-get install gcc libc6-dev).' >&2; exit 1; }
	@$(AS_BUILT); \
	CGO_ENABLED=1 go test -race -short -count=1 -p 3 -shuffle=on $(BOUND) -tags limiterhooks -skip '$(ALONE)' \
		$$(go list ./... | grep -v '/sluice/\(docs\|e2e\|quota$$\)') || exit 1; \
	$(TORTURE) -run '$(RACED)' -args -raced

.PHONY: test-all
test-all: $(ENVOY) $(VALKEY) | clients ## before a release: the two above and all that takes long (hours)
	$(MAKE) lint
	$(MAKE) reproducible
	$(MAKE) test-386
	$(MAKE) test-cpus
	$(MAKE) test-fips
	$(MAKE) test-race
	@$(AS_BUILT) CGO_ENABLED=1; SLUICE_LONG=1 go test -race -count=1 -timeout 25m ./e2e/proxy ./e2e/asked
	SLUICE_LONG=1 go test -count=1 -timeout 25m -run 'TestAllOrders|TestRandomWorlds|TestUsed' ./quota
	SLUICE_LONG=1 go test -count=1 -timeout 25m ./e2e/leases
	SLUICE_LONG=1 go test -count=1 -timeout 25m -run 'TestStallMatrix' ./store
	$(MAKE) test-stores
	$(MAKE) test-clients
	$(MAKE) test-apiserver
	$(MAKE) fuzz FUZZTIME=2m
	$(MAKE) soak SOAKTIME=10m
	$(MAKE) torture
	$(MAKE) flight
	$(MAKE) test NAMESPACES=1 FRESH=1

.PHONY: test-stores
test-stores: $(ENVOY) | need-go ## the shared store's tests on Redis 6.2, 7 and 8, and on the servers in STORE_BINS (2 minutes each)
	@$(AS_BUILT); tools/test-stores.sh '$(BUILD)'

# A client of the same module cannot offer TLS 1.1, so nothing would reject it.
.PHONY: test-fips
test-fips: $(ENVOY) $(VALKEY) | need-go ## TLS of all listeners and clients, and the version, with Go's validated cryptography alone (2 minutes)
	@$(AS_BUILT); export GOFIPS140=certified; \
	go test -count=1 -run 'TLS|Certificate|Allow|Version' -skip '//with_TLS_1.1$$' \
		./server ./server/access ./store ./cmd/sluice ./e2e/proxy ./e2e/xds

.PHONY: test-cpus
test-cpus: | need-go ## concurrent code under the race detector, on one core and on two
	@$(AS_BUILT) CGO_ENABLED=1; go test -race -short -count=1 -cpu 1,2 ./limiter/... ./server/...

.PHONY: test-386
test-386: | need-go ## the code that decides and the built-in transport, as a 32-bit program: 64-bit words must be aligned, and int is short
	@case "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" in linux/amd64|linux/386) ;; *) \
		echo 'make test-386: needs Linux on amd64, which runs programs for 386.' >&2; exit 1;; \
	esac
	GOARCH=386 go vet ./...
	GOARCH=386 CGO_ENABLED=0 go test -count=1 -short ./limiter/... ./descriptors/... ./telemetry/... ./server/transport/h2/...

.PHONY: reproducible
reproducible: | need-go ## build a release from two directories, and fail unless both are the same bytes
	@tools/reproducible.sh $(MAKE) $(STAMPS)

.PHONY: lint
lint: $(BUILD)/golangci-lint | need-go ## linters, go vet among them, formatting and tidiness of every module, subjects of commits
	@tools/subjects.sh
	@$(AS_BUILT); \
	for module in $(MODULES); do \
		echo "lint: $$module"; \
		(cd $$module && go mod tidy -diff) || exit 1; \
		[ -n "$$(cd $$module && go list ./... 2>/dev/null)" ] || continue; \
		(cd $$module && $(BUILD)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || exit 1; \
	done
	@$(BUILD)/golangci-lint fmt --config $(CURDIR)/.golangci.yml --diff

.PHONY: format
format: $(BUILD)/golangci-lint ## format every Go file
	@$(BUILD)/golangci-lint fmt --config $(CURDIR)/.golangci.yml

.PHONY: fuzz
fuzz: | need-go ## run each fuzz target for FUZZTIME (10s); FUZZLEDGER=docs/fuzzing.md notes what it cost and found
	@tools/fuzz.sh $(FUZZTIME) $(FUZZLEDGER)

.PHONY: bench
bench: $(ENVOY) $(VALKEY) | need-go ## compare with other services and libraries, an hour (BENCHFLAGS='-rounds 1 -duration 1s' for a look)
	@cd bench && go run -buildvcs=false ./suite $(BENCHFLAGS)

.PHONY: soak
soak: | need-go ## hit the limiters for SOAKTIME (3m) with all that could break a bound
	@SLUICE_HISTORIES=5000 go test -count=1 -tags limiterhooks -run '^TestHistories' ./limiter
	@go test -count=1 -v -timeout 0 ./limiter/soak -run '^TestSoak$$' -args -for $(SOAKTIME)

.PHONY: torture
torture: $(ENVOY) | need-go ## kill, stop, starve and attack the binary under load, half an hour (TORTUREFLAGS='-run TestName' for one test)
	@go test -count=1 -tags torture -timeout 8h -v $(TORTUREFLAGS) ./e2e/torture -args -long $(TORTUREARGS)

.PHONY: flight
flight: $(ENVOY) | need-go ## 64 clients of 16 places for a minute, some of whom leave, behind a real Envoy (3 minutes)
	@SLUICE_LONG=1 go test -count=1 -v -timeout 15m ./e2e/flight

.PHONY: valkey
valkey: $(VALKEY) ## fetch Valkey into .build/ (test does so itself)
	@echo '$(VALKEY)'

.PHONY: chromium
chromium: $(CHROMIUM) ## fetch a Chromium into .build/ (test does so itself)
	@echo '$(or $(CHROMIUM_BIN),$(CHROMIUM)/chromium)'

.PHONY: envoy
envoy: $(ENVOY) ## fetch Envoy into .build/ (test and demo do so themselves)
	@echo '$(ENVOY)'

# The clients of e2e/clients beside grpc-go. Without one, its tests say that they were not run.
CLIENTS := python node java tonic
.PHONY: clients
clients: $(CLIENTS:%=$(BUILD)/clients/%) ## fetch clients over gRPC for other languages into .build/ (test-clients does so itself)

$(BUILD)/clients/python: e2e/clients/testdata/python/requirements.txt
$(BUILD)/clients/node: e2e/clients/testdata/node/package-lock.json
$(BUILD)/clients/java: e2e/clients/testdata/java/pom.xml e2e/clients/testdata/java/Calls.java
$(BUILD)/clients/tonic: e2e/clients/testdata/tonic/Cargo.lock e2e/clients/testdata/tonic/src/main.rs
$(BUILD)/clients/%:
	@tools/client.sh $* '$@' || echo 'make: without the client $*, its calls are not tested' >&2

.PHONY: test-clients
test-clients: | need-go clients ## calls of clients in all languages, 10,000 at once among them (10 minutes)
	@notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; export SLUICE_NOT_RUN="$$notrun"; \
	SLUICE_LONG=1 go test -count=1 -timeout 60m ./e2e/clients || exit 1; \
	while read -r why; do echo "make test-clients: passed WITHOUT $$why"; done <"$$notrun"

# It is a module below conformance, so that lint and test do not build Kubernetes.
$(BUILD)/apiserver: $(wildcard conformance/apiserver/*) | need-go
	@echo "apiserver: building Kubernetes' API server and etcd (once; 6 minutes on 2 cores, 120 MB)"
	@cd conformance/apiserver && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o $@ . || { \
		echo 'make test-apiserver: NOT JUDGED: the API server could not be built from its Go modules' >&2; exit 1; }

.PHONY: test-apiserver
test-apiserver: $(BUILD)/apiserver | need-go ## every manifest, the chart and the examples, applied to Kubernetes' own API server (2 minutes)
	@$(AS_BUILT); notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; export SLUICE_NOT_RUN="$$notrun"; \
	(cd kustomize && SLUICE_APISERVER=$(BUILD)/apiserver go test -count=1 -timeout 15m -tags apiserver -run '^TestAPIServer$$' .) || exit 1; \
	while read -r why; do echo "make test-apiserver: passed WITHOUT $$why"; done <"$$notrun"

.PHONY: proto
proto: | need-go ## write the generated code of xds/ratelimitv3 and conformance/connect anew
	@tools/proto.sh $(BUILD)

.PHONY: clean
clean: ## remove bin/, dist/ and .build/
	@# Go's module cache, if it is here, is read-only.
	@if [ -d .build ]; then chmod -R u+w .build; fi
	rm -rf bin dist .build

.PHONY: need-go
need-go:
	@command -v go >/dev/null || { \
		echo 'Go is not installed: https://go.dev/doc/install (1.26 or later).' >&2; exit 1; }
	@go version >/dev/null

$(BUILD)/envoy-$(ENVOY_VERSION):
	@tools/envoy.sh $(ENVOY_VERSION) $@

$(BUILD)/valkey-$(VALKEY_VERSION):
	@tools/valkey.sh $(VALKEY_VERSION) $@

# Without one the page is not looked at, and its tests say so; where CI is set they fail.
$(BUILD)/chromium-$(CHROMIUM_VERSION):
	@tools/chromium.sh $(CHROMIUM_VERSION) $@ || echo 'make: without a Chromium from there; an installed one will do' >&2

$(PRE_COMMIT):
	@tools/pre-commit.sh $(PRE_COMMIT_VERSION) $@ || echo 'make: without pre-commit, the hooks are not tested' >&2

$(BUILD)/golangci-lint: tools/go.mod tools/go.sum | need-go
	@echo 'building the linters (once; some minutes)'
	@cd tools && go build -buildvcs=false -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
