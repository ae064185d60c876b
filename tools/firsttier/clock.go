package main

import "go/ast"

// forbidden are functions that let a test depend on how long something takes.
var forbidden = map[string]bool{
	"time.Sleep": true, "time.Since": true, "time.Until": true, "time.After": true, "time.AfterFunc": true,
	"time.NewTimer": true, "time.NewTicker": true, "time.Tick": true,
	"context.WithTimeout": true, "context.WithDeadline": true,
	"context.WithTimeoutCause": true, "context.WithDeadlineCause": true,
}

var deadlines = map[string]bool{"SetDeadline": true, "SetReadDeadline": true, "SetWriteDeadline": true}

// clock returns the use of the real clock that n is, or "".
func clock(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if name := qualified(n); forbidden[name] {
			return name
		}
		if deadlines[n.Sel.Name] {
			return n.Sel.Name
		}
	case *ast.CompositeLit:
		return clientTimeout(n)
	case *ast.CallExpr:
		return comparison(n)
	}
	return ""
}

func clientTimeout(lit *ast.CompositeLit) string {
	s, ok := lit.Type.(*ast.SelectorExpr)
	if !ok || qualified(s) != "http.Client" {
		return ""
	}
	for _, element := range lit.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Timeout" {
				return "http.Client{Timeout}"
			}
		}
	}
	return ""
}

// comparison finds t.Before(time.Now()), time.Now().After(t) and time.Now().Sub(t).
func comparison(call *ast.CallExpr) string {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) != 1 {
		return ""
	}
	switch s.Sel.Name {
	case "Before", "After", "Compare", "Sub":
		if isNow(s.X) || isNow(call.Args[0]) {
			return s.Sel.Name + " with time.Now()"
		}
	}
	return ""
}

func isNow(expr ast.Expr) bool {
	call, ok := expr.(*ast.CallExpr)
	return ok && callee(call) == "time.Now"
}
