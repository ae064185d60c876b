package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// mistake replaces the bytes from start to end of a file. The file keeps its number of lines.
type mistake struct {
	file       string // relative to the root
	line       int
	start, end int
	text       string

	oldLine, newLine string // the first line that changes, without indentation
}

func (m mistake) apply(src []byte) []byte {
	return []byte(string(src[:m.start]) + m.text + string(src[m.end:]))
}

var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.GEQ, token.GEQ: token.LSS,
	token.GTR: token.LEQ, token.LEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// finder collects the mistakes of a file.
type finder struct {
	files *token.FileSet
	name  string
	src   []byte
	all   []mistake
}

// mistakes returns those that can be planted in the functions of a file.
func mistakes(name string, src []byte) ([]mistake, error) {
	f := &finder{files: token.NewFileSet(), name: name, src: src}
	file, err := parser.ParseFile(f.files, name, src, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !onlyTexts.MatchString(fn.Name.Name) {
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.all, nil
}

// onlyTexts matches functions that make texts for people, or compile rules.
var onlyTexts = regexp.MustCompile(`(?i)^(string|error|init|explain|describe|warn|compile)`)

// visit reports whether to visit the children of a node.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		return !isText(n)
	case *ast.BinaryExpr:
		f.replaceOperator(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		f.replaceOperator(n.TokPos, n.Tok)
	case *ast.AssignStmt:
		f.replaceOperator(n.TokPos, n.Tok)
	case *ast.BlockStmt:
		f.drop(n.List)
	case *ast.CaseClause:
		f.drop(n.Body)
	case *ast.CommClause:
		f.drop(n.Body)
	}
	return true
}

// hooks are the calls of limiter/hooks_off.go, which do nothing.
var hooks = map[string]bool{"pause": true, "poison": true, "poisonStored": true}

// isText reports whether a call makes or logs the text of an error or message, or does nothing.
func isText(call *ast.CallExpr) bool {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name == "panic" || hooks[fn.Name]
	case *ast.SelectorExpr:
		if of, ok := fn.X.(*ast.Ident); ok {
			switch of.Name {
			case "fmt", "errors", "zap", "status":
				return true
			}
		}
		switch fn.Sel.Name {
		case "Debug", "Info", "Warn", "Error", "Report":
			return true
		}
		return hooks[fn.Sel.Name]
	}
	return false
}

func (f *finder) replaceOperator(pos token.Pos, op token.Token) {
	if other, ok := operators[op]; ok {
		f.add(pos, pos+token.Pos(len(op.String())), other.String())
	}
}

// drop adds the statements of a list. Definitions are needed by those that follow.
func (f *finder) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && isText(call) {
				continue
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.ReturnStmt, *ast.BranchStmt, *ast.SendStmt:
		default:
			continue
		}
		lines := f.files.Position(s.End()).Line - f.files.Position(s.Pos()).Line
		f.add(s.Pos(), s.End(), strings.Repeat("\n", lines))
	}
}

func (f *finder) add(from, to token.Pos, text string) {
	start := f.files.Position(from)
	end := f.files.Position(to)
	m := mistake{file: f.name, line: start.Line, start: start.Offset, end: end.Offset, text: text}
	m.oldLine, m.newLine = lineAt(f.src, m.start), lineAt(m.apply(f.src), m.start)
	if m.newLine == "" {
		m.newLine = "(dropped)"
	}
	f.all = append(f.all, m)
}

// lineAt returns the line around an offset.
func lineAt(src []byte, offset int) string {
	before := string(src[:offset])
	after, _, _ := strings.Cut(string(src[offset:]), "\n")
	return strings.TrimSpace(before[strings.LastIndex(before, "\n")+1:] + after)
}
