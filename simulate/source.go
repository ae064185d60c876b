package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// newReadPlan finds out how the logs are to be read, and where descriptors come from.
func newReadPlan(o *Options) (*readPlan, error) {
	f, err := accesslog.Recognise(o.Logs, o.Format)
	if err != nil {
		return nil, err
	}
	r := &readPlan{format: f, from: 0, to: math.MaxInt64, now: o.Now.UnixNano(), shard: o.Shard, duration: -1}
	if !o.From.IsZero() {
		r.from = o.From.UnixNano()
	}
	if !o.To.IsZero() {
		r.to = o.To.UnixNano()
	}
	if r.source, err = newSource(o, f); err != nil {
		return nil, err
	}
	if err := r.selectDuration(o); err != nil {
		return nil, err
	}
	if o.Shard != nil {
		if err := o.Shard.Resolve(f); err != nil {
			return nil, fmt.Errorf("--shard %v: %w", o.Shard, err)
		}
	}
	return r, f.Prepare()
}

// newSource finds where descriptors come from: the log itself, Envoy's configuration, or
// templates.
func newSource(o *Options, f *accesslog.Format) (source, error) {
	only := []byte(o.Domain)
	switch {
	case f.Has(accesslog.FieldMetadata):
		return &loggedCalls{onlyDomain: only, object: f.Select(accesslog.FieldMetadata)}, nil
	case f.Has("descriptors") && f.Has("domain"):
		d := &loggedCalls{onlyDomain: only, object: -1, domain: f.Select("domain"), list: f.Select("descriptors"), hits: f.Select("hits")}
		return d, nil
	case o.Envoy != nil:
		return newEnvoySource(o, f)
	case len(o.Templates) > 0:
		domain, err := oneDomain(o)
		if err != nil {
			return nil, err
		}
		t := &templateSource{domain: []byte(domain), all: o.Templates}
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
