package limiter

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStoredDecideHasEachAlgorithm checks that the comparison with a store covers all algorithms.
func TestStoredDecideHasEachAlgorithm(t *testing.T) {
	covered := map[Algorithm]bool{}
	for i := range storedPolicies {
		covered[storedPolicies[i].Algorithm] = true
	}
	if len(covered) != Algorithms-1 {
		t.Errorf("TestStoredDecide covers %d of %d algorithms", len(covered), Algorithms-1)
	}
}

// TestNoSwitchHidesAnAlgorithm finds switches over algorithms with a default, which would silently
// accept a new algorithm. Without a default the linter requires a case for each algorithm.
func TestNoSwitchHidesAnAlgorithm(t *testing.T) {
	names := []string{"FixedWindow", "SlidingWindow", "SlidingLog", "TokenBucket", "LeakyBucket", "Concurrency"}
	if len(names) != Algorithms-1 {
		t.Errorf("this test has the names of %d of %d algorithms", len(names), Algorithms-1)
	}
	files := token.NewFileSet()
	read := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err != nil || entry.IsDir() && len(name) > 2 && name[0] == '.' {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		read++
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SwitchStmt)
			if !ok || s.Tag == nil {
				return true
			}
			hides, of := false, false
			for _, clause := range s.Body.List {
				c, _ := clause.(*ast.CaseClause)
				hides = hides || c.List == nil
				for _, e := range c.List {
					if selected, ok := e.(*ast.SelectorExpr); ok {
						e = selected.Sel
					}
					name, ok := e.(*ast.Ident)
					of = of || ok && slices.Contains(names, name.Name)
				}
			}
			if of && hides {
				t.Errorf("%v: a switch over algorithms has a default", files.Position(s.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || read < 100 {
		t.Errorf("%d files were read, %v", read, err)
	}
}
