package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// newReader finds out how the logs are to be read, and where descriptors come from.
func newReader(o *Options) (*reader, error) {
	f, err := accesslog.Recognise(o.Logs, o.Format)
	if err != nil {
		return nil, err
	}
	r := &reader{format: f, from: 0, to: math.MaxInt64, now: o.Now.UnixNano(), shard: o.Shard, duration: -1}
	if !o.From.IsZero() {
		r.from = o.From.UnixNano()
	}
	if !o.To.IsZero() {
		r.to = o.To.UnixNano()
	}
	if r.source, err = newSource(o, f); err != nil {
		return nil, err
	}
	if err := r.wantDurations(o); err != nil {
		return nil, err
	}
	if o.Shard != nil {
		if err := o.Shard.Resolve(f); err != nil {
			return nil, fmt.Errorf("--shard %v: %w", o.Shard, err)
		}
	}
	return r, f.Settle()
}

// newSource finds where descriptors come from: the log itself, Envoy's configuration, or
// templates.
func newSource(o *Options, f *accesslog.Format) (source, error) {
	only := []byte(o.Domain)
	switch {
	case f.Has(accesslog.FieldMetadata):
		return &described{only: only, object: f.Want(accesslog.FieldMetadata)}, nil
	case f.Has("descriptors") && f.Has("domain"):
		d := &described{only: only, object: -1, domain: f.Want("domain"), list: f.Want("descriptors"), hits: f.Want("hits")}
		return d, nil
	case o.Envoy != nil:
		return newEnvoySource(o, f)
	case len(o.Templates) > 0:
		domain, err := oneDomain(o)
		if err != nil {
			return nil, err
		}
		t := &templates{domain: []byte(domain), all: o.Templates}
		return t, t.resolve(f)
	default:
		return nil, fmt.Errorf("what does Envoy ask? The log does not say (add %%DYNAMIC_METADATA(%s)%% to its format, and --dynamic-metadata to sluice serve): "+
			"give its configuration with --envoy, or say it with --descriptor, such as --descriptor 'user={x-user}'; the log has %s",
			accesslog.RateLimitMetadata, f.FieldList())
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
