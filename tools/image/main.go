package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	programs := make([]*program, 0, len(o.programs))
	for _, path := range o.programs {
		p, err := readProgram(path)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	switch {
	case o.chart:
		_, err := writeChart(o, out)
		return err
	case o.archives:
		return writeRelease(ctx, o, programs, out)
	}
	if err := checkPlatforms(programs); err != nil {
		return err
	}
	if o.root != "" {
		return writeRoot(o, programs[0], out)
	}
	return build(ctx, o, programs, out)
}

// checkPlatforms returns an error if one of the programs cannot run in an image.
func checkPlatforms(programs []*program) error {
	for _, p := range programs {
		if p.platform.OS != "linux" {
			return fmt.Errorf("%s is built for %s: an image needs a program for linux", p.path, p.platform.OS)
		}
	}
	return nil
}

// writeRoot writes the files of p's image to o.root.
func writeRoot(o *options, p *program, out io.Writer) error {
	layers, err := contents(o.release, p, o.source)
	if err != nil {
		return err
	}
	if err := os.Mkdir(o.root, 0o755); err != nil {
		return err
	}
	for _, tree := range layers {
		if err := tree.writeTo(o.root); err != nil {
			return err
		}
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "image: files of %s are in %s\n", p.platform, root)
	return nil
}
