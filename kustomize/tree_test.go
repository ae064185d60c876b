package kustomize

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// tree contains the manifests by their slash-separated path in this directory.
type tree map[string]string

// manifests is the tree of this directory, which TestMain reads. Tests change copies.
var manifests tree

// readTree returns the files in this directory's subdirectories.
func readTree() (tree, error) {
	files := tree{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(name, string(filepath.Separator)) {
			return err
		}
		text, err := os.ReadFile(name)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	return files, err
}

// combo is an overlay and components that a user applies.
type combo struct {
	overlay    string
	components []string
}

func (c combo) String() string {
	return strings.Join(append([]string{c.overlay}, c.components...), "+")
}

// files returns the files of a user who applies the combination, in a directory next to ours.
func (c combo) files() tree { return tree{"kustomization.yaml": c.kustomization()} }

func (c combo) kustomization() string {
	text := "resources: [../overlays/" + c.overlay + "]\n"
	if len(c.components) > 0 {
		text += "components: [../components/" + strings.Join(c.components, ", ../components/") + "]\n"
	}
	return text
}

// build returns the documents that `kubectl kustomize` prints for a user's directory with these files, including
// kustomization.yaml.
func (files tree) build(user tree) ([][]byte, error) {
	fsys := filesys.MakeFsInMemory()
	for name, text := range files {
		if err := fsys.WriteFile("/"+name, []byte(text)); err != nil {
			return nil, err
		}
	}
	for name, text := range user {
		if err := fsys.WriteFile(path.Join("/yours", name), []byte(text)); err != nil {
			return nil, err
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fsys, "/yours")
	if err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, resource := range built.Resources() {
		document, err := resource.AsYAML()
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	return documents, nil
}

// buildObjects returns the objects that kustomize builds from a user's files.
func buildObjects(t *testing.T, user tree) *objects {
	t.Helper()
	documents, err := manifests.build(user)
	if err != nil {
		t.Fatal(err)
	}
	return decode(documents)
}

// examine returns all problems of the objects.
func (o *objects) examine() []string {
	o.checkGateways()
	o.checkPods()
	return o.problems
}
