package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// TestBillOfMaterials compares the SBOM with the program's build information, and checks that the
// image contains the SBOM and the licences.
func TestBillOfMaterials(t *testing.T) {
	bill, err := os.ReadFile(filepath.Join(built, "sluice-linux-"+runtime.GOARCH+".spdx.json"))
	check(t, err)
	document, err := spdxjson.Read(bytes.NewReader(bill))
	check(t, err)
	check(t, spdxlib.ValidateDocument(document))
	info, err := buildinfo.ReadFile(sluiceBinary)
	check(t, err)
	want := map[string]string{
		"github.com/sluice-ratelimit/sluice": "v1.2.3",
		standardLibrary:                      strings.TrimPrefix(info.GoVersion, "go"),
	}
	for _, dependency := range info.Deps {
		want[dependency.Path] = dependency.Version
	}
	if len(want) < 20 {
		t.Errorf("the program was built from %d modules, want at least 20", len(want))
	}
	files := make(map[string][]byte)
	r := mutate.Extract(onlyImage(t, readLayout(t, built)))
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		files[h.Name], err = io.ReadAll(archive)
		check(t, err)
	}
	if !bytes.Equal(files[sbomPath], bill) {
		t.Errorf("/%s differs from the file next to the image", sbomPath)
	}
	ids := map[common.ElementID]bool{}
	for _, p := range document.Packages {
		if ids[p.PackageSPDXIdentifier] {
			t.Errorf("two packages have the identifier %s", p.PackageSPDXIdentifier)
		}
		ids[p.PackageSPDXIdentifier] = true
		if version, ok := want[p.PackageName]; ok && p.PackageVersion != version {
			t.Errorf("%s has the version %s, want %s", p.PackageName, p.PackageVersion, version)
		}
		delete(want, p.PackageName)
		if p.PrimaryPackagePurpose == "LIBRARY" {
			texts := 0
			for name := range files {
				if strings.HasPrefix(name, "usr/share/licenses/"+p.PackageName+"/") {
					texts++
				}
			}
			if texts == 0 || p.PackageLicenseConcluded == "" {
				t.Errorf("%s has the licence %q and %d licence texts", p.PackageName, p.PackageLicenseConcluded, texts)
			}
		}
		if !regexp.MustCompile(`^Package-[A-Za-z0-9.-]+$`).MatchString(string(p.PackageSPDXIdentifier)) {
			t.Errorf("the identifier %q is not valid in SPDX", p.PackageSPDXIdentifier)
		}
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	if got := document.Packages[1].PackageChecksums; len(got) != 1 || got[0].Value != sum(t, sluiceBinary) {
		t.Errorf("the program's digest is %v, want %s", got, sum(t, sluiceBinary))
	}
	if !bytes.Contains(files["usr/share/licenses/google.golang.org/grpc/NOTICE.txt"], []byte("gRPC")) {
		t.Error("the notice of grpc is missing")
	}
}

func TestPurl(t *testing.T) {
	for got, want := range map[string]string{
		purl("github.com/KimMachineGun/automemlimit", "v1.0.1"):   "pkg:golang/github.com/kimmachinegun/automemlimit@v1.0.1",
		purl("github.com/docker/cli", "v29.7.2+incompatible"):     "pkg:golang/github.com/docker/cli@v29.7.2%2Bincompatible",
		purl(standardLibrary, strings.TrimPrefix("go1.26", "go")): "pkg:golang/stdlib@1.26",
	} {
		if got != want {
			t.Errorf("purl = %s, want %s", got, want)
		}
	}
}

func TestLicencesThatAreNotAllowed(t *testing.T) {
	gpl, err := os.ReadFile("testdata/gpl.txt")
	check(t, err)
	apache, err := os.ReadFile(source + "/LICENSE")
	check(t, err)
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"allowed":       {map[string][]byte{"LICENSE": apache, "NOTICE": []byte("By somebody.\n")}, ""},
		"GPL":           {map[string][]byte{"COPYING": gpl}, "COPYING of example.com/m v1: the licence is GPL-2.0"},
		"one of two":    {map[string][]byte{"LICENSE": apache, "LICENSE-more.md": gpl}, "LICENSE-more.md of example.com/m v1: the licence is GPL-2.0"},
		"none":          {map[string][]byte{"README": apache}, "has no licence"},
		"unknown":       {map[string][]byte{"LICENSE": []byte("All that is not allowed is forbidden, and all that is allowed is compulsory.\n")}, "0 % of the text"},
		"with a clause": {map[string][]byte{"LICENSE": append(bytes.Clone(apache), bytes.Repeat([]byte("The software shall be used for good. "), 200)...)}, "must be 75 %"},
	} {
		m := goModule{Path: "example.com/m", Version: "v1", Dir: t.TempDir()}
		for file, text := range tt.files {
			check(t, os.WriteFile(filepath.Join(m.Dir, file), text, 0o600))
		}
		switch c, err := m.component(); {
		case tt.want == "" && (err != nil || c.licence != "Apache-2.0" || len(c.texts) != 2):
			t.Errorf("%s: component = %+v, %v", name, c, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: component = %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestComponentsAreThoseOfTheProgram(t *testing.T) {
	info := mustRead(t).info
	for want, change := range map[string]func(*debug.Module){
		"build it again":  func(m *debug.Module) { m.Version = "v0.0.1" },
		"no replacements": func(m *debug.Module) { m.Replace = &debug.Module{Path: "../fork"} },
		"not a known dep": func(m *debug.Module) { m.Path = "example.com/gone" },
	} {
		changed := *info
		changed.Deps = nil
		for _, dependency := range info.Deps {
			d := *dependency
			changed.Deps = append(changed.Deps, &d)
		}
		change(changed.Deps[3])
		if _, err := components(&changed, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("components = %v, want an error with %q", err, want)
		}
	}
}
