package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
)

// newReader finds out how the logs are to be read, and where descriptors come from.
func newReader(o *Options) (*reader, error) {
	if len(o.Logs) == 0 {
		return nil, errors.New("no log: name a file, or - for standard input")
	}
	f, err := formatOf(o)
	if err != nil {
		return nil, err
	}
	r := &reader{format: f, layout: newLayout(), from: 0, to: math.MaxInt64, now: o.Now.UnixNano(), longest: mostLine, shard: o.Shard}
	if _, several := f.(severalFormat); several {
		r.longest = mostOTLPLine
	}
	if !o.From.IsZero() {
		r.from = o.From.UnixNano()
	}
	if !o.To.IsZero() {
		r.to = o.To.UnixNano()
	}
	if r.source, err = newSource(o, f, r.layout); err != nil {
		return nil, err
	}
	if o.Shard != nil {
		if err := o.Shard.resolve(f, r.layout); err != nil {
			return nil, fmt.Errorf("--shard %s: %w", o.Shard.text, err)
		}
	}
	if len(r.layout.names) > mostSlots {
		return nil, fmt.Errorf("%d fields are wanted: at most %d can be", len(r.layout.names), mostSlots)
	}
	return r, f.use(r.layout)
}

func timeHint(f format) string {
	if _, ok := f.(*textFormat); ok {
		return "add %START_TIME% to --format"
	}
	return "--format 'json time=FIELD'"
}

// newFormat reads --format.
func newFormat(name string, of *sample) (format, error) {
	words := strings.Fields(name)
	if len(words) == 0 || strings.Contains(name, "%") {
		return newTextFormat(name)
	}
	fields, err := fieldNames(words[1:])
	if err != nil {
		return nil, err
	}
	var f format
	switch words[0] {
	case "auto":
		if len(fields) > 0 {
			return nil, errors.New("--format auto: takes no fields: write json or csv before them")
		}
		f, err = recognise(of.lines)
	case "json", "requests":
		f, err = newJSONFormat(fields, of.lines)
	case "otlp":
		f, err = newOTLPFormat(fields, of.lines)
	case "csv":
		f, err = newCSVFormat(fields, of.lines)
	default:
		return nil, fmt.Errorf("--format %q: want auto, json, otlp, csv, requests or a format string of Envoy, such as '%%START_TIME%% %%REQ(:PATH)%%'", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", of, err)
	}
	return f, nil
}

func newJSONFormat(fields map[string]string, sample [][]byte) (*jsonFormat, error) {
	f := &jsonFormat{}
	f.names = fields
	var first error
	for _, line := range sample {
		if err := f.look(line); err != nil && first == nil {
			first = fmt.Errorf("%w: %q", err, shorten(line))
		}
	}
	if len(f.first) == 0 {
		return nil, fmt.Errorf("no line is a JSON object: %w", first)
	}
	return f, f.check()
}

// recognise finds the format that most of the first lines have.
func recognise(sample [][]byte) (format, error) {
	json := 0
	for _, line := range sample {
		if line[0] == '{' {
			json++
		}
	}
	if json*2 > len(sample) {
		if bytes.Contains(sample[0], []byte(`"resourceLogs"`)) {
			return newOTLPFormat(nil, sample)
		}
		return newJSONFormat(nil, sample)
	}
	if f, err := recogniseText(sample); err == nil {
		return f, nil
	}
	if f, err := newCSVFormat(nil, sample); err == nil && f.has(fieldTime) {
		return f, nil
	}
	return nil, errUnrecognised(sample[0])
}

func errUnrecognised(line []byte) error {
	if line[0] == '{' || line[0] == '[' {
		return fmt.Errorf("the lines look like JSON, but most are no objects: write each object on a line of its own, as jq -c does: %q", shorten(line))
	}
	return fmt.Errorf("the line is in no format that is known: give Envoy's format string with --format, such as '%%START_TIME%% %%REQ(:PATH)%%': %q", shorten(line))
}

// recogniseText finds the text format that most of the first lines have.
func recogniseText(sample [][]byte) (*textFormat, error) {
	var best *textFormat
	most := 0
	for _, text := range []string{envoyFormat, istioFormat} {
		f, err := newTextFormat(text)
		if err != nil {
			return nil, err
		}
		if n := fitting(f, sample); n > most {
			best, most = f, n
		}
	}
	if most*2 > len(sample) {
		return best, nil
	}
	return nil, errUnrecognised(sample[0])
}

// fitting counts the lines that have a format.
func fitting(f format, sample [][]byte) int {
	l := newLayout()
	if f.use(l) != nil {
		return 0
	}
	v := newValues(l)
	n := 0
	timed := func() error {
		if v.of[slotTime] == nil {
			return errNoTimeField
		}
		_, err := l.clock(v.of[slotTime])
		return err
	}
	for _, line := range sample {
		v.clear()
		var err error
		if many, ok := f.(severalFormat); ok {
			err = many.readAll(line, v, timed)
		} else if err = f.read(line, v); err == nil {
			err = timed()
		}
		if err == nil {
			n++
		}
	}
	return n
}

// newSource finds where descriptors come from: the log itself, Envoy's configuration, or
// templates.
func newSource(o *Options, f format, l *layout) (source, error) {
	only := []byte(o.Domain)
	switch {
	case f.has(fieldMetadata):
		return &described{only: only, object: l.want(fieldMetadata)}, nil
	case f.has("descriptors") && f.has("domain"):
		d := &described{only: only, object: -1, domain: l.want("domain"), list: l.want("descriptors"), hits: l.want("hits")}
		return d, nil
	case o.Envoy != nil:
		return newEnvoySource(o, f, l)
	case len(o.Templates) > 0:
		domain, err := oneDomain(o)
		if err != nil {
			return nil, err
		}
		t := &templates{domain: []byte(domain), all: o.Templates}
		return t, t.resolve(f, l)
	default:
		return nil, fmt.Errorf("what does Envoy ask? The log does not say (add %%DYNAMIC_METADATA(%s)%% to its format, and --dynamic-metadata to sluice serve): "+
			"give its configuration with --envoy, or say it with --descriptor, such as --descriptor 'user={x-user}'; the log has %s",
			rateLimitMetadata, strings.Join(f.fields(), ", "))
	}
}

// oneDomain returns the domain that is looked at.
func oneDomain(o *Options) (string, error) {
	if o.Domain != "" {
		return o.Domain, nil
	}
	if all := o.Rules.Domains(); len(all) == 1 {
		return all[0], nil
	}
	return "", fmt.Errorf("which domain? The rules have %s: name one with --domain", strings.Join(o.Rules.Domains(), ", "))
}
