package source

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// TestStartReportsWait has a table whose writer pauses within a line, and one that is complete.
func TestStartReportsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var all []*TableFile
		for name, text := range map[string]string{"whole": tableOf(1), "cut": tableOf(1) + "b,1"} {
			path := filepath.Join(dir, name+".csv")
			write(t, text, path)
			all = append(all, NewTableFile(TableOptions{Table: tables.New(name), Path: path}))
		}
		loads := 0
		g := NewGroup(nil, all, func(Change) error { loads++; return nil })
		var reports []Wait
		g.OnWait(func(w Wait) {
			if w.Waited = w.Waited.Truncate(time.Second); loads > 0 {
				t.Error("OnWait is called after the files were loaded")
			}
			reports = append(reports, w)
		})
		check(t, g.Load(t.Context()))
		var want []Wait
		size := int64(len(tableOf(1) + "b,1"))
		for second := range 5 {
			want = append(want, Wait{Tables: []string{"cut"}, Bytes: []int64{size}, Waited: time.Duration(second) * time.Second, Limit: startTime})
		}
		if diff := cmp.Diff(want, reports); diff != "" {
			t.Errorf("the reports differ (-want +got):\n%s", diff)
		}
		reports = nil
		write(t, tableOf(2), filepath.Join(dir, "cut.csv"))
		check(t, g.Load(t.Context()))
		if len(reports) > 0 {
			t.Errorf("OnWait was called for complete files: %+v", reports)
		}
	})
}
