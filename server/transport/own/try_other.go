//go:build !unix

package own

const canTry = false

func tryRead(uintptr, []byte) (int, error)  { return 0, nil }
func tryWrite(uintptr, []byte) (int, error) { return 0, nil }
