package guard

// remembered is how many of the newest streams are known one by one. After a stream has ended, a
// client has at most a window's bytes of it on their way. They come long before the client has
// begun so many other streams.
const remembered = 4096

// streams remembers, of the newest streams that the client began, those whose requests are on
// their way. The zero value knows of none.
type streams struct {
	begun uint32                  // streams up to the newest, including numbers left out
	live  [remembered / 64]uint64 // one bit each, at its number modulo remembered
}

// begin adds a stream and reports whether it is new.
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

// end records that nothing more of a stream's request comes, or that it no longer matters.
func (s *streams) end(id uint32) {
	if n := id >> 1; s.knows(n) {
		s.live[n%remembered/64] &^= 1 << (n % 64)
	}
}

// on reports whether a stream's request is on its way. It is true for a stream that is not
// remembered too, since grpc-go may hold what comes for it.
func (s *streams) on(id uint32) bool {
	n := id >> 1
	return !s.knows(n) || s.live[n%remembered/64]>>(n%64)&1 == 1
}

func (s *streams) knows(n uint32) bool { return n < s.begun && s.begun-n <= remembered }
