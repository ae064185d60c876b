package kustomize

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"

	contour "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	"github.com/projectcontour/contour/pkg/config"
)

// TestImageOfYours sets the image as docs/image.md shows, in each overlay with a container of sluice.
func TestImageOfYours(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/image.md")
	if err != nil {
		t.Fatal(err)
	}
	_, images, _ := strings.Cut(string(page), "```yaml\nimages:")
	images, _, found := strings.Cut(images, "```")
	if !found {
		t.Fatal("docs/image.md sets no images")
	}
	overlays := 0
	for name := range manifests {
		overlay, isOverlay := strings.CutPrefix(path.Dir(name), "overlays/")
		if !isOverlay || path.Base(name) != "kustomization.yaml" || overlay == "envoy-gateway" {
			continue
		}
		overlays++
		documents, err := manifests.build(tree{"kustomization.yaml": "resources: [../overlays/" + overlay + "]\nimages:" + images})
		if err != nil {
			t.Fatal(err)
		}
		text := string(bytes.Join(documents, nil))
		if !strings.Contains(text, "image: registry.example.com/sluice:VERSION\n") || strings.Contains(text, "image: "+repository) {
			t.Errorf("overlay %s does not have the image of docs/image.md", overlay)
		}
	}
	if overlays < 8 {
		t.Errorf("found %d overlays, want 8 or more", overlays)
	}
}

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
