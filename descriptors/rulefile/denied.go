package rulefile

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// deniedResponse reads the field denied_response: the name of a preset, or a map. It returns nil if
// it reported an error.
func (p *parser) deniedResponse(path string, f field) *rules.DeniedResponse {
	presets := rules.DeniedPresets()
	if f.value.Kind == yaml.MappingNode {
		return p.deniedMap(path+" > denied_response", f)
	}
	if f.value.Kind != yaml.ScalarNode || isNull(f.value) {
		p.fail(path, f.value, `"denied_response" must be one of %s, or a map with %s, not %s`,
			strings.Join(presets, ", "), strings.Join(deniedFields.names, ", "), kindName(f.value))
		return nil
	}
	name, ok := p.text(path, f)
	d := rules.DeniedPreset(name)
	if ok && d == nil {
		p.fail(path, f.value, "unknown denied_response %q%s (allowed: %s, or a map with %s)", rules.Shorten(name),
			rules.DidYouMean(name, presets), strings.Join(presets, ", "), strings.Join(deniedFields.names, ", "))
	}
	return d
}

// deniedMap reads a response of its own. It returns nil if it reported an error.
func (p *parser) deniedMap(path string, f field) *rules.DeniedResponse {
	before := p.failures
	d := &rules.DeniedResponse{}
	given := map[string]field{}
	for _, g := range p.fields(path, f.value, fieldName) {
		given[g.name] = g
		switch g.name {
		case "content_type", "body", "headers":
		case "grpc":
			d.GRPC = p.strictBool(path, g)
		default:
			p.reportUnknownField(path, deniedFields, g)
		}
	}
	if g, ok := given["content_type"]; ok {
		p.deniedText(path, g, d.SetContentType)
		if _, body := given["body"]; !body {
			p.fail(path, g.key, `"content_type" requires "body"; Envoy drops it otherwise`)
		}
	}
	if g, ok := given["body"]; ok {
		p.deniedText(path, g, d.SetBody)
	}
	if g, ok := given["headers"]; ok {
		p.deniedHeaders(path, g, d)
	}
	if len(given) == 0 {
		p.fail(path, f.value, "denied_response is empty; set one of %s, or write denied_response: none",
			strings.Join(deniedFields.names, ", "))
	}
	if p.failures > before {
		return nil
	}
	return d
}

// deniedHeaders reads the headers of a response.
func (p *parser) deniedHeaders(path string, f field, d *rules.DeniedResponse) {
	if f.value.Kind != yaml.MappingNode {
		p.fail(path, f.value, `"headers" must be a map of names and values, such as { x-plan: free }, not %s`,
			kindName(f.value))
		return
	}
	for _, h := range p.fields(path+" > headers", f.value, writtenKeyText) {
		p.deniedText(path+" > headers", h, func(value string) error { return d.AddHeader(h.name, value) })
	}
}

// deniedText reads a text and passes it to set, whose error it reports.
func (p *parser) deniedText(path string, f field, set func(text string) error) {
	if text, ok := p.text(path, f); ok {
		if err := set(text); err != nil {
			p.fail(path, f.value, "%s", err)
		}
	}
}
