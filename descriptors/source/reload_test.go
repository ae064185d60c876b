package source

import (
	"errors"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// TestReload applies readings in order and checks the calls of OnLoad.
func TestReload(t *testing.T) {
	bad, full := errors.New("bad rules"), errors.New("too many rules")
	sets := map[string]*descriptors.Set{"a": {Hash: "a"}, "b": {Hash: "b"}, "full": {Hash: "full"}}
	var loaded []Update
	built := 0
	r := Reload[string]{OnLoad: func(u Update) error {
		loaded = append(loaded, u)
		if u.Set == sets["full"] {
			return full
		}
		return u.Err
	}}
	for i, step := range []struct {
		key           string
		err           error
		loaded, build bool
	}{
		{"bad", bad, true, true},
		{"bad", bad, false, false},
		{"a", nil, true, true},
		{"a", nil, false, false},
		{"bad", bad, true, true},
		{"a", nil, true, false}, // back to the active reading
		{"full", full, true, true},
		{"full", full, false, false},
		{"a", nil, true, false}, // the rejected reading did not replace it
		{"b", nil, true, true},
		{"a", nil, true, true},
	} {
		loaded, built = nil, 0
		if got, want := r.IsNew(step.key), step.loaded; got != want {
			t.Errorf("step %d: IsNew(%s) = %v, want %v", i, step.key, got, want)
		}
		err := r.Apply(step.key, func() Update {
			built++
			if set := sets[step.key]; set != nil {
				return Update{Set: set}
			}
			return Update{Err: bad}
		})
		if !errors.Is(err, step.err) || (len(loaded) == 1) != step.loaded || (built == 1) != step.build {
			t.Errorf("step %d: Apply(%s) = %v, loaded %v, built %d times, want %+v", i, step.key, err, loaded, built, step)
		}
		if step.loaded && loaded[0].Set != sets[step.key] {
			t.Errorf("step %d: OnLoad got %+v for %s", i, loaded[0], step.key)
		}
	}
}

// TestReloadUsedRules has an OnLoad that rejects the cached set of a reading.
func TestReloadUsedRules(t *testing.T) {
	used := map[*descriptors.Set]bool{}
	r := Reload[string]{OnLoad: func(u Update) error {
		if used[u.Set] {
			return ErrUsed
		}
		used[u.Set] = true
		if u.Set.Hash == "waits" {
			return errors.New("not yet")
		}
		return nil
	}}
	for _, key := range []string{"a", "waits", "a", "waits", "a"} {
		err := r.Apply(key, func() Update { return Update{Set: &descriptors.Set{Hash: key}} })
		if (err != nil) != (key == "waits") {
			t.Errorf("Apply(%s) = %v", key, err)
		}
	}
	if len(used) != 5 {
		t.Errorf("%d sets are loaded, want 5", len(used))
	}
}

func TestDigestSeparatesTexts(t *testing.T) {
	ab, a := Digest([]byte("ab"), []byte("c")), Digest([]byte("a"), []byte("bc"))
	if ab == a || ab != Digest([]byte("ab"), []byte("c")) {
		t.Errorf("digests %x and %x, want equal digests only for equal parts", ab, a)
	}
}
