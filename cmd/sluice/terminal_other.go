//go:build !unix

package main

import "os"

func isTerminal(*os.File) bool { return false }

func (s *screen) size() (width, height int) { return 80, 24 }
