package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestWorkflowCommands verifies the escapes of GitHub Actions.
func TestWorkflowCommands(t *testing.T) {
	for want, l := range map[string]finding{
		"::error file=a/b.yaml,line=3,col=5,title=sluice error::domain \"d\": 100%25 wrong%0Atwice": {
			Severity: "error", File: "a/b.yaml", Line: 3, Column: 5, Path: `domain "d"`, Message: "100% wrong\ntwice",
		},
		"::notice file=C%3A%2Cx%25.yaml,title=sluice unknown::not known": {Severity: "note", Code: "unknown", File: "C:,x%.yaml", Message: "not known"},
		"::warning title=sluice unsent::none: sent, not":                 {Severity: "warning", Code: "unsent", Message: "none: sent, not"},
	} {
		if got := workflowCommand(&l); got != want {
			t.Errorf("%+v is\n%s, want\n%s", l, got, want)
		}
	}
}

// TestSARIF verifies that a log has the fields that the specification requires, with and without
// findings.
func TestSARIF(t *testing.T) {
	for _, lines := range [][]finding{nil, {{Severity: "note", Code: "a", File: "a: b/50%#?\u00e4.yaml", Message: "m"}, {Severity: "error", File: "a: b/50%#?\u00e4.yaml", Line: 2, Message: "n"}}} {
		var b bytes.Buffer
		must.OK(t, (console{out: &b}).writeAnnotations("sarif", lines))
		var log struct {
			Version string
			Runs    []struct {
				Tool    struct{ Driver struct{ Name string } }
				Results *[]struct {
					RuleID, Level string
					Message       struct{ Text string }
					Locations     []struct {
						PhysicalLocation struct {
							ArtifactLocation struct{ URI string }
							Region           *struct{ StartLine, StartColumn int }
						}
					}
				}
			}
		}
		must.OK(t, json.Unmarshal(b.Bytes(), &log))
		if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name != "sluice" || log.Runs[0].Results == nil || len(*log.Runs[0].Results) != len(lines) {
			t.Fatalf("%s", b.String())
		}
		for i, r := range *log.Runs[0].Results {
			place := r.Locations[0].PhysicalLocation
			if r.Level != lines[i].Severity || r.RuleID == "" || r.Message.Text != lines[i].Message || place.ArtifactLocation.URI != "./a:%20b/50%25%23%3F%C3%A4.yaml" ||
				(place.Region != nil) != (lines[i].Line > 0) || place.Region != nil && place.Region.StartColumn != 1 {
				t.Errorf("result %d: %+v", i, r)
			}
		}
	}
}

func TestFindingsOfError(t *testing.T) {
	lines := findingsOf(errors.New("a.yaml:3:4: error: x: y\n\nb.yaml:7: z\nno position: here"))
	want := []finding{
		{Severity: "error", File: "a.yaml", Line: 3, Column: 4, Message: "x: y"},
		{Severity: "error", File: "b.yaml", Line: 7, Message: "z"},
		{Severity: "error", Message: "no position: here"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%+v", lines)
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("line %d is %+v, want %+v", i, lines[i], want[i])
		}
	}
}
