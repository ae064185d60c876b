package e2e_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-ratelimit/sluice"

// wirePackages implement protobuf and gRPC.
var wirePackages = []string{"google.golang.org/protobuf", "google.golang.org/grpc", "github.com/envoyproxy/go-control-plane"}

// importRules contains the imports that DESIGN.md allows for each directory, relative to the
// module's root. A directory with a row is not part of the directories above it. A directory
// without a row may import anything except cmd, e2e, examples and wirePackages.
var importRules = []struct {
	folder string
	own    []string
	others []string // third-party packages; nil: all
	wire   bool
}{
	{folder: "limiter", own: []string{"limiter"}, others: []string{}},
	{folder: "descriptors/tables", own: []string{"limiter", "descriptors/rules", "internal/jsonview"}, others: []string{}},
	{folder: "descriptors", own: []string{"limiter", "descriptors/rules", "rlqs/division", "descriptors/tables"}, others: []string{"github.com/gaissmai/bart"}},
	{folder: "descriptors/rules", own: []string{"limiter"}, others: []string{}},
	{folder: "descriptors/envoygateway", own: []string{"descriptors/rules"}, others: []string{"go.yaml.in/yaml/v4"}},
	{folder: "descriptors/rulefile", own: []string{"limiter", "descriptors/rules", "descriptors/envoygateway"}, others: []string{"go.yaml.in/yaml/v4"}},
	{
		folder: "descriptors/source", own: []string{"descriptors", "descriptors/rules", "descriptors/envoygateway", "descriptors/rulefile", "descriptors/tables"},
		others: []string{"github.com/fsnotify/fsnotify"},
	},
	{folder: "descriptors/volumetest", own: nil, others: []string{}},
	{folder: "telemetry", own: nil},
	{folder: "server/transport/h2", own: nil, others: []string{}},
	{folder: "internal/jsonview", own: nil, others: []string{}},
	{folder: "internal/heap", own: nil, others: []string{}},
	{folder: "internal/file", own: nil, others: []string{}},
	{folder: "rlqs/division", own: []string{"internal/heap"}, others: []string{}},
	{folder: "rlqs/filter", own: []string{"rlqs/division"}, others: []string{}},
	{folder: "server", own: []string{
		"telemetry", "server/access", "server/admin", "server/answer", "rlqs", "server/transport", "server/transport/builtin", "server/transport/grpcgo", "server/web",
	}, wire: true},
	{folder: "server/access", own: []string{"telemetry"}, wire: true},
	{folder: "server/answer", own: []string{"limiter", "descriptors", "descriptors/rules", "telemetry", "server/access", "server/leases", "server/live", "descriptors/tables"}, wire: true},
	{folder: "server/leases", own: []string{"limiter", "descriptors", "internal/heap", "telemetry"}, others: []string{"github.com/prometheus/client_golang"}},
	{folder: "server/admin", own: []string{
		"limiter", "descriptors", "descriptors/rules", "descriptors/tables", "telemetry", "server/access", "server/answer", "server/live", "rlqs", "server/web",
	}},
	{folder: "server/client", own: []string{"descriptors", "server/access", "server/admin", "server/live", "server/web"}, wire: true},
	{
		folder: "server/ruleset",
		own:    []string{"limiter", "descriptors", "descriptors/rules", "descriptors/source", "descriptors/tables", "telemetry", "server/access", "server/answer"},
		others: []string{"go.uber.org/zap", "golang.org/x/sync"},
	},
	{
		folder: "server/daemon",
		own: []string{
			"descriptors", "descriptors/tables", "internal/file", "limiter", "server", "server/answer", "server/ruleset", "store", "store/redis", "telemetry",
		},
		others: []string{"go.uber.org/zap", "golang.org/x/sync"},
	},
	{folder: "server/web", own: nil, others: []string{}},
	{folder: "server/live", own: []string{"limiter", "descriptors", "descriptors/rules", "telemetry"}, others: []string{}},
	{folder: "rlqs", own: []string{"limiter", "descriptors", "internal/heap", "rlqs/division", "telemetry", "server/access"}, wire: true},
	{folder: "server/transport", own: []string{"telemetry", "server/answer", "rlqs"}, wire: true},
	{folder: "server/transport/builtin", own: []string{"server/transport/h2", "telemetry", "server/access", "server/answer", "server/leases", "rlqs", "server/transport"}, wire: true},
	{folder: "server/transport/grpcgo", own: []string{"telemetry", "server/access", "server/answer", "rlqs", "server/transport"}, wire: true},
	{folder: "server/servertest", own: []string{"internal", "limiter", "descriptors", "descriptors/rulefile", "telemetry", "server/answer", "server/transport"}, wire: true},
	{folder: "server/testcert", own: []string{"descriptors/volumetest"}, others: []string{}},
	{folder: "store", own: []string{"internal/heap", "limiter", "store/redis", "store/script", "store/sentinel"}, others: []string{}},
	{folder: "store/script", own: []string{"limiter", "store/redis", "store/resp"}, others: []string{}},
	{folder: "store/sentinel", own: []string{"store/redis", "store/resp"}, others: []string{}},
	{folder: "store/redis", own: []string{"store/resp"}, others: []string{}},
	{folder: "store/resp", own: nil, others: []string{}},
	{folder: "store/storetest", own: []string{"internal"}, others: []string{}},
	{folder: "store/storetest/luahost", own: []string{"store/redis"}, others: []string{"github.com/yuin/gopher-lua"}},
	{folder: "xds", own: []string{"descriptors", "descriptors/rules", "descriptors/source"}, wire: true},
	{folder: "envoyconfig", own: []string{"descriptors", "descriptors/rules", "envoyconfig/api", "envoyconfig/tree"}, others: []string{}},
	{folder: "envoyconfig/api", own: []string{"descriptors/rules", "envoyconfig/tree"}, others: []string{}},
	{folder: "envoyconfig/tree", own: []string{"descriptors/rules", "internal/jsonview"}, others: []string{"go.yaml.in/yaml/v4"}},
	{folder: "simulate", own: []string{"limiter", "descriptors", "descriptors/rules", "envoyconfig", "internal/heap", "internal/jsonview", "simulate/accesslog", "simulate/report", "store", "store/script"}, others: []string{}},
	{folder: "simulate/accesslog", own: []string{"descriptors/rules", "internal/jsonview"}, others: []string{}},
	{folder: "simulate/report", own: []string{"simulate/accesslog"}, others: []string{}},
	{folder: "cmd", own: []string{
		"limiter", "descriptors", "descriptors/rules", "descriptors/rulefile", "descriptors/source", "telemetry", "server", "server/access", "server/admin", "server/answer", "server/client", "server/daemon", "server/live", "server/ruleset", "store", "store/redis", "descriptors/tables", "internal/file", "xds", "envoyconfig", "simulate", "simulate/accesslog",
	}},
	// e2e runs the binary and does not depend on its implementation.
	{folder: "e2e", own: []string{"internal", "store/storetest"}},
}

// TestImportRules checks direct imports, except those of tests.
func TestImportRules(t *testing.T) {
	for _, p := range listPackages(t, "") {
		for _, imported := range p.Imports {
			if why := importError(ruleFolder(p.ImportPath), imported); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
	}
}

// TestRequestPathLinksNoParser checks that the packages on the path of a request do not link a
// parser of files, not even indirectly.
func TestRequestPathLinksNoParser(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/server").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, module+"/descriptors") {
		t.Fatalf("server links %d packages without descriptors; the list is wrong", len(linked))
	}
	for _, p := range linked {
		if underAny(p, []string{"go.yaml.in/yaml", "github.com/fsnotify/fsnotify", module + "/descriptors/rulefile", module + "/descriptors/source"}) {
			t.Errorf("server links %s", p)
		}
	}
}

func TestImportError(t *testing.T) {
	for _, tt := range []struct {
		from, imported string
		want           bool
	}{
		{"limiter", "sync/atomic", false},
		{"limiter", "golang.org/x/sys/cpu", true},
		{"limiter", module + "/descriptors", true},
		{"descriptors", module + "/limiter", false},
		{"descriptors", module + "/descriptors/rules", false},
		{"descriptors", module + "/descriptors/rulefile", true},
		{"descriptors", module + "/descriptors/source", true},
		{"descriptors", "go.yaml.in/yaml/v4", true},
		{"descriptors", "github.com/fsnotify/fsnotify", true},
		{"descriptors/rules", module + "/descriptors", true},
		{"descriptors/rules", "go.yaml.in/yaml/v4", true},
		{"descriptors/rulefile", "go.yaml.in/yaml/v4", false},
		{"descriptors/rulefile", module + "/descriptors", true},
		{"descriptors/source", module + "/descriptors/rulefile", false},
		{"descriptors/source", "github.com/fsnotify/fsnotify", false},
		{"descriptors/source", "go.yaml.in/yaml/v4", true},
		{"descriptors", "go.uber.org/zap", true},
		{"descriptors", "google.golang.org/protobuf/proto", true},
		{"telemetry", "go.uber.org/zap/zapcore", false},
		{"telemetry", module + "/limiter", true},
		{"server/transport/h2", "golang.org/x/net/http2/hpack", true},
		{"server/transport/h2", module + "/limiter", true},
		{"server/transport/h2", "slices", false},
		{"rlqs/division", module + "/limiter", true},
		{"server", module + "/server/transport/h2", true},
		{"server", module + "/server/transport/builtin", false},
		{"server/access", module + "/server/answer", true},
		{"server/answer", module + "/server/access", false},
		{"server/answer", module + "/server/transport", true},
		{"server/answer", module + "/server/admin", true},
		{"server/admin", module + "/server", true},
		{"server/admin", "google.golang.org/grpc", true},
		{"server/answer", module + "/server/leases", false},
		{"server/leases", module + "/server/answer", true},
		{"server/ruleset", module + "/server/answer", false},
		{"server/ruleset", module + "/descriptors/rulefile", true},
		{"server/answer", module + "/server/ruleset", true},
		{"server/leases", "google.golang.org/grpc/codes", true},
		{"server/transport", module + "/server/transport/builtin", true},
		{"server/transport/builtin", module + "/server/transport/h2", false},
		{"server/transport/builtin", module + "/server/transport/grpcgo", true},
		{"server/transport/grpcgo", module + "/server/transport/builtin", true},
		{"server", "google.golang.org/grpc/codes", false},
		{"server", module + "/telemetry", false},
		{"server", module + "/xds", true},
		{"xds", module + "/xds/ratelimitv3", false},
		{"xds", module + "/descriptors/source", false},
		{"xds", module + "/descriptors/rulefile", true},
		{"server", module + "/descriptors/source", true},
		{"xds", module + "/server", true},
		{"envoyconfig", module + "/descriptors/rules", false},
		{"envoyconfig", module + "/limiter", true},
		{"envoyconfig", "google.golang.org/protobuf/proto", true},
		{"simulate", module + "/simulate/accesslog", false},
		{"simulate/accesslog", module + "/limiter", true},
		{"simulate/accesslog", module + "/simulate", true},
		{"internal/jsonview", module + "/simulate/accesslog", true},
		{"simulate/report", module + "/descriptors", true},
		{"cmd", module + "/xds/adstest", true},
		{"e2e", module + "/xds/adstest", true},
		{"cmd", module + "/server", false},
		{"cmd", "google.golang.org/grpc", true},
		{"cmd", module + "/e2e/envoy", true},
		{"e2e", module + "/e2e/envoy", false},
		{"e2e", "google.golang.org/grpc", true},
		{"new", module + "/cmd/sluice", true},
		{"new", "go.uber.org/zap", false},
	} {
		if got := importError(tt.from, tt.imported); (got != "") != tt.want {
			t.Errorf("importError(%q, %q) = %q, want a reason: %v", tt.from, tt.imported, got, tt.want)
		}
	}
}

// importError returns why a package in the directory from may not import a path, or "".
func importError(from, imported string) string {
	own := ruleFolder(imported)
	first, _, _ := strings.Cut(imported, "/")
	known := false
	for _, b := range importRules {
		if b.folder != from {
			continue
		}
		known = true
		switch {
		case own != "" && own != from && !slices.Contains(b.own, own):
			return from + " may import of ours only: " + strings.Join(b.own, ", ")
		case own == "" && underAny(imported, wirePackages) && !b.wire:
			return "protobuf and gRPC belong to server and xds"
		case own == "" && strings.Contains(first, ".") && b.others != nil && !underAny(imported, b.others):
			return from + " may import of others only: " + strings.Join(b.others, ", ")
		}
	}
	switch {
	case imported == module+"/xds/adstest":
		return "the management server is for tests only"
	case known:
		return ""
	case underAny(own, []string{"cmd", "e2e", "examples"}):
		return "nobody imports " + own
	case underAny(imported, wirePackages):
		return "protobuf and gRPC belong to server and xds"
	}
	return ""
}

// underAny reports whether path is one of roots or below one.
func underAny(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

// ruleFolder returns the directory whose rules apply to a package of ours: the longest with a row
// in importRules, otherwise the first path element. For other packages it returns "".
func ruleFolder(importPath string) string {
	rest, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	longest, _, _ := strings.Cut(rest, "/")
	for _, b := range importRules {
		if len(b.folder) > len(longest) && underAny(rest, []string{b.folder}) {
			longest = b.folder
		}
	}
	return longest
}

type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
}

// listPackages returns our packages as built for a system (GOOS), "" for this one.
func listPackages(t *testing.T, system string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Imports", module+"/...")
	if system != "" {
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			if len(all) == 0 {
				t.Fatal("go list printed no package")
			}
			return all
		case err != nil:
			t.Fatalf("parse the output of go list: %v", err)
		}
		all = append(all, p)
	}
}
