package tables

import (
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestConcurrentApply checks that each of many concurrent calls returns after its own change is
// active.
func TestConcurrentApply(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	var callers sync.WaitGroup
	for c := range 20 {
		callers.Go(func() {
			for i := range 20 {
				key, row := strconv.Itoa(c*1000+i%7), Row{RequestsPerUnit: uint32(i)}
				if err := j.Apply([]string{"a", "b"}, []Change{put("x", key, row)}, false); err != nil {
					t.Error(err)
				}
				if got, ok := j.table.Rows().Get([]string{"x", key}); !ok || got != row {
					t.Errorf("after Apply returned, Get = %v, %t", got, ok)
				}
			}
		})
	}
	callers.Wait()
	want := rowsOf(j.table.Rows())
	must.OK(t, j.Close())
	again, torn := open(t, dir)
	if got := rowsOf(again.table.Rows()); torn > 0 || len(got) != 20*7 || !maps.Equal(got, want) {
		t.Errorf("%d rows, %d torn bytes", len(got), torn)
	}
	if err := j.Apply([]string{"a", "b"}, []Change{put("x", "y", Row{})}, false); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed journal accepted a change: %v", err)
	}
}

// TestApplyReturnsReplacedRows has many callers that change one row concurrently: the replaced rows
// that they get must form one chain.
func TestApplyReturnsReplacedRows(t *testing.T) {
	j, _ := open(t, t.TempDir())
	const most = 400
	var callers sync.WaitGroup
	var replaced [most + 1]atomic.Int32 // number of times that each number was replaced
	for c := range 20 {
		callers.Go(func() {
			for i := range most / 20 {
				changes := []Change{put("x", "y", Row{RequestsPerUnit: uint32(1 + c*most/20 + i)})}
				if err := j.Apply([]string{"a", "b"}, changes, false); err != nil {
					t.Error(err)
				}
				if was := changes[0]; was.Had == (was.Was != Row{}) {
					replaced[was.Was.RequestsPerUnit].Add(1) // 0 if there was no row
				}
			}
		})
	}
	callers.Wait()
	last, _ := j.table.Rows().Get([]string{"x", "y"})
	for number := range replaced {
		want := int32(1)
		if number == int(last.RequestsPerUnit) {
			want = 0
		}
		if got := replaced[number].Load(); got != want {
			t.Errorf("row %d was returned as replaced %d times, want %d", number, got, want)
		}
	}
	deletions := []Change{{Values: []string{"x", "y"}, Delete: true}, {Values: []string{"x", "z"}, Delete: true}}
	if apply(t, j, deletions...); !deletions[0].Had || deletions[0].Was != last || deletions[1].Had {
		t.Errorf("the replaced row of a deletion is %+v", deletions)
	}
}
