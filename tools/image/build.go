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
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// build writes the image to o.out, tells what it does, and what to do with it.
func build(ctx context.Context, o *options, programs []*program, out io.Writer) error {
	tag, err := name.NewTag("sluice:" + o.release.version)
	if err != nil {
		return fmt.Errorf("-version is %q: must be usable as an image's tag: %w", o.release.version, err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	var images []v1.Image
	var next []string
	for _, p := range programs {
		if err := ctx.Err(); err != nil {
			return err
		}
		layers, err := contents(o.release, p, o.source)
		if err != nil {
			return err
		}
		image, err := assemble(o.release, p, layers)
		if err != nil {
			return err
		}
		bill := filepath.Join(o.out, "sluice-"+dashed(p.platform)+".spdx.json")
		if err := writeWhole(bill, func(temporary string) error {
			return os.WriteFile(temporary, layers[len(layers)-1][sbomPath].content, 0o644)
		}); err != nil {
			return err
		}
		path := filepath.Join(o.out, "sluice-"+dashed(p.platform)+".docker.tar")
		if err := writeWhole(path, func(temporary string) error {
			return tarball.WriteToFile(temporary, tag, image)
		}); err != nil {
			return err
		}
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "image: %s is %s, made of what %s says\n", p.platform, digest, bill)
		images = append(images, image)
		next = append(next, "docker load -i "+path)
	}
	all, err := index(o.release, programs, images)
	if err != nil {
		return err
	}
	digest, err := all.Digest()
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "oci")
	if err := writeWhole(path, func(temporary string) error { return writeLayout(temporary, o.release.version, all) }); err != nil {
		return err
	}
	fmt.Fprintf(out, "image: %s is %s\n", tag, digest)
	next = append(next, fmt.Sprintf("skopeo copy --all oci:%s:%s docker://REGISTRY/sluice:%s", path, o.release.version, o.release.version))
	fmt.Fprintf(out, "image: next, one of\n\n    %s\n", strings.Join(next, "\n    "))
	return nil
}

// writeLayout writes an OCI layout with one image, under the name of its version.
func writeLayout(path, version string, all v1.ImageIndex) error {
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		return err
	}
	return l.AppendIndex(all, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}

// writeWhole has write make a file or directory under another name, and then puts
// it in the place of what is at path: nobody finds half of it there.
func writeWhole(path string, write func(temporary string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	temporary := filepath.Join(dir, "new")
	if err := write(temporary); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func dashed(p v1.Platform) string { return p.OS + "-" + p.Architecture }
