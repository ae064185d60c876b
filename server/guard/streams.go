package guard

// remembered is how many of the newest streams are known one by one. A client has
// at most as many bytes of an ended stream on their way as fit into its window, so
// that they come long before it has begun so many others.
const remembered = 4096

// streams tells whose requests are on their way, of the newest streams that the
// client began. The zero value knows of none.
type streams struct {
	begun uint32                  // the streams up to the newest, those passed over included
	live  [remembered / 64]uint64 // a bit for each, by its number modulo remembered
}

// begin takes in a stream, and reports whether it is new.
func (s *streams) begin(id uint32) bool {
	n := id >> 1 // clients have the odd ones
	if n < s.begun {
		return false
	}
	if n-s.begun >= remembered {
		clear(s.live[:])
	} else {
		for i := s.begun; i < n; i++ {
			s.live[i%remembered/64] &^= 1 << (i % 64)
		}
	}
	s.live[n%remembered/64] |= 1 << (n % 64)
	s.begun = n + 1
	return true
}

// end says that nothing of a stream's request is to come, or matters.
func (s *streams) end(id uint32) {
	if n := id >> 1; s.knows(n) {
		s.live[n%remembered/64] &^= 1 << (n % 64)
	}
}

// on reports whether a stream's request is on its way. Of a stream that is not
// remembered it says so too, since what comes for it may be held.
func (s *streams) on(id uint32) bool {
	n := id >> 1
	return !s.knows(n) || s.live[n%remembered/64]>>(n%64)&1 == 1
}

func (s *streams) knows(n uint32) bool { return n < s.begun && s.begun-n <= remembered }
