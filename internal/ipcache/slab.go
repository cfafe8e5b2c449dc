package ipcache

// handle names an element of a slab or an interned value. 0 names none. Handles are half the size of
// pointers, and memory that holds no pointers is nothing for the garbage collector to scan.
type handle uint32

const chunkLen = 512

// slab holds elements of one type at addresses that never move. It grows by chunks, so that growing
// copies nothing and wastes less than one chunk.
type slab[T any] struct {
	chunks []*[chunkLen]T
	used   uint32
	free   []handle
}

// alloc returns a zero element.
func (s *slab[T]) alloc() (handle, *T) {
	if last := len(s.free) - 1; last >= 0 {
		h := s.free[last]
		s.free = s.free[:last]
		return h, s.at(h)
	}
	if int(s.used) == len(s.chunks)*chunkLen {
		s.chunks = append(s.chunks, new([chunkLen]T))
	}
	s.used++
	h := handle(s.used)
	return h, s.at(h)
}

// at returns the element of h, which must be alive.
func (s *slab[T]) at(h handle) *T {
	return &s.chunks[(h-1)/chunkLen][(h-1)%chunkLen]
}

// release zeroes the element and lets alloc hand it out again.
func (s *slab[T]) release(h handle) {
	*s.at(h) = *new(T)
	s.free = append(s.free, h)
}
