package main

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxImageSize is the maximum size of an image's files, uncompressed, in bytes: 33 MB. Libraries
// with many methods are expensive: the linker keeps all methods, because the command-line parser
// looks methods up by name.
const maxImageSize = 33_000_000

// Defaults for running the image.
const (
	// user is numeric, because Kubernetes' runAsNonRoot cannot resolve names.
	user = "65532:65532"
	// entrypoint is the name under which sluice replaces envoyproxy/ratelimit. Most manifests of
	// that service set it explicitly. Sluice's own name is /bin/sluice.
	entrypoint = "/" + ratelimitPath
)

// ports are those of /healthcheck, the rate-limit service and /metrics.
var ports = []string{"8080/tcp", "8081/tcp", "9090/tcp"}

// assemble returns the image of p with the given layers.
func assemble(r release, p *program, layers []tree) (v1.Image, error) {
	size := int64(0)
	for _, tree := range layers {
		size += tree.size()
	}
	if size > maxImageSize {
		return nil, fmt.Errorf("the files for %s take %d bytes: must be %d at most", p.platform, size, maxImageSize)
	}
	exposed := make(map[string]struct{})
	for _, port := range ports {
		exposed[port] = struct{}{}
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS:           p.platform.OS,
		Architecture: p.platform.Architecture,
		Created:      r.created(),
		RootFS:       v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}},
		Config: v1.Config{
			User:         user,
			Entrypoint:   []string{entrypoint},
			ExposedPorts: exposed,
			WorkingDir:   "/",
			Labels:       r.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	for _, tree := range layers {
		layer, err := tree.layer()
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: r.created(), CreatedBy: "make image"},
		})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil //nolint:forcetypeassert // mutate returns the type of its argument
}

// index returns an index of the images. A client that pulls it gets the image of its platform.
func index(r release, programs []*program, images []v1.Image) v1.ImageIndex {
	list := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		platform := programs[i].platform
		list = mutate.AppendManifests(list, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return mutate.Annotations(list, r.labels()).(v1.ImageIndex) //nolint:forcetypeassert // mutate returns the type of its argument
}
