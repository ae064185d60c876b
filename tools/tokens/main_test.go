package main

import "testing"

func TestCount(t *testing.T) {
	const text = "package p // a comment\n\nfunc f() { a(); b() }\n"
	// package p func f ( ) { a ( ) ; b ( ) }
	if got := count([]byte(text)); got != 15 {
		t.Errorf("%d tokens, want 15", got)
	}
}
