package main

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// sbomType is the media type by which clients find the SBOM among an image's referrers.
const sbomType types.MediaType = "application/spdx+json"

// referrer returns the SBOM as an OCI artifact that refers to its image: registries list it with
// the image, and clients can read it without pulling the image.
func referrer(r release, image v1.Image, bill []byte) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType)
	artifact, err = mutate.AppendLayers(artifact, static.NewLayer(bill, sbomType))
	if err != nil {
		return nil, err
	}
	//nolint:forcetypeassert // mutate returns the type of its argument
	return mutate.Subject(mutate.Annotations(artifact, r.labels()).(v1.Image), *subject).(v1.Image), nil
}
