// Package conformance runs recorded cases, configurations with requests and
// their expected answers, against the real binary.
//
// ../testdata/conformance has what envoyproxy/ratelimit answers. exceptions.yaml beside
// it has the few cases in which sluice differs on purpose, each with its reason.
// ../testdata/cases has what only sluice can do.
package conformance

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v4"
)

// Case is one recorded case. It starts with empty counters.
type Case struct {
	Name string
	Tags []string
	Note string
	// Reason says in exceptions.yaml why sluice differs.
	Reason string
	// Env is the environment of the service, Args more flags of serve.
	Env  map[string]string
	Args []string
	// Config has one file per string. Without any, the case uses Rules.
	Config []string
	// Rules is the path of a file of rules.
	Rules string `yaml:"-"`
	Steps []Step
}

// Step is one request, or several equal ones.
type Step struct {
	Domain      string
	Descriptors []Descriptor
	HitsAddend  uint32 `yaml:"hits_addend"`
	// Repeat is how often the request is sent; 0 means once.
	Repeat int
	Expect Expect
}

// Descriptor is a descriptor of a request.
type Descriptor struct {
	Entries    [][2]string
	Limit      *Limit
	HitsAddend *uint64 `yaml:"hits_addend"`
	Refund     bool    `yaml:"is_negative_hits"`
}

// Limit is an override, or the limit of a status.
type Limit struct {
	RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	Unit            string
	Name            string
	UnitMultiplier  uint32 `yaml:"unit_multiplier"`
}

// Expect is the expected answer.
type Expect struct {
	// Overall is OK, OVER_LIMIT or error:<grpc code>.
	Overall  string
	Statuses []Status
	// Metrics are counters after the step, as domain.rule.name.
	Metrics map[string]uint64
	// Series are other series after the step, by their text in /metrics.
	Series map[string]float64
	// Headers are the response headers in order, and RequestHeaders those of the forwarded request;
	// "*" stands for any value. Nil is not checked.
	Headers         []Header
	RequestHeaders  []Header       `yaml:"request_headers"`
	DynamicMetadata map[string]any `yaml:"dynamic_metadata"`
}

// Header is one header.
type Header struct{ Key, Value string }

// Status is the expected status of one descriptor.
type Status struct {
	Code           string
	LimitRemaining uint32 `yaml:"limit_remaining"`
	CurrentLimit   *Limit `yaml:"current_limit"`
	// HasDuration is not checked where it is absent.
	HasDuration *bool `yaml:"has_duration"`
}

// Read reads a file of cases. A misspelt field is an error.
func Read(path string) ([]Case, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cases []Case
	if err := yaml.Load(text, &cases, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cases, nil
}
