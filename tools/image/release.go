package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeRelease writes the other files of a release to o.out: an archive of each program, the chart,
// and the checksums and the provenance of these and of the image that build wrote.
func writeRelease(ctx context.Context, o *options, programs []*program, out io.Writer) error {
	i := slices.IndexFunc(programs, func(p *program) bool {
		return p.platform.OS == runtime.GOOS && p.platform.Architecture == runtime.GOARCH
	})
	if i < 0 {
		return fmt.Errorf("none of the programs is for this machine, %s/%s, to generate the manual page and the completions", runtime.GOOS, runtime.GOARCH)
	}
	signer, err := newSigner(o.release, o.source)
	if err != nil {
		return err
	}
	common, err := documents(programs[i].path, o.source)
	if err != nil {
		return err
	}
	chart, err := writeChart(o, out)
	if err != nil {
		return err
	}
	var names []string
	for _, p := range programs {
		files, err := archive(o.release, p, o.source, common)
		if err != nil {
			return err
		}
		name := "sluice-" + o.release.version + "-" + dashed(p.platform)
		names = append(names, name+".tar.gz")
		if err := files.below(name).writeArchive(filepath.Join(o.out, name+".tar.gz"), out); err != nil {
			return err
		}
	}
	return writeSums(ctx, o, signer, append(names, chart), programs, out)
}

// writeChart writes the Helm chart, and returns the name of its file.
func writeChart(o *options, out io.Writer) (name string, err error) {
	version := chartVersion(o.release.version)
	files, err := chart(filepath.Join(o.source, "charts", "sluice"), version, o.release.version)
	if err != nil {
		return "", err
	}
	name = "sluice-chart-" + version + ".tgz"
	return name, files.below("sluice").writeArchive(filepath.Join(o.out, name), out)
}

// documents returns the files that the archives of all platforms contain. It runs the given program
// to generate some of them.
func documents(program, source string) (tree, error) {
	files := tree{}
	for path, args := range map[string][]string{
		"share/man/man1/sluice.1":                     {"man"},
		"share/bash-completion/completions/sluice":    {"completion", "bash"},
		"share/zsh/site-functions/_sluice":            {"completion", "zsh"},
		"share/fish/vendor_completions.d/sluice.fish": {"completion", "fish"},
	} {
		cmd := exec.Command(program, args...)
		cmd.Env = []string{} // ignore the variables of envoyproxy/ratelimit
		text, err := cmd.Output()
		if err != nil || len(text) == 0 {
			return nil, fmt.Errorf("%s %s wrote %d bytes: %w", program, strings.Join(args, " "), len(text), err)
		}
		files[path] = file{content: text}
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, err
		}
		files["share/doc/sluice/"+name] = file{content: text}
	}
	return files, nil
}

// archive returns the files of p's archive, relative to a prefix such as /usr/local.
func archive(r release, p *program, source string, common tree) (tree, error) {
	all, err := components(p.info, source)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c component) bool { return c.path == authoritiesModule }) // only in the image
	bill, err := sbom(r, p, all, false)
	if err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	files := tree{
		programPath:                         {content: p.content, executable: true},
		"share/doc/sluice/sluice.spdx.json": {content: bill},
	}
	maps.Copy(files, common)
	maps.Copy(files, licenceTexts("share/doc/sluice/licenses", all))
	return files, nil
}

// semanticVersion matches a version, with a leading v, that a chart may have.
var semanticVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// chartVersion returns the chart's version for a version of the program. Helm requires semantic
// versions, which builds between releases do not have.
func chartVersion(version string) string {
	if semanticVersion.MatchString(version) {
		return version[1:]
	}
	return "0.0.0-g" + regexp.MustCompile(`[^0-9A-Za-z-]+`).ReplaceAllString(version, "-")
}

// chartVersions matches the lines of Chart.yaml that a release sets.
var versionLines = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart returns the files of the chart in dir, with the given versions of the chart and the image.
func chart(dir, version, image string) (tree, error) {
	files := tree{}
	if err := filepath.WalkDir(dir, func(at string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, at)
		files[filepath.ToSlash(name)] = file{content: text}
		return err
	}); err != nil {
		return nil, err
	}
	values := map[string]string{"version": version, "appVersion": `"` + image + `"`}
	about := versionLines.ReplaceAllStringFunc(string(files["Chart.yaml"].content), func(line string) string {
		word, _, _ := strings.Cut(line, ":")
		value := values[word]
		delete(values, word)
		return word + ": " + value
	})
	if len(values) > 0 {
		return nil, errors.New("no version or appVersion in Chart.yaml")
	}
	files["Chart.yaml"] = file{content: []byte(about)}
	return files, nil
}

// writeSums writes the files by which a release is verified: SHA256SUMS, for sha256sum --check, and
// the provenance of the named files, the images and their SBOMs. It signs both unless signer is nil.
func writeSums(ctx context.Context, o *options, signer *signer, names []string, programs []*program, out io.Writer) error {
	for _, p := range programs {
		if p.platform.OS == "linux" { // images are only for Linux
			name := "sluice-" + dashed(p.platform)
			names = append(names, name+".docker.tar", name+".spdx.json")
		}
	}
	slices.Sort(names)
	var sums strings.Builder
	image, err := imageDigest(o)
	subjects := []resource{{Name: "oci", Digest: map[string]string{image.Algorithm: image.Hex}}}
	for _, name := range names {
		content, readErr := os.ReadFile(filepath.Join(o.out, name))
		if err = cmp.Or(err, readErr); err != nil {
			return fmt.Errorf("compute the checksums (run make image first): %w", err)
		}
		digest := fmt.Sprintf("%x", sha256.Sum256(content))
		fmt.Fprintf(&sums, "%s  %s\n", digest, name)
		subjects = append(subjects, resource{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	statement, err := provenance(o.release, programs[0].info.GoVersion, subjects)
	if err != nil {
		return fmt.Errorf("write the provenance: %w", err)
	}
	name := "sluice-" + o.release.version + ".intoto.json"
	fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(statement), name)
	files := map[string][]byte{name: statement, "SHA256SUMS": []byte(sums.String()), "SHA256SUMS.sig": nil, name + "l": nil, "sluice.pub": nil}
	if signer != nil {
		var errs [3]error
		files["SHA256SUMS.sig"], errs[0] = signer.Sign(ctx, files["SHA256SUMS"])
		files[name+"l"], errs[1] = signer.envelope(ctx, statement)
		files["sluice.pub"], errs[2] = signer.publicKey()
		if err := errors.Join(errs[:]...); err != nil {
			return fmt.Errorf("sign the release: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(o.out, name)
		if files[name] == nil { // of an earlier release, which was signed
			if err := os.RemoveAll(to); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "release: %s\n", to)
		if err := writeAtomically(to, func(to string) error { return os.WriteFile(to, files[name], 0o644) }); err != nil {
			return err
		}
	}
	if signer == nil {
		fmt.Fprintf(out, "release: NOT SIGNED: %s is not set\n", keyVariable)
	}
	return nil
}

// imageDigest returns the digest of the image in the OCI layout, which a registry shows.
func imageDigest(o *options) (v1.Hash, error) {
	index, err := layout.ImageIndexFromPath(filepath.Join(o.out, "oci"))
	if err != nil {
		return v1.Hash{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	for _, d := range manifest.Manifests {
		if d.Annotations[refName] == o.release.version {
			return d.Digest, nil
		}
	}
	return v1.Hash{}, fmt.Errorf("%s/oci has no image of version %s", o.out, o.release.version)
}
