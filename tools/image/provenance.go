package main

import "encoding/json"

const (
	// predicateType is the type of SLSA's provenance, and payloadType that of an in-toto statement
	// in an envelope.
	predicateType = "https://slsa.dev/provenance/v1"
	payloadType   = "application/vnd.in-toto+json"
	// buildType is the page that describes the build and its parameters.
	buildType = home + "/blob/main/docs/image.md#a-release"
)

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance returns an in-toto statement with the SLSA provenance of files: the commit and the Go
// version from which `make release` built them. It has no times, so it is reproducible.
func provenance(r release, goVersion string, files []resource) ([]byte, error) {
	source := resource{URI: "git+" + home + ".git"}
	if r.revision != "" {
		source.URI += "@" + r.revision
		source.Digest = map[string]string{"gitCommit": r.revision}
	}
	text, err := json.MarshalIndent(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": files, "predicateType": predicateType,
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            buildType,
				"externalParameters":   map[string]string{"version": r.version},
				"internalParameters":   map[string]string{"go": goVersion},
				"resolvedDependencies": []resource{source},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": home + "/blob/main/tools/image"}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}
