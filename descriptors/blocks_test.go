package descriptors

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestBlocksField changes only the field blocks of all kinds of limits. Their policies follow it,
// and their counters stay.
func TestBlocksField(t *testing.T) {
	opt, _ := withTable(t, "row,requests_per_unit,unit\nx,5,day\n")
	with := func(blocks string) *Set {
		return load(t, opt, strings.ReplaceAll(`
domain: d
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 10, BLOCKS}}
  - {key: calendar, rate_limit: {unit: month, requests_per_unit: 10, calendar: true, anchor_day: 3, BLOCKS}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, BLOCKS}}
  - {key: soft, rate_limit: {unit: hour, requests_per_unit: 10, name: n, soft: true, BLOCKS}}
  - {key: shared*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10, BLOCKS}}
  - {key: row, rate_limit: {unit: hour, requests_per_unit: 10, table: t, BLOCKS}}
  - key: list
    rate_limits:
      - {unit: hour, requests_per_unit: 10, BLOCKS}
      - {unit: day, requests_per_unit: 10, BLOCKS}
      - {unit: hour, requests_per_unit: 10, shadow: true, BLOCKS}
`, "BLOCKS", blocks))
	}
	auto, off := with("blocks: auto"), with("blocks: off")
	for _, d := range []Descriptor{
		desc("k", "x"), desc("calendar", "x"), desc("shadow", "x"), desc("soft", "x"), desc("shared1", "x"), desc("row", "x"), desc("list", "x"),
		desc("k", "x").limit(5, int32(rules.Hour), 1),
	} {
		before, after := plan(auto, Global{}, d), plan(off, Global{}, d)
		if len(after.Batch.Charges) != len(before.Batch.Charges) || len(after.Batch.Charges) == 0 {
			t.Fatalf("%s: %d charges, want %d as before", d.Entries[0].Key, len(after.Batch.Charges), len(before.Batch.Charges))
		}
		for i, c := range after.Batch.Charges {
			was := before.Batch.Charges[i]
			if c.ID != was.ID {
				t.Errorf("%s: charge %d has another counter with blocks: off", d.Entries[0].Key, i)
			}
			if !c.Policy.NoBlocks || was.Policy.NoBlocks != d.HasOverride {
				t.Errorf("%s: charge %d has NoBlocks %v with auto, %v with off", d.Entries[0].Key, i, was.Policy.NoBlocks, c.Policy.NoBlocks)
			}
			if text := after.Limits[i].String(); strings.Contains(text, "blocks: off") == d.HasOverride {
				t.Errorf("%s: limit %d is %s", d.Entries[0].Key, i, text)
			}
		}
	}
	if absent := with("count_refused: false"); absent.Hash == off.Hash || with("count_refused: false, blocks: auto").Hash != absent.Hash {
		t.Error("blocks: auto and its absence have different hashes")
	}
	if c := off.Changes(auto); c.Changed != 7 || c.First[0] != "d: k 10/hour -> 10/hour, blocks: off" {
		t.Errorf("the changes are %+v", c)
	}
	if text := off.Explain("d", desc("k", "x").Entries).String(); !strings.Contains(text, "10/hour, algorithm: fixed_window, count_refused: true, blocks: off") {
		t.Errorf("Explain = %s", text)
	}
}
