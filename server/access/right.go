package access

// Right is what somebody may do on the debug listener.
type Right uint8

// The rights. Who may write may read, too.
const (
	Read  Right = iota + 1 // look
	Write                  // change: reset counters
)
