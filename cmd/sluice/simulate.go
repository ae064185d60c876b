package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

type simulateCmd struct {
	Logs          []string      `arg:"" name:"log" help:"Access logs, plain or gzipped. Several are merged by time. - is standard input."`
	Config        []string      `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Domain        string        `short:"d" placeholder:"DOMAIN" help:"Domain to simulate. Default: all domains in the log or of the Envoy configuration, or the only domain of the rules."`
	Format        string        `default:"auto" placeholder:"FORMAT" help:"Log format: auto, json, requests, a format string of Envoy such as '%START_TIME% %REQ(:PATH)%', or one of nginx such as '$time_local $request_uri'. json accepts the names of fields: 'json time=ts status=code'."`
	Envoy         []string      `sep:"none" placeholder:"ENVOY" help:"Envoy configuration that generates the descriptors, as for envoy check. May be repeated."`
	Listener      string        `placeholder:"NAME" help:"With --envoy: name of the listener, if several have rate limit filters."`
	Descriptor    []string      `sep:"none" placeholder:"K=V,..." help:"Descriptor to make from fields of the log, such as 'user={x-user},path={:path|path}'. Filters: path, lower, ip, prefix:24:64, xff:1. May be repeated."`
	Against       []string      `sep:"none" placeholder:"PATH" help:"Other rules to compare with, a file or directory. May be repeated; each is compared separately."`
	From          string        `placeholder:"TIME" help:"Start time, such as 2026-11-22T09:00:00Z, or without Z in the local time zone. Earlier requests are ignored."`
	To            string        `placeholder:"TIME" help:"End time. Requests at this time and later are ignored."`
	Recommend     *float64      `placeholder:"PERCENT" help:"For each limit, find the smallest number that allows this percentage of its hits, such as 99.9. Reads the logs several times."`
	Reorder       time.Duration `default:"1m" range:"1ms..24h" placeholder:"DURATION" help:"Maximum delay of a line that is out of order."`
	Timeout       time.Duration `default:"1m" range:"0s..1m" placeholder:"DURATION" help:"Timeout of Envoy for calls to the rate limit service. It bounds how long a leaky bucket delays a response."`
	CounterMemory int64         `type:"size" default:"4GiB" range:"1MiB..256GiB" placeholder:"SIZE" help:"Maximum memory for counters, and the same again for keys and for lines waiting to be reordered. Exceeding it is an error."`
	Lenient       bool          `help:"Succeed even if more than one in a hundred lines is skipped."`
	ShowValues    bool          `help:"Print the values of keys, which may be personal data, instead of hashes."`
	Report        string        `placeholder:"FILE" help:"Also write a report with charts to this file (HTML, no scripts). - is standard output, instead of the text."`
	Output        string        `enum:"text,json" default:"text" placeholder:"text|json" short:"o" help:"Output format: text or json."`
	ruleFlags     `embed:""`

	options simulate.Options
}

func (k *simulateCmd) Validate() (err error) {
	if err := checkStdinOnce(k.Logs, k.Config, k.Against, k.Envoy); err != nil {
		return err
	}
	o := &k.options
	for flag, at := range map[string]struct {
		text string
		to   *time.Time
	}{"from": {k.From, &o.From}, "to": {k.To, &o.To}} {
		if *at.to, err = parseMoment(at.text); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if !o.From.IsZero() && !o.To.IsZero() && !o.From.Before(o.To) {
		return fmt.Errorf("--from %s is not before --to %s", k.From, k.To)
	}
	for _, text := range k.Descriptor {
		t, err := simulate.ParseTemplate(text)
		if err != nil {
			return fmt.Errorf("--descriptor %s: %w", text, err)
		}
		o.Templates = append(o.Templates, t)
	}
	if len(k.Envoy) > 0 && len(k.Descriptor) > 0 {
		return errors.New("--envoy and --descriptor are mutually exclusive: Envoy's configuration generates the descriptors")
	}
	if p := k.Recommend; p != nil {
		if !(*p > 0 && *p <= 100) {
			return fmt.Errorf("--recommend %v is out of range: must be a percentage above 0 and at most 100, such as 99.9", *p)
		}
		o.Recommend = *p
	}
	if k.Report == "-" && k.Output != "text" {
		return errors.New("--report - and --output json both write to standard output: name a file for the report")
	}
	if k.Listener != "" && len(k.Envoy) == 0 {
		return errors.New("--listener requires --envoy")
	}
	return nil
}

// parseMoment parses a time. Without an hour it is the start of the day; without a
// zone it is local.
func parseMoment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time: write 2026-11-22T09:00:00Z or 2026-11-22", text)
}

func (k *simulateCmd) Run(ctx context.Context, c console) error {
	ctx, stop := signalContext(ctx)
	defer stop()
	m := newMeter(c.err, k.Logs, time.Now())
	defer m.stop()
	ended := make(chan error, 1)
	go func() { ended <- k.simulate(ctx, c, m) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		// The simulation may be blocked by a terminal or a pipe. It ends with the process.
		return ctx.Err()
	}
}

func (k *simulateCmd) simulate(ctx context.Context, c console, m *meter) error {
	o, err := k.read(c)
	if err != nil {
		return err
	}
	var writeReport func(page func(io.Writer) error) error
	if k.Report != "" && k.Report != "-" {
		if writeReport, err = openReport(k.Report); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if m != nil {
		o.Progress = func(p simulate.Progress) { m.show(time.Now(), p) }
	}
	found, err := simulate.Run(ctx, o)
	m.stop()
	if err != nil {
		return err
	}
	if k.Output == "json" {
		err = c.writeJSON(found)
	}
	found.SetZone(time.Local)
	switch {
	case k.Report == "-":
		err = found.WriteHTML(c.out)
	case k.Output == "text":
		err = found.WriteText(c.out)
	}
	if err != nil {
		return err
	}
	if writeReport != nil {
		if err := writeReport(found.WriteHTML); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if skipped := found.Bad + found.Late; skipped*100 > found.Lines && !k.Lenient {
		remedy := "correct --format"
		if found.Late >= found.Bad {
			remedy = fmt.Sprintf("%v; correct or remove that line, sort the log by time, or raise --reorder",
				found.Ahead)
		}
		return fmt.Errorf("%d of %d lines skipped, more than one in a hundred: %s, or allow it with --lenient", skipped,
			found.Lines, remedy)
	}
	return nil
}

// openReport checks before a long simulation that a report can be written, and returns a function
// that writes it. A regular file is replaced when the page is complete. If it is not empty, it must
// be an earlier report, so that no log or rule file is overwritten.
func openReport(path string) (write func(page func(io.Writer) error) error, err error) {
	mode := os.FileMode(0o644)
	info, err := os.Stat(path)
	switch {
	case err != nil: // a new file
	case !info.Mode().IsRegular():
		out, err := os.OpenFile(path, os.O_WRONLY, 0)
		return func(page func(io.Writer) error) error { return errors.Join(page(out), out.Close()) }, err
	default:
		mode = info.Mode().Perm()
		old, err := os.OpenFile(path, os.O_RDWR, 0) // a file that is read-only is not replaced
		if err != nil {
			return nil, err
		}
		start := make([]byte, len(report.Start))
		_, err = io.ReadFull(old, start)
		_ = old.Close() // nothing was written
		if !errors.Is(err, io.EOF) && string(start) != report.Start {
			return nil, fmt.Errorf("%s exists and is not a report: name another file", path)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	}
	unchanged := errors.New("unchanged")
	if err := replaceReport(path, mode, func(io.Writer) error { return unchanged }); !errors.Is(err, unchanged) {
		return nil, err
	}
	return func(page func(io.Writer) error) error { return replaceReport(path, mode, page) }, nil
}

// replaceReport replaces a file by a page when the page is complete. The temporary file has a name that no
// other file has: even a file that is named like path may be one that the command reads.
func replaceReport(path string, mode os.FileMode, page func(io.Writer) error) error {
	out, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	err = errors.Join(page(out), out.Chmod(mode), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		_ = os.Remove(out.Name())
	}
	return err
}

// read reads the rules and Envoy's configuration, and opens the logs.
func (k *simulateCmd) read(c console) (o simulate.Options, err error) {
	o = k.options
	// All sets of rules hash keys with one random key, so that the hashes in a report reveal
	// nothing.
	key := identity.NewKey()
	if o.Rules, err = k.compile(c, k.Config, key); err != nil {
		return o, err
	}
	o.RulesName = strings.Join(k.Config, ", ")
	quiet := c
	quiet.err = io.Discard // the warnings about tables have been printed
	for _, path := range k.Against {
		set, err := k.compile(quiet, []string{path}, key)
		if err != nil {
			return o, fmt.Errorf("--against: %w", err)
		}
		o.Against = append(o.Against, simulate.Alternative{Name: path, Rules: set})
	}
	if k.Domain != "" {
		names := o.Rules.Domains()
		for _, a := range o.Against {
			names = append(slices.Clip(names), a.Rules.Domains()...)
		}
		if err := checkDomain(k.Domain, names); err != nil {
			return o, err
		}
	}
	if len(k.Envoy) > 0 {
		if o.Envoy, err = readEnvoy(c, k.Envoy); err != nil {
			return o, fmt.Errorf("--envoy: %w", err)
		}
	}
	o.Domain = k.Domain
	o.Listener = k.Listener
	o.Format = k.Format
	o.ShowValues = k.ShowValues
	o.Reorder = k.Reorder
	o.Timeout = k.Timeout
	o.Now = time.Now()
	o.Memory = k.CounterMemory
	o.Logs, err = openLogs(c, k.Logs, k.Recommend != nil)
	return o, err
}

// compile compiles rules that hash keys with the given key.
func (k *simulateCmd) compile(c console, paths []string, key identity.Key) (*descriptors.Set, error) {
	flags := k.ruleFlags
	flags.hashKey = key
	return flags.loadValid(c, paths)
}
