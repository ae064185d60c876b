package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"io"
	"slices"
	"strings"
)

// A testPackage is the files of one directory. Calls are resolved by name only.
type testPackage struct {
	dir       string
	files     *token.FileSet
	functions []*function
	// bubbles are the names of functions that run their function arguments in a bubble.
	bubbles map[string]bool
}

// A function is a declaration, or the values of package-level variables.
type function struct {
	name     string
	receiver string
	node     ast.Node
	root     bool
	// Names that it mentions, and uses of the clock, both outside a bubble.
	names    map[string]bool
	findings []finding
}

func newPackage(dir string) *testPackage {
	return &testPackage{dir: dir, files: token.NewFileSet(), bubbles: map[string]bool{"synctest.Test": true}}
}

func opener(text []byte) func(string) (io.ReadCloser, error) {
	return func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
}

// add parses a file, unless a build constraint excludes it.
func (p *testPackage) add(name string, text []byte) error {
	included, err := compiled(name, text)
	if err != nil || !included {
		return err
	}
	file, err := parse(p.files, name, text)
	if err != nil {
		return err
	}
	helper := !strings.HasSuffix(name, "_test.go")
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			p.functions = append(p.functions, &function{name: "a variable", node: decl, root: true})
			continue
		}
		fn := &function{name: f.Name.Name, node: f, root: isRoot(f.Name.Name, helper)}
		if f.Recv != nil {
			fn.receiver = typeName(f.Recv.List[0].Type)
			fn.root = fn.root && helper
		}
		p.functions = append(p.functions, fn)
	}
	return nil
}

func typeName(expr ast.Expr) string {
	name := ""
	ast.Inspect(expr, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// findings returns the uses of the clock in functions that a test reaches outside a bubble.
func (p *testPackage) findings() []finding {
	p.findBubbles()
	anywhere := map[string]bool{}
	for _, f := range p.functions {
		f.names = map[string]bool{}
		p.scan(f)
		// The receiver and the name of the function itself do not count as mentions.
		if d, ok := f.node.(*ast.FuncDecl); ok && d.Body != nil {
			mention(d.Body, anywhere)
		}
	}
	mentioned := map[string]bool{}
	reached := map[*function]bool{}
	for again := true; again; {
		again = false
		for _, f := range p.functions {
			// A method that nobody mentions implements an interface.
			implements := f.receiver != "" && mentioned[f.receiver] && !anywhere[f.name]
			if reached[f] || !f.root && !mentioned[f.name] && !implements {
				continue
			}
			reached[f] = true
			again = true
			for name := range f.names {
				mentioned[name] = true
			}
		}
	}
	var all []finding
	for _, f := range p.functions {
		if reached[f] {
			all = append(all, f.findings...)
		}
	}
	slices.SortStableFunc(all, func(a, b finding) int {
		if c := strings.Compare(a.position.Filename, b.position.Filename); c != 0 {
			return c
		}
		return a.position.Offset - b.position.Offset
	})
	return all
}

func mention(node ast.Node, names map[string]bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names[id.Name] = true
		}
		return true
	})
}

// findBubbles finds functions that call a parameter in a bubble, such as helpers that set a clock up first.
func (p *testPackage) findBubbles() {
	for again := true; again; {
		again = false
		for _, f := range p.functions {
			d, ok := f.node.(*ast.FuncDecl)
			if !ok || d.Body == nil || p.bubbles[f.name] {
				continue
			}
			inside := map[string]bool{}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && p.bubbles[callee(call)] {
					for _, arg := range call.Args {
						mention(arg, inside)
					}
				}
				return true
			})
			for _, field := range d.Type.Params.List {
				if _, ok := field.Type.(*ast.FuncType); !ok {
					continue
				}
				for _, name := range field.Names {
					if inside[name.Name] {
						p.bubbles[f.name] = true
						again = true
					}
				}
			}
		}
	}
}

// callee returns the name of a function of this package or of a package, or "".
func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return qualified(f)
	}
	return ""
}

func qualified(s *ast.SelectorExpr) string {
	if id, ok := s.X.(*ast.Ident); ok {
		return id.Name + "." + s.Sel.Name
	}
	return ""
}

// scan records what a function does outside a bubble.
func (p *testPackage) scan(f *function) {
	node := f.node
	if d, ok := node.(*ast.FuncDecl); ok {
		if d.Body == nil {
			return
		}
		node = d.Body
	}
	ast.Inspect(node, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && p.bubbles[callee(call)] {
			for _, arg := range call.Args {
				if !isFunction(arg) {
					mention(arg, f.names)
				}
			}
			mention(call.Fun, f.names)
			return false
		}
		if id, ok := n.(*ast.Ident); ok {
			f.names[id.Name] = true
		}
		if call := clock(n); call != "" && allowed[p.dir+"."+f.name+" "+call] == "" {
			f.findings = append(f.findings, finding{p.dir, p.files.Position(n.Pos()), f.name, call})
		}
		return true
	})
}

// isFunction reports whether an argument of a bubble is what runs in it.
func isFunction(arg ast.Expr) bool {
	switch a := arg.(type) {
	case *ast.FuncLit, *ast.SelectorExpr, *ast.CallExpr:
		return true
	case *ast.Ident:
		return a.Name != "t"
	}
	return false
}
