//go:build !unix

package main

import "os"

func isTerminal(*os.File) bool { return false }
