package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

func newReadPlan(o *Options) (*readPlan, error) {
	f, err := accesslog.Recognise(o.Logs, o.Format)
	if err != nil {
		return nil, err
	}
	r := &readPlan{format: f, from: 0, to: math.MaxInt64, now: o.Now.UnixNano(), duration: -1}
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
	return r, f.Prepare()
}

// newSource returns the source of descriptors: the log itself, Envoy's configuration, or templates.
func newSource(o *Options, f *accesslog.Format) (source, error) {
	only := []byte(o.Domain)
	switch {
	case f.Has(accesslog.FieldMetadata):
		return &loggedCalls{onlyDomain: only, object: f.Select(accesslog.FieldMetadata)}, nil
	case f.Has("descriptors") && f.Has("domain"):
		d := &loggedCalls{
			onlyDomain: only, object: -1, domain: f.Select("domain"), list: f.Select("descriptors"), hits: f.Select("hits"),
		}
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
		return nil, fmt.Errorf("the log has no descriptors; give Envoy's configuration with --envoy, "+
			"or write them with --descriptor, such as --descriptor 'user={x-user}' (to log them, add %%DYNAMIC_METADATA(%s)%% to the format, and --dynamic-metadata to sluice serve); the log has %s",
			accesslog.RateLimitMetadata, f.FieldList())
	}
}

// oneDomain returns the selected domain.
func oneDomain(o *Options) (string, error) {
	if o.Domain != "" {
		return o.Domain, nil
	}
	if all := o.Rules.Domains(); len(all) == 1 {
		return all[0], nil
	}
	return "", fmt.Errorf("the rules do not have one domain but %s; select one with --domain",
		strings.Join(o.Rules.Domains(), ", "))
}
