package server

// A place is where a request may panic in a build with the tag sluicetorture; see
// mayPanic.
type place uint8

const (
	inDecoding place = iota // nothing is known of the request yet
	inMatching              // it is decoded, and matches nothing yet
	inDeciding              // its counters are charged, and its reply is not written
	places
)
