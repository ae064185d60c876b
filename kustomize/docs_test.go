package kustomize

import (
	"os"
	"strings"
	"testing"

	contour "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	"github.com/projectcontour/contour/pkg/config"
)

// TestContourFile checks Contour's configuration file in docs/kubernetes.md with Contour's own parser, and compares it
// with the ContourConfiguration.
func TestContourFile(t *testing.T) {
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\nrateLimitService:")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/kubernetes.md has no rateLimitService")
	}
	parsed, err := config.Parse(strings.NewReader("rateLimitService:" + text))
	if err != nil {
		t.Fatal(err)
	}
	o := buildObjects(t, combo{overlay: "contour"}.files())
	resource, found := findObject[*contour.ContourConfiguration](o, "projectcontour", "contour")
	if !found {
		t.Fatal("there is no ContourConfiguration")
	}
	want, got := resource.Spec.RateLimitService, parsed.RateLimitService
	if got.ExtensionService != want.ExtensionService.Namespace+"/"+want.ExtensionService.Name || got.Domain != want.Domain ||
		got.FailOpen != *want.FailOpen || got.EnableXRateLimitHeaders != *want.EnableXRateLimitHeaders ||
		got.EnableResourceExhaustedCode != *want.EnableResourceExhaustedCode {
		t.Errorf("docs/kubernetes.md has %+v, overlays/contour %+v", got, want)
	}
}
