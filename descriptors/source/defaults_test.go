package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func algorithmOf(u Update) string {
	if u.Set == nil || len(u.Set.Limits) != 1 {
		return ""
	}
	return rules.AlgorithmName(u.Set.Limits[0].Policy.Algorithm)
}

// TestSourceFollowsDefaults has the file of defaults among the rules, as in a ConfigMap with both.
func TestSourceFollowsDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		defaults := filepath.Join(dir, "defaults.yaml")
		write(t, rulesOf(1), dir, "rules.yaml")
		write(t, "{domain: d, defaults: [{rate_limit: {algorithm: sliding_window}}]}", defaults)
		first, updates := follow(t, Options{Defaults: defaults}, dir)
		if got := algorithmOf(first); got != "sliding_window" {
			t.Fatalf("Load = %+v, want a sliding window", first)
		}
		write(t, "{domain: d, defaults: [{rate_limit: {algorithm: magic}}]}", defaults)
		await(t, updates, "bad defaults", func(u Update) bool {
			return u.Err != nil && u.Set == nil && strings.Contains(u.Err.Error(), defaults+`:1:`)
		})
		write(t, "{domain: d, defaults: [{rate_limit: {algorithm: sliding_window}}]}", defaults)
		await(t, updates, "the first defaults again", func(u Update) bool { return u.Set == first.Set })
		write(t, "{domain: d, defaults: [{rate_limit: {algorithm: token_bucket}}]}", defaults)
		u := await(t, updates, "other defaults", func(u Update) bool { return algorithmOf(u) == "token_bucket" })
		if u.Set.Hash == first.Set.Hash {
			t.Errorf("the hash stays %s with other defaults", u.Set.Hash)
		}
		must.OK(t, os.Remove(defaults))
		await(t, updates, "missing defaults", func(u Update) bool { return u.Err != nil && strings.Contains(u.Err.Error(), defaults) })
	})
}

// TestSourceOfDefaultsOnly reads defaults for rules of another source, and follows the ranges that
// they name.
func TestSourceOfDefaultsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		defaults := filepath.Join(dir, "defaults.yaml")
		write(t, "{domain: d}", defaults)
		first, updates := follow(t, Options{Defaults: defaults})
		if first.Defaults == nil || first.Set != nil || first.Err != nil {
			t.Fatalf("Load = %+v, want only defaults", first)
		}
		write(t, "{domain: }", defaults)
		await(t, updates, "bad defaults", func(u Update) bool { return u.Err != nil && u.Defaults == nil })
		write(t, "{domain: d}", defaults)
		await(t, updates, "the first defaults again", func(u Update) bool { return u.Defaults == first.Defaults })
		write(t, "{domain: e}", defaults)
		await(t, updates, "other defaults", func(u Update) bool { return u.Defaults != nil && u.Defaults != first.Defaults })
		write(t, "10.0.0.0/8\n", dir, "office.txt")
		write(t, "192.0.2.7\n", dir, "lobby.txt")
		write(t, "{domain: e, exempt: [{key: a, cidr: {file: office.txt}}], defaults: [{name: n, cidr: {file: lobby.txt}}]}", defaults)
		ranges := func(n int) func(Update) bool {
			return func(u Update) bool {
				if u.Defaults == nil || len(u.Defaults.ByDomain["e"].Exempt) == 0 {
					return false
				}
				d := u.Defaults.ByDomain["e"]
				return len(d.Exempt[0].Set.Ranges) == n && len(d.Items[0].Set.Ranges) == 1
			}
		}
		await(t, updates, "a range", ranges(1))
		write(t, "10.0.0.0/8\n11.0.0.0/8\n", dir, "office.txt")
		await(t, updates, "another range", ranges(2))
		write(t, "office\n", dir, "office.txt")
		await(t, updates, "a bad range", func(u Update) bool {
			return u.Err != nil && u.Defaults == nil && strings.Contains(u.Err.Error(), "office.txt:1:1: error: ")
		})
	})
}

// TestDefaultsMustBeFile also checks that a link to the file of defaults, as in a ConfigMap volume,
// is not a file of rules.
func TestDefaultsMustBeFile(t *testing.T) {
	dir := t.TempDir()
	write(t, rulesOf(1), dir, "data/rules.yaml")
	write(t, "{domain: d, defaults: [{rate_limit: {algorithm: sliding_log}}]}", dir, "data/words.yaml")
	link(t, "data/words.yaml", dir, "words.yaml")
	set, ds, err := Load([]string{filepath.Join(dir, "data")}, filepath.Join(dir, "words.yaml"), descriptors.Options{})
	if set == nil || err != nil || set.Limits[0].Policy.Window != time.Hour || set.Limits[0].String() != "1/hour, algorithm: sliding_log" {
		t.Errorf("Load = %+v, %v, %v, want a log", set, ds, err)
	}
	for _, name := range []string{filepath.Join(dir, "data"), filepath.Join(dir, "missing.yaml")} {
		if _, _, err := Load([]string{dir}, name, descriptors.Options{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Load with defaults %s: %v, want an error that names it", name, err)
		}
	}
}
