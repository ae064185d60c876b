// Command mistakes plants mistakes in the code that answers requests, one at a time, and prints which
// test finds each: a measure of the tests of `make test`. A seed selects the mistakes; with the same
// seed and the same code they are the same.
//
//	go -C tools run ./mistakes -n 20 ..                # 20 mistakes of a new seed
//	go -C tools run ./mistakes -seed 7 -only 3 -more ..
//
// A mistake is a negated comparison, + for - or - for +, or a dropped statement. One that does not
// compile is replaced by the next. No file of the tree changes, because the go command builds with
// -overlay. First the tests of the package run, then those of the others, then those that run sluice.
// With -more they are the tests of `make test-more`.
//
// Some mistakes change nothing that a caller can observe, such as a dropped reuse of memory, so not
// every miss is a missing test. With a mistake such as a dropped Unlock tests may wait without end: a
// package whose tests take longer than ten minutes has found it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// requestPath are the directories in which mistakes are planted. If files are named, only those.
var requestPath = []struct{ dir, files string }{
	{"server/transport/h2", ""},
	{"server/transport/builtin", ""},
	{"server/answer", ""},
	{"descriptors", "address choice denied exempt inherit leases match metrickey node override plan quota ranges reservation " +
		"set soft table wildcard"},
	{"limiter", ""},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mistakes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	seed := flag.Uint64("seed", 0, "seed that selects the mistakes; 0 for a new one")
	n := flag.Int("n", 10, "number of mistakes")
	only := flag.Int("only", 0, "plant only the mistake with this number")
	more := flag.Bool("more", false, "run the tests of make test-more")
	flag.Parse()
	root, err := filepath.Abs(cmp.Or(flag.Arg(0), "."))
	if err != nil {
		return err
	}
	t, err := newTester(ctx, root, *more)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	all, err := places(root)
	if err != nil {
		return err
	}
	for *seed == 0 {
		*seed = uint64(rand.Uint32())
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fmt.Printf("seed %d of %d possible mistakes\n", *seed, len(all))
	planted := 0
	missed := 0
	for i, m := range all {
		if planted == *n || *only > 0 && i+1 != *only {
			continue
		}
		began := time.Now()
		if err := t.plant(ctx, m); errors.Is(err, errNotCompiled) {
			continue
		} else if err != nil {
			return err
		}
		planted++
		fmt.Printf("%d: %s:%d\n\t- %s\n\t+ %s\n", i+1, m.file, m.line, m.oldLine, m.newLine)
		foundBy, err := t.find(ctx, m.file)
		if err != nil {
			return err
		}
		if foundBy == "" {
			missed++
		}
		fmt.Printf("\t%s (%v)\n", cmp.Or(foundBy, "MISSED"), time.Since(began).Round(time.Second))
	}
	fmt.Printf("%d mistakes, %d missed\n", planted, missed)
	return t.reportNotRun()
}

// places returns all mistakes that can be planted, in a fixed order.
func places(root string) (all []mistake, err error) {
	for _, one := range requestPath {
		p, err := build.ImportDir(filepath.Join(root, one.dir), 0)
		if err != nil {
			return nil, err
		}
		for _, name := range p.GoFiles {
			if one.files != "" && !slices.Contains(strings.Fields(one.files), strings.TrimSuffix(name, ".go")) {
				continue
			}
			file := one.dir + "/" + name
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			found, err := mistakes(file, text)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}
