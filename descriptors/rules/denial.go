package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"slices"
	"strings"
)

// Bounds of a response to a denied request. The bytes are those after substitution.
const (
	maxDenialBody        = 4096
	maxDenialHeaders     = 16
	maxDenialHeaderValue = 1024
)

// DeniedResponse is the field denied_response: the response that Envoy sends for a denied request.
// It is valid and immutable.
type DeniedResponse struct {
	// Preset is the name of the preset, or empty for a response of its own.
	Preset      string
	ContentType string
	// Body is nil if the response has none.
	Body *DeniedText
	// Never replaces the body of a preset if no time to wait would admit the request.
	Never   *DeniedText
	Headers []DeniedHeader
	// RetryMillis adds retry-after-ms and, after long waits, x-should-retry, which the clients of
	// OpenAI and Anthropic read.
	RetryMillis bool
	// GRPC adds the headers that clients of gRPC read.
	GRPC bool
}

// DescribesLimit reports whether the body or a header contains the name or a number of the limit
// that denied, other than the time to wait.
func (d *DeniedResponse) DescribesLimit() bool {
	return d.Body.describesLimit() ||
		slices.ContainsFunc(d.Headers, func(h DeniedHeader) bool { return h.Value.describesLimit() })
}

// DeniedHeader is a header of a [DeniedResponse].
type DeniedHeader struct {
	Name  string
	Value *DeniedText
}

// deniedPresets are the named responses, in the order of the documentation.
var deniedPresets = []*DeniedResponse{
	{Preset: "none"},
	newPreset("text", "text/plain; charset=utf-8",
		"Too many requests: the limit {name} is exceeded. Try again in {retry_after} seconds.\n", false),
	newPreset("problem", "application/problem+json",
		`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
			`"title":"Request cannot be satisfied as assigned quota has been exceeded",`+
			`"detail":"The limit {name} is exceeded. Try again in {retry_after} seconds.",`+
			`"violated-policies":{`+violatedPolicies+`}}`+"\n", false),
	newPreset("openai", "application/json",
		`{"error":{"message":"Rate limit {name} reached. Please try again in {retry_after}s.",`+
			`"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`+"\n", true),
	newPreset("anthropic", "application/json",
		`{"type":"error","error":{"type":"rate_limit_error",`+
			`"message":"Rate limit {name} reached. Please try again in {retry_after}s."}}`+"\n", true),
}

// retrySentence is the end of each text of a preset.
var retrySentence = regexp.MustCompile(`(Try|Please try) again in \{retry_after\} ?s(econds)?\.`)

// newPreset returns a preset. retryMillis adds the headers for the clients of OpenAI and Anthropic.
func newPreset(name, contentType, body string, retryMillis bool) *DeniedResponse {
	isJSON := isJSONType(contentType)
	never := retrySentence.ReplaceAllString(body, "The request has more hits than it ever admits.")
	return &DeniedResponse{
		Preset: name, ContentType: contentType, RetryMillis: retryMillis,
		Body: preset(body, isJSON), Never: preset(never, isJSON),
	}
}

// DeniedPreset returns the response with the given name, or nil.
func DeniedPreset(name string) *DeniedResponse {
	for _, d := range deniedPresets {
		if d.Preset == name {
			return d
		}
	}
	return nil
}

// DeniedPresets returns the names of all presets.
func DeniedPresets() []string {
	names := make([]string, len(deniedPresets))
	for i, d := range deniedPresets {
		names[i] = d.Preset
	}
	return names
}

// IsNone reports whether d adds nothing to a denial. It is true for nil.
func (d *DeniedResponse) IsNone() bool { return d == nil || d.Preset == "none" }

// String returns the response as a rule file spells it, with the fields of a map as JSON.
func (d *DeniedResponse) String() string {
	if d.Preset != "" {
		return d.Preset
	}
	fields := []string{}
	add := func(name string, value any) {
		text, _ := json.Marshal(value) // strings and maps of strings
		fields = append(fields, name+": "+string(text))
	}
	if d.ContentType != "" {
		add("content_type", d.ContentType)
	}
	if d.Body != nil {
		add("body", d.Body.text)
	}
	if len(d.Headers) > 0 {
		headers := map[string]string{}
		for _, h := range d.Headers {
			headers[h.Name] = h.Value.text
		}
		add("headers", headers)
	}
	if d.GRPC {
		add("grpc", true)
	}
	return "{ " + strings.Join(fields, ", ") + " }"
}

// SetContentType sets the content type. The error says why it is invalid.
func (d *DeniedResponse) SetContentType(text string) error {
	media, _, err := mime.ParseMediaType(text)
	if err != nil || !strings.Contains(media, "/") || !isHeaderValue(text) || len(text) > maxDenialHeaderValue {
		return fmt.Errorf(`"content_type" must be a media type such as application/json, not %q`, Shorten(text))
	}
	d.ContentType = text
	return nil
}

// SetBody sets the body. The content type must be set before. The error says why the body is
// invalid.
func (d *DeniedResponse) SetBody(text string) error {
	if strings.ContainsRune(text, 0) {
		return errors.New(`"body" has a NUL byte; remove it`)
	}
	isJSON := isJSONType(d.ContentType)
	t, err := newTemplate(text, isJSON)
	if err != nil {
		return err
	}
	if n := t.maxBytes(); n > maxDenialBody {
		return fmt.Errorf(`"body" has up to %d bytes with the longest values of its placeholders; the maximum is %d`, n,
			maxDenialBody)
	}
	unnamed := t.Append(nil, &DenialValues{})
	named := t.Append(nil, &DenialValues{Name: []byte("n"), Domain: []byte("d")})
	if isJSON && (!json.Valid(unnamed) || !json.Valid(named)) {
		return fmt.Errorf(`"body" is not valid JSON, but "content_type" is %s; put {name} and {domain} in quotes, the other placeholders are numbers`, d.ContentType)
	}
	d.Body = t
	return nil
}

// AddHeader adds a header. The error says why it is invalid.
func (d *DeniedResponse) AddHeader(name, value string) error {
	if err := deniedHeaderError(name); err != nil {
		return err
	}
	if slices.ContainsFunc(d.Headers, func(h DeniedHeader) bool { return strings.EqualFold(h.Name, name) }) {
		return fmt.Errorf("the header %q is a duplicate; names do not depend on letter case", Shorten(name))
	}
	if len(d.Headers) == maxDenialHeaders {
		return fmt.Errorf("the header %q is one too many; the maximum is %d headers", Shorten(name), maxDenialHeaders)
	}
	if !isHeaderValue(value) {
		return fmt.Errorf("the value %q of the header %q has a control character, or a space at its start or end; remove it", Shorten(value), name)
	}
	t, err := newTemplate(value, false)
	if err != nil {
		return err
	}
	if n := t.maxBytes(); n > maxDenialHeaderValue {
		return fmt.Errorf("the value of the header %q has up to %d bytes with the longest values of its placeholders; the maximum is %d", name, n, maxDenialHeaderValue)
	}
	d.Headers = append(d.Headers, DeniedHeader{name, t})
	return nil
}

// deniedHeaderError returns an error if a response must not have a header of this name: it is not a
// token of RFC 9110, or sluice, Envoy or the protocol sets the header.
func deniedHeaderError(name string) error {
	if name == "" ||
		strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("%q is not the name of a header; it must be a token of RFC 9110, such as x-plan",
			Shorten(name))
	}
	lower := strings.ToLower(name)
	switch lower {
	case "content-type":
		return fmt.Errorf(`the header %q is reserved; set "content_type" instead`, name)
	case "retry-after":
		return fmt.Errorf("the header %q is reserved; sluice adds it to each denied_response", name)
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "upgrade",
		"date", "server":
		return fmt.Errorf("the header %q is reserved for HTTP and Envoy; remove it", name)
	}
	if strings.HasPrefix(lower, "grpc-") {
		return fmt.Errorf(`the header %q is reserved; "grpc: true" adds the headers of gRPC`, Shorten(name))
	}
	if strings.HasPrefix(lower, "x-envoy-") {
		return fmt.Errorf("the header %q is reserved for HTTP and Envoy; remove it", Shorten(name))
	}
	return nil
}

// IsReservedHeader reports whether sluice must not add a header of this name by configuration: the
// name is not a token of RFC 9110, or the protocol, Envoy or sluice uses it.
func IsReservedHeader(name string) bool { return deniedHeaderError(name) != nil }

// isHeaderValue reports whether text is safe as the value of a header.
func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, IsControl) && strings.Trim(text, " ") == text
}

// isJSONType reports whether values in a body of this type need JSON's escapes.
func isJSONType(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}
