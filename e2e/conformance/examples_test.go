package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const examples = "../../examples"

// TestExamples checks ../../examples: the rules load without a warning, Envoy accepts the routes,
// and requests get the answers in the cases.
func TestExamples(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(examples, "README.md"))
	must.OK(t, err)
	files, err := filepath.Glob(filepath.Join(examples, "*", "rules.yaml"))
	if err != nil || len(files) < 7 {
		t.Fatalf("examples are %v, %v", files, err)
	}
	for _, rules := range files {
		dir := filepath.Dir(rules)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(index), "]("+name+"/rules.yaml)") && !strings.Contains(string(index), "]("+name+"/README.md)") {
				t.Errorf("README.md does not list %s", name)
			}
			defaults := filepath.Join(dir, "defaults.yaml")
			if !exists(defaults) {
				defaults = ""
			}
			set, found, err := source.Load([]string{rules}, defaults, descriptors.Options{})
			must.OK(t, err)
			for _, f := range found {
				t.Error(f)
			}
			if name == "quickstart" {
				return // tested with envoy.yaml and the demo
			}
			// By convention, the domain in Envoy and in the rules is the name of the directory.
			if domains := set.Domains(); len(domains) != 1 || domains[0] != name {
				t.Errorf("domains are %v, want %s", domains, name)
			}
			// e2e/examples runs the examples that have a README.md behind a real proxy. For these,
			// cases.yaml is optional, and there is no route.yaml.
			tested := exists(filepath.Join(dir, "README.md"))
			if !tested {
				checkRoute(t, filepath.Join(dir, "route.yaml"), name)
			}
			if tested && !exists(filepath.Join(dir, "cases.yaml")) {
				return
			}
			for _, c := range readCases(t, filepath.Join(dir, "cases.yaml")) {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					if defaults != "" {
						c.Args = append(c.Args, "--defaults", defaults)
					}
					report(t, c.runInOneWindow(t, rules))
				})
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// runInOneWindow runs the case. If it fails and a window has ended meanwhile, which resets counters,
// it runs the case again. The shortest windows of the examples are 30 seconds.
func (c *Case) runInOneWindow(t *testing.T, rules string) (found []string) {
	t.Helper()
	const window, attempts = 30 * time.Second, 5
	for range attempts {
		begun := time.Now().Truncate(window)
		if found = c.runWith(t, rules); len(found) == 0 || time.Now().Truncate(window).Equal(begun) {
			return found
		}
		t.Logf("a window ended; running the case again after: %q", found)
	}
	return found
}

// checkRoute parses a route's typed_per_filter_config as strictly as Envoy.
func checkRoute(t *testing.T, path, domain string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.OK(t, err)
	var filters map[string]any
	if err := yaml.Load(text, &filters); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(filters) != 1 {
		t.Errorf("%s: %d filters, want 1", path, len(filters))
	}
	text, err = json.Marshal(filters["envoy.filters.http.ratelimit"])
	must.OK(t, err)
	var message anypb.Any
	if err := protojson.Unmarshal(text, &message); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var route ratelimitv3.RateLimitPerRoute
	if err := message.UnmarshalTo(&route); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := route.ValidateAll(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if route.GetDomain() != domain || len(route.GetRateLimits()) == 0 {
		t.Errorf("%s: domain is %q with %d rate limits, want %q and some", path, route.GetDomain(), len(route.GetRateLimits()), domain)
	}
}
