package kustomize

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// tree is the manifests by their slashed path in this folder.
type tree map[string]string

// manifests reads the tree once; callers do not change it.
var manifests = sync.OnceValues(func() (tree, error) {
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
})

// combo is what a user applies: an overlay and components.
type combo struct {
	overlay    string
	components []string
}

func (c combo) String() string {
	return strings.Join(append([]string{c.overlay}, c.components...), "+")
}

// kustomization is one of the user's, in a folder beside ours.
func (c combo) kustomization() string {
	text := "resources: [../overlays/" + c.overlay + "]\n"
	if len(c.components) > 0 {
		text += "components: [../components/" + strings.Join(c.components, ", ../components/") + "]\n"
	}
	return text
}

// build returns the documents that `kubectl kustomize` prints for a folder of the
// user's with these files, kustomization.yaml among them.
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

// examine returns all that is wrong with a combination.
func (files tree) examine(c combo) []string {
	documents, err := files.build(tree{"kustomization.yaml": c.kustomization()})
	if err != nil {
		return []string{"build: " + err.Error()}
	}
	o := decode(documents)
	o.checkPods()
	o.checkNetwork()
	o.checkGateways()
	return o.found
}
