package resp

import "strconv"

// AppendCommand begins a command with the given number of arguments, including its name. Each is
// appended by [AppendArgument].
func AppendCommand(b []byte, arguments int) []byte { return header(b, '*', arguments) }

// AppendArgument appends an argument of arbitrary bytes.
func AppendArgument(b []byte, argument string) []byte {
	b = header(b, '$', len(argument))
	b = append(b, argument...)
	return append(b, '\r', '\n')
}

const digits = "0123456789"

func header(b []byte, kind byte, n int) []byte {
	if n < 10 {
		return append(b, kind, digits[n], '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}
