package main

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// sbomType is the media type of a bill of materials. By it clients find the bill among an
// image's referrers.
const sbomType types.MediaType = "application/spdx+json"

// referrer returns the bill of materials as an artifact of OCI that refers to its
// image: registries list it with the image, and it can be read without it.
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
	//nolint:forcetypeassert // both return what they get, with more
	return mutate.Subject(mutate.Annotations(artifact, r.labels()).(v1.Image), *subject).(v1.Image), nil
}
