package main

import (
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	text := "package p // a comment\n\nfunc f() { a(); b() }\n" +
		"func g() {\n\tx, y := 1, 2\n\tp, q := f()\n\tif v, w := 1, 2; v < w {\n\t\tx, y = y, x\n\t}\n}\n" +
		"var s = `" + strings.Repeat("é", columns) + "`\n// " + strings.Repeat("-", columns) + "\n"
	// package p func f ( ) { a ( ) ; b ( ) }
	// func g ( ) { x , y := 1 , 2 p , q := f ( ) if v , w := 1 , 2 ; v < w { x , y = y , x } }
	// var s = ``
	want := size{tokens: 15 + 41 + 4, several: 2, long: 1}
	var got size
	if err := got.add([]byte(text)); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
