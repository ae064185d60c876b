package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// build writes the image to o.out, and prints the results and the next steps.
func build(ctx context.Context, o *options, programs []*program, out io.Writer) error {
	tag, err := name.NewTag("sluice:" + o.release.version)
	if err != nil {
		return fmt.Errorf("-version is %q, which is not a valid tag of an image: %w", o.release.version, err)
	}
	if o.push != "" {
		if _, err := repository(o.push); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	made := &product{release: o.release}
	var images []v1.Image
	var next []string
	for _, p := range programs {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(o.out, "sluice-"+dashed(p.platform))
		image, artifact, err := buildPlatform(o, p, tag, path)
		if err != nil {
			return err
		}
		images = append(images, image)
		made.referrers = append(made.referrers, artifact)
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "image: %s is %s; its components are in %s.spdx.json\n", p.platform, digest, path)
		next = append(next, "docker load -i "+path+".docker.tar")
	}
	made.index = index(o.release, programs, images)
	digest, err := made.index.Digest()
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "oci")
	if err := writeAtomically(path, made.writeLayout); err != nil {
		return err
	}
	fmt.Fprintf(out, "image: %s is %s\n", tag, digest)
	if o.push != "" {
		return push(ctx, o.push, made, out)
	}
	version := o.release.version
	next = append(next, fmt.Sprintf("skopeo copy --all oci:%s:%s docker://REGISTRY/sluice:%s", path, version, version), "make image PUSH=REGISTRY/sluice")
	fmt.Fprintf(out, "image: next, run one of\n\n    %s\n", strings.Join(next, "\n    "))
	return nil
}

// buildPlatform writes the image of one platform and its SBOM to files with the prefix path. It
// returns the image and the SBOM's artifact.
func buildPlatform(o *options, p *program, tag name.Tag, path string) (image, artifact v1.Image, err error) {
	layers, err := contents(o.release, p, o.source)
	if err != nil {
		return nil, nil, err
	}
	if image, err = assemble(o.release, p, layers); err != nil {
		return nil, nil, err
	}
	bill := layers[len(layers)-1][sbomPath].content
	if artifact, err = referrer(o.release, image, bill); err != nil {
		return nil, nil, err
	}
	if err := writeAtomically(path+".spdx.json", func(to string) error { return os.WriteFile(to, bill, 0o644) }); err != nil {
		return nil, nil, err
	}
	return image, artifact, writeAtomically(path+".docker.tar", func(to string) error { return tarball.WriteToFile(to, tag, image) })
}
