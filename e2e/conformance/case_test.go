// Package conformance runs recorded cases, each a configuration with requests and expected answers,
// against the real binary.
//
// ../testdata/conformance contains the answers of envoyproxy/ratelimit, and exceptions.yaml in it
// the few cases in which sluice differs on purpose, with reasons. ../testdata/cases covers features
// that only sluice has.
package conformance

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v4"
)

// Case is a recorded case. It starts with empty counters.
type Case struct {
	Name string
	Tags []string
	Note string
	// Reason is the reason for an exception in exceptions.yaml.
	Reason string
	// Env is the environment of the service; Args contains more flags of serve.
	Env  map[string]string
	Args []string
	// Config contains the text of each file.
	Config []string
	Steps  []Step
}

// Step is a request that is sent once or repeatedly.
type Step struct {
	Domain      string
	Descriptors []Descriptor
	HitsAddend  uint32 `yaml:"hits_addend"`
	// Repeat is the number of times that the request is sent; 0 means once.
	Repeat int
	Expect Expect
}

type Descriptor struct {
	Entries    [][2]string
	Limit      *Limit
	HitsAddend *uint64 `yaml:"hits_addend"`
	Refund     bool    `yaml:"is_negative_hits"`
}

// Limit is an override in a request, or the limit in a status.
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
	// Metrics contains values of counters after the step, by domain.rule.name.
	Metrics map[string]uint64
	// Series contains values of other series after the step, by their text in /metrics.
	Series map[string]float64
	// Headers contains the response headers in order, and RequestHeaders those of the forwarded
	// request. "*" matches any value. Nil is not checked.
	Headers         []Header
	RequestHeaders  []Header       `yaml:"request_headers"`
	DynamicMetadata map[string]any `yaml:"dynamic_metadata"`
}

type Header struct{ Key, Value string }

// Status is the expected status of one descriptor.
type Status struct {
	Code           string
	LimitRemaining uint32 `yaml:"limit_remaining"`
	CurrentLimit   *Limit `yaml:"current_limit"`
	// HasDuration is not checked if it is absent.
	HasDuration *bool `yaml:"has_duration"`
}

// Read reads a file of cases. An unknown field is an error.
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
