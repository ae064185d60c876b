package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestPush pushes to registries with and without the referrers API, and checks that the image and
// SBOMs arrive.
func TestPush(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // do not use this user's credentials
	for _, lists := range []bool{true, false} {
		t.Run(fmt.Sprint("lists referrers: ", lists), func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(lists), registry.Logger(log.New(io.Discard, "", 0))))
			t.Cleanup(server.Close)
			repository := strings.TrimPrefix(server.URL, "http://") + "/team/sluice"
			out := buildImage(t, "-push", repository)

			tag, err := name.NewTag(repository + ":v1.2.3")
			check(t, err)
			index, err := remote.Index(tag)
			check(t, err)
			check(t, validate.Index(index))
			got, err := index.Digest()
			check(t, err)
			want, err := readLayout(t, out).Digest()
			check(t, err)
			if got != want {
				t.Errorf("%s is %s, want %s", tag, got, want)
			}

			digest, err := onlyImage(t, index).Digest()
			check(t, err)
			referrers, err := remote.Referrers(tag.Digest(digest.String()))
			check(t, err)
			list, err := referrers.IndexManifest()
			check(t, err)
			if n := len(list.Manifests); n != 1 || list.Manifests[0].ArtifactType != string(sbomType) {
				t.Fatalf("%d artifacts refer to the image, want only the bill of materials: %+v", n, list.Manifests)
			}
			bill, err := remote.Image(tag.Digest(list.Manifests[0].Digest.String()))
			check(t, err)
			layers, err := bill.Layers()
			check(t, err)
			r, err := layers[0].Compressed()
			check(t, err)
			text, err := io.ReadAll(r)
			check(t, err)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			beside, err := os.ReadFile(filepath.Join(out, "sluice-linux-"+runtime.GOARCH+".spdx.json"))
			check(t, err)
			if !bytes.Equal(text, beside) {
				t.Error("the SBOM in the registry differs from the file next to the image")
			}

			if !lists {
				return
			}
			buildImage(t, "-push", repository) // pushing the same digest again is not an error
			args := []string{"-version", "v1.2.3", "-revision", "another", "-source", "../..", "-out", t.TempDir(), "-push", repository, sluiceBinary}
			if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "the tag exists") {
				t.Errorf("push of another image with the same version: %v, want an error", err)
			}
			if again, err := remote.Head(tag); err != nil || again.Digest != want {
				t.Errorf("after the rejected push %s is %v, %v, want %s", tag, again, err, want)
			}
		})
	}
}

func TestPushToInvalidRegistry(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	for repository, want := range map[string]string{
		"UPPER/case": `-push is "UPPER/case"`,
		strings.TrimPrefix(server.URL, "http://") + "/sluice": "push ",
	} {
		args := []string{"-version", "v1", "-source", "../..", "-out", t.TempDir(), "-push", repository, sluiceBinary}
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("push to %s = %v, want an error with %q", repository, err, want)
		}
	}
}

// TestLayoutHasTheBillsOfMaterials checks for the SBOMs in the OCI layout.
func TestLayoutHasTheBillsOfMaterials(t *testing.T) {
	l, err := layout.ImageIndexFromPath(filepath.Join(built, "oci"))
	check(t, err)
	check(t, validate.Index(l))
	manifest, err := l.IndexManifest()
	check(t, err)
	if n := len(manifest.Manifests); n != 2 {
		t.Fatalf("the layout has %d entries, want the image and its bill of materials", n)
	}
	bill, err := l.Image(manifest.Manifests[1].Digest)
	check(t, err)
	m, err := bill.Manifest()
	check(t, err)
	digest, err := onlyImage(t, readLayout(t, built)).Digest()
	check(t, err)
	if m.Subject == nil || m.Subject.Digest != digest || m.Config.MediaType != sbomType {
		t.Errorf("the bill of materials refers to %v and has the type %s", m.Subject, m.Config.MediaType)
	}
}
