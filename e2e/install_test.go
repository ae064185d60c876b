package e2e_test

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var (
	installs   = regexp.MustCompile(`kubectl apply|helm install`)
	toTheImage = regexp.MustCompile(`\]\([^)\s]*image\.md#into-a-cluster\)`)
)

// TestPagesBringTheImageFirst checks that each page that installs sluice in a cluster first says
// how the image gets there, in the same section.
func TestPagesBringTheImageFirst(t *testing.T) {
	found := map[string]bool{}
	must.OK(t, fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md" || path == "CHANGELOG.md" || path == "docs/image.md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			return err
		}
		if installs.Match(text) {
			found[path] = true
		}
		if why := installsWithoutImage(string(text)); why != "" {
			t.Errorf("%s: %s", path, why)
		}
		return nil
	}))
	for _, page := range []string{
		"README.md", "docs/kubernetes.md", "kustomize/README.md", "charts/sluice/README.md",
		"examples/contour/README.md", "examples/envoy-ai-gateway/README.md", "examples/envoy-gateway/README.md", "examples/istio/README.md",
	} {
		if !found[page] {
			t.Errorf("%s does not install sluice in a cluster: has the pattern changed?", page)
		}
	}
}

// installsWithoutImage returns why a page's first command that installs sluice comes before the way
// of the image into the cluster, or an empty string.
func installsWithoutImage(page string) string {
	at := installs.FindStringIndex(page)
	if at == nil {
		return ""
	}
	before := page[:at[0]]
	before = before[max(0, strings.LastIndex("\n"+before, "\n#")):]
	if !toTheImage.MatchString(before) {
		return page[at[0]:at[1]] + " comes before a link to docs/image.md#into-a-cluster in its section"
	}
	return ""
}

func TestInstallsWithoutImage(t *testing.T) {
	const link, command = "Bring [your image](../docs/image.md#into-a-cluster).\n", "\n    kubectl apply -k .\n"
	for page, ok := range map[string]bool{
		"# Page\n" + link + command:             true,
		"# Page\n":                              true,
		"# Page\n" + command + link:             false,
		"# Page\n" + link + "## Part" + command: false,
		"# Page\n    helm install x\n":          false,
		"[your image](image.md)" + command:      false,
	} {
		if why := installsWithoutImage(page); (why == "") != ok {
			t.Errorf("installsWithoutImage(%q) = %q", page, why)
		}
	}
}

// TestArchitecturePicture compares the ports in the picture with the table of README.md.
func TestArchitecturePicture(t *testing.T) {
	picture, err := os.ReadFile("../docs/architecture.svg")
	must.OK(t, err)
	readme, err := os.ReadFile("../README.md")
	must.OK(t, err)
	if !strings.Contains(string(readme), "](docs/architecture.svg)") {
		t.Error("README.md does not show docs/architecture.svg")
	}
	for d := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("docs/architecture.svg is not XML: %v", err)
		}
	}
	_, table, _ := strings.Cut(string(readme), "## Ports and access")
	table, _, _ = strings.Cut(table, "\n## ")
	ports := regexp.MustCompile(`port (\d+)`).FindAllStringSubmatch(string(picture), -1)
	if len(ports) < 6 { // three in the picture, three in its description
		t.Errorf("the picture has %d ports, want 6 or more", len(ports))
	}
	for _, port := range ports {
		if !regexp.MustCompile(`(?m)^\| (?:127\.0\.0\.1:)?` + port[1] + ` \|`).MatchString(table) {
			t.Errorf("the picture has port %s, which is not in the table of ports", port[1])
		}
	}
}
