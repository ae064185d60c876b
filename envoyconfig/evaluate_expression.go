package envoyconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// expression is the type of an extension that computes an entry by CEL, and the kind of its action.
const expression = "envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor"

var (
	requestAttributes = []string{
		"path", "url_path", "host", "scheme", "method", "headers", "referer", "useragent", "time", "id", "protocol", "duration", "size", "total_size", "query",
	}
	quotedText       = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	requestAttribute = regexp.MustCompile(`\brequest\.([A-Za-z_]+)`)
	dashedHeader     = regexp.MustCompile(`\brequest\.headers\.[A-Za-z0-9_]+-[A-Za-z0-9_-]+`)
)

// impossibleExpression returns why an expression never has a value; empty if it may.
func impossibleExpression(text string) string {
	text = quotedText.ReplaceAllString(text, "''")
	text = strings.ReplaceAll(text, ".request.", ".") // a key of metadata
	if found := dashedHeader.FindString(text); found != "" {
		return fmt.Sprintf("%s is a subtraction: write request.headers['%s']", rules.Shorten(found),
			rules.Shorten(strings.TrimPrefix(found, "request.headers.")))
	}
	for _, found := range requestAttribute.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(requestAttributes, found[1]) {
			return "an expression has no attribute " + rules.Shorten(found[0]) +
				rules.DidYouMean(found[1], requestAttributes)
		}
	}
	return ""
}
