package main

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// product is the result of a build.
type product struct {
	release release
	// index contains the images of all platforms, referrers their SBOM artifacts.
	index     v1.ImageIndex
	referrers []v1.Image
}

// push pushes the image, tagged with its version, and the SBOMs to a repository such as
// ghcr.io/you/sluice. It uses the credentials of docker login. It never replaces an existing
// version, which may be deployed by its tag.
func push(ctx context.Context, to string, made *product, out io.Writer) error {
	repo, err := repository(to)
	if err != nil {
		return err
	}
	tag := repo.Tag(made.release.version)
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	digest, err := made.index.Digest()
	if err != nil {
		return err
	}
	if existing, err := remote.Head(tag, options...); err == nil && existing.Digest != digest {
		return fmt.Errorf("push %s: the tag exists, with digest %s; use a new version", tag, existing.Digest)
	}
	fmt.Fprintf(out, "image: pushing %s\n", tag)
	// Push the SBOMs last: the manifests to which they refer must exist.
	if err := remote.WriteIndex(tag, made.index, options...); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	for _, bill := range made.referrers {
		digest, err := bill.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(repo.Digest(digest.String()), bill, options...); err != nil {
			return fmt.Errorf("push the bill of materials to %s: %w", repo, err)
		}
	}
	fmt.Fprintf(out, "image: pushed %s as %s@%s\n", tag, repo, digest)
	return nil
}

// repository parses -push.
func repository(to string) (name.Repository, error) {
	repo, err := name.NewRepository(to)
	if err != nil {
		return repo, fmt.Errorf("-push is %q: must be a repository such as ghcr.io/you/sluice: %w", to, err)
	}
	return repo, nil
}

// refName is the annotation with an image's tag in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// writeLayout writes an OCI layout with the image, named by its version, and its referrers.
func (made *product) writeLayout(path string) error {
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(made.index, layout.WithAnnotations(map[string]string{refName: made.release.version})); err != nil {
		return err
	}
	for _, bill := range made.referrers {
		if err := l.AppendImage(bill); err != nil {
			return err
		}
	}
	return nil
}
