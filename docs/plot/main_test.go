package main

import (
	"os"
	"strings"
	"testing"
)

// TestPicture checks that the committed picture is current.
func TestPicture(t *testing.T) {
	rows, err := decideAll()
	if err != nil {
		t.Fatal(err)
	}
	const file = "../algorithms.svg"
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if draw(rows) != string(committed) {
		t.Errorf("%s is outdated; run go run ./docs/plot > docs/algorithms.svg", file)
	}
}

// TestPromises checks that each algorithm keeps its bound in the picture, and that the traffic
// reaches it.
func TestPromises(t *testing.T) {
	rows, err := decideAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name string
		most int
	}{
		{"fixed_window", 2 * limit},
		{"sliding_window", limit},
		{"sliding_log", limit},
		{"token_bucket", 5 + limit - 1},
		{"leaky_bucket", limit},
		{"concurrency", 12},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(rows), len(want))
	}
	for i, w := range want {
		r := &rows[i]
		if r.name != w.name || r.most != w.most {
			t.Errorf("row %d: %s admits %d in a second, want %s, %d", i, r.name, r.most, w.name, w.most)
		}
		if got := len(r.released) + len(r.denied); got != len(offered()) {
			t.Errorf("%s: %d answers, want %d", r.name, got, len(offered()))
		}
		for j := 1; r.name == "leaky_bucket" && j < len(r.released); j++ {
			if r.released[j]-r.released[j-1] < second/limit {
				t.Errorf("leaky_bucket: released at %d and %d ms", r.released[j-1], r.released[j])
			}
		}
		if !strings.Contains(draw(rows), `">`+r.name+`</text>`) {
			t.Errorf("%s is missing in the picture", r.name)
		}
	}
}
