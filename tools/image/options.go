package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options are the parsed command line.
type options struct {
	release release
	// out is the directory for the image. If root is set, its files are written there instead.
	out, root string
	// archives selects the archives of a release instead of the image.
	archives bool
	// chart selects only the Helm chart.
	chart bool
	// push is the repository to push to, or empty.
	push string
	// source is the root of the module from which the programs were built.
	source string
	// programs are the paths of the binaries, one per platform.
	programs []string
}

// release identifies the source of the programs. Only version is required.
type release struct {
	version, revision string
	// committed is the date of the commit, or zero if unknown.
	committed time.Time
}

const (
	home    = "https://github.com/sluice-ratelimit/sluice"
	licence = "Apache-2.0"
)

// labels returns the labels of the image, which are also the annotations of its manifests.
// Registries display them. Unknown values are omitted.
func (r release) labels() map[string]string {
	created := ""
	if !r.committed.IsZero() {
		created = r.committed.Format(time.RFC3339)
	}
	labels := make(map[string]string)
	for name, value := range map[string]string{
		"title":         "sluice",
		"description":   "A rate-limit service for Envoy that decides in its own memory",
		"url":           home,
		"source":        home,
		"documentation": home + "/blob/main/docs/image.md",
		"licenses":      licence,
		"version":       r.version,
		"revision":      r.revision,
		"created":       created,
	} {
		if value != "" {
			labels["org.opencontainers.image."+name] = value
		}
	}
	return labels
}

// created returns the image's creation time. It is the time of the commit, so each build of a
// commit has the same digest.
func (r release) created() v1.Time {
	return v1.Time{Time: cmp.Or(r.committed, epoch)}
}

// errUsage is returned for an invalid command line, after the reason has been printed.
var errUsage = errors.New("wrong command line")

func parse(args []string, errOut io.Writer) (*options, error) {
	o := new(options)
	var committed string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.release.version, "version", "", "the version, also the image's tag (required)")
	flags.StringVar(&o.release.revision, "revision", "", "the commit")
	flags.StringVar(&committed, "commit-date", "", "the commit's date in RFC 3339 format, used as the image's creation time (default 1970)")
	flags.StringVar(&o.out, "out", "dist", "the directory to write to")
	flags.StringVar(&o.root, "root", "", "write the image's files to this directory, which must not exist, instead of an image")
	flags.BoolVar(&o.archives, "release", false, "write archives of the programs, the chart, and the checksums and the provenance of these and of the image, which must exist; signed with the key in "+keyVariable)
	flags.BoolVar(&o.chart, "chart", false, "write only the Helm chart, for which no program is needed")
	flags.StringVar(&o.push, "push", "", "a repository to push to, such as ghcr.io/you/sluice, with the credentials of docker login")
	flags.StringVar(&o.source, "source", "..", "the root of sluice's repository, for the licences of its modules")
	flags.Usage = func() {
		fmt.Fprintln(errOut, "Builds the container image or the archives of a release, from programs built without cgo.\n\n"+
			"  image -version VERSION [flags] PROGRAM...")
		flags.PrintDefaults()
	}
	wrong := func(format string, args ...any) (*options, error) {
		fmt.Fprintf(errOut, "image: "+format+"\n", args...)
		return nil, errUsage
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, errUsage
	}
	o.programs = flags.Args()
	switch {
	case o.release.version == "":
		return wrong("-version is missing")
	case len(o.programs) == 0 && !o.chart:
		return wrong("no program is given")
	case (o.archives || o.chart) && (o.root != "" || o.push != ""):
		return wrong("-release and -chart exclude -root and -push")
	case o.root != "" && len(o.programs) != 1:
		return wrong("-root takes one program, not %d", len(o.programs))
	}
	if committed != "" {
		at, err := time.Parse(time.RFC3339, committed)
		if err != nil {
			return wrong("-commit-date is %q: must be a time such as 2026-11-21T18:57:30Z", committed)
		}
		o.release.committed = at.UTC()
	}
	return o, nil
}
