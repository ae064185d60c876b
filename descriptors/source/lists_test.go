package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const listRules = `domain: d
descriptors:
  - { key: a, cidr: { file: office.txt }, rate_limit: { unit: hour, requests_per_unit: 1, name: office } }
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 1, name: others } }
`

// matches returns the name of the limit of an address.
func matches(set *descriptors.Set, address string) string {
	return set.Match([]byte("d"), []descriptors.Entry{{Key: []byte("a"), Value: []byte(address)}}).Limits[0].Name
}

// TestRangeListFollowed changes a list below the directory of the rules. A bad list is an error
// that names its line, and a return to the active list gives the same rules again.
func TestRangeListFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		list := filepath.Join(dir, "office.txt")
		write(t, listRules, dir, "rules.yaml")
		write(t, "# The office.\n\n10.0.0.0/8 # main\r\n2001:db8::/32\n", list)
		first, updates := follow(t, Options{}, dir)
		must.OK(t, first.Err)
		if got := matches(first.Set, "10.1.2.3") + matches(first.Set, "2001:db8::1") + matches(first.Set, "192.0.2.7"); got != "officeofficeothers" {
			t.Errorf("the limits are %s", got)
		}
		for _, bad := range []struct{ content, want string }{
			{"10.0.0.0/8\nlobby\n  10.1.2.3/8\n", list + ":3:3: error: \"10.1.2.3/8\" has bits outside its length; write 10.0.0.0/8"},
			{"10.0.0.0/8\n192.0.2.0/2", list + `:2:1: error: "192.0.2.0/2" does not end with a newline, so the file may be incomplete`},
			{"", list + ":1:1: error: the file has no ranges"},
			{"# nothing\n", list + ":1:1: error: the file has no ranges"},
			{"10.0.0.0/8\n10.0.0.0/8\n", list + `:2:1: error: domain "d" > key "a" value "file:office.txt": duplicate range 10.0.0.0/8 on this level; first at ` + filepath.Join(dir, "rules.yaml") + ":3:5"},
			{strings.Repeat("x", 1<<20) + "\n", list + `:1:1: error: "xxx`},
			{strings.Repeat("\x00\xff\x1b[2J\n", 100_000), list + ":1:1: error: "},
		} {
			write(t, bad.content, list)
			u := await(t, updates, bad.want, func(u Update) bool { return u.Err != nil && strings.Contains(u.Err.Error(), bad.want) })
			if u.Set != nil || len(u.Err.Error()) > 1<<18 {
				t.Errorf("the update has rules, or an error of %d bytes", len(u.Err.Error()))
			}
		}
		must.OK(t, os.Remove(list))
		await(t, updates, "the removal", func(u Update) bool {
			return u.Err != nil && strings.Contains(u.Err.Error(), filepath.Join(dir, "rules.yaml")+":3:29: error: failed to read the ranges: ") &&
				strings.Contains(u.Err.Error(), "no such file")
		})
		write(t, "10.0.0.0/8\n2001:db8::/32\n192.0.2.7\n", list)
		await(t, updates, "the new list", func(u Update) bool { return u.Err == nil && matches(u.Set, "192.0.2.7") == "office" })
		// A list may contain everything.
		write(t, "0.0.0.0/0\n::/0\n", list)
		await(t, updates, "the list of everything", func(u Update) bool {
			return u.Err == nil && matches(u.Set, "203.0.113.9") == "office" && matches(u.Set, "fe80::1") == "office" && matches(u.Set, "unknown") == "others"
		})
	})
}

// TestRangeListElsewhere has a list in another directory, and rules in two files and a ConfigMap.
func TestRangeListElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		list := filepath.Join(dir, "lists", "office.txt")
		write(t, "10.0.0.0/8\n", list)
		write(t, strings.ReplaceAll(listRules, "office.txt", "../lists/office.txt"), dir, "rules", "a.yaml")
		write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: m }\ndata:\n  b.yaml: |\n    "+
			strings.ReplaceAll(strings.ReplaceAll(listRules, "domain: d", "domain: e"), "\n", "\n    ")+"\n", dir, "rules", "b.yaml")
		write(t, "10.0.0.0/8\n", dir, "rules", "office.txt")
		first, updates := follow(t, Options{}, filepath.Join(dir, "rules"))
		must.OK(t, first.Err)
		write(t, "192.0.2.7\n", list)
		u := await(t, updates, "the new list", func(u Update) bool { return u.Err == nil && matches(u.Set, "192.0.2.7") == "office" })
		if matches(u.Set, "10.1.2.3") != "others" {
			t.Error("the old range still matches")
		}
	})
}

// TestExemptListFollowed changes a list of exempt addresses.
func TestExemptListFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		list := filepath.Join(dir, "office.txt")
		write(t, "domain: d\nexempt:\n  - { key: a, cidr: { file: office.txt } }\n", dir, "rules.yaml")
		write(t, "10.0.0.0/8\n", list)
		first, updates := follow(t, Options{}, dir)
		must.OK(t, first.Err)
		exempts := func(set *descriptors.Set, address string) bool {
			return set.Explain("d", []descriptors.Entry{{Key: []byte("a"), Value: []byte(address)}}).Exempt != ""
		}
		if !exempts(first.Set, "10.1.2.3") || exempts(first.Set, "192.0.2.7") {
			t.Error("the list does not apply")
		}
		write(t, "192.0.2.7\n", list)
		u := await(t, updates, "another list", func(u Update) bool { return u.Err == nil && exempts(u.Set, "192.0.2.7") })
		if c := u.Set.Changes(first.Set); exempts(u.Set, "10.1.2.3") || c.Total() != 1 || c.First[0] != "d: exempt has other values or ranges" {
			t.Errorf("the changes are %q", c.First)
		}
	})
}
