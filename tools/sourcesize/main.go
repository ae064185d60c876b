// Command sourcesize measures the Go files that standard input names. It prints three numbers: tokens
// without comments, statements that assign several independent values, and lines over 120 columns that
// are not comments.
package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	columns = 120
	tab     = "    "
)

func main() {
	var total size
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		text, err := os.ReadFile(names.Text())
		if err == nil {
			err = total.add(text)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "sourcesize:", err)
			os.Exit(1)
		}
	}
	fmt.Println(total.tokens, total.several, total.long)
}

type size struct{ tokens, several, long int }

func (s *size) add(text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		return err
	}
	s.tokens += countTokens(text)
	s.several += countSeveral(file)
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", tab)
		if utf8.RuneCountInString(line) > columns && !strings.HasPrefix(strings.TrimSpace(line), "//") {
			s.long++
		}
	}
	return nil
}

// countTokens leaves out the semicolons that Go adds at the end of a line.
func countTokens(text []byte) int {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(text)), text, nil, 0)
	n := 0
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return n
		}
		if kind != token.SEMICOLON || literal == ";" {
			n++
		}
	}
}

// countSeveral counts a, b := x, y, except in the headers of if, for and switch.
func countSeveral(file *ast.File) int {
	n := 0
	count := func(statements []ast.Stmt) {
		for _, statement := range statements {
			if a, ok := statement.(*ast.AssignStmt); ok && len(a.Rhs) > 1 {
				n++
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BlockStmt:
			count(node.List)
		case *ast.CaseClause:
			count(node.Body)
		case *ast.CommClause:
			count(node.Body)
		}
		return true
	})
	return n
}
