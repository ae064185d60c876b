package load

import (
	"fmt"
	"strconv"
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// template is a request with placeholders for the key number.
type template struct {
	request      *rls.RateLimitRequest
	placeholders []placeholder
}

// placeholder is an entry whose value contains the key number.
type placeholder struct {
	entry          *rlcommon.RateLimitDescriptor_Entry
	prefix, suffix string
}

func newTemplate(c *Config) (*template, error) {
	t := &template{request: &rls.RateLimitRequest{Domain: c.Domain}}
	for text := range strings.SplitSeq(c.Entries, ";") {
		d := &rlcommon.RateLimitDescriptor{}
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return nil, fmt.Errorf("entry %q: must be key=value", pair)
			}
			e := &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value}
			d.Entries = append(d.Entries, e)
			if prefix, suffix, ok := strings.Cut(value, "%d"); ok {
				t.placeholders = append(t.placeholders, placeholder{e, prefix, suffix})
			}
		}
		t.request.Descriptors = append(t.request.Descriptors, d)
	}
	return t, nil
}

// withKey returns the request for a key number. It is valid until the next call.
func (t *template) withKey(number uint64) *rls.RateLimitRequest {
	text := strconv.FormatUint(number, 10)
	for _, p := range t.placeholders {
		p.entry.Value = p.prefix + text + p.suffix
	}
	return t.request
}
