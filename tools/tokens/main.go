// Command tokens counts the Go tokens, without comments, of the files that standard input names.
package main

import (
	"bufio"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
)

func main() {
	total := 0
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		text, err := os.ReadFile(names.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, "tokens:", err)
			os.Exit(1)
		}
		total += count(text)
	}
	fmt.Println(total)
}

// count leaves out the semicolons that Go adds at the end of a line.
func count(text []byte) int {
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
