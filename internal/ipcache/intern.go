package ipcache

// interner keeps one copy of each value in use and counts its users. Handle 0 is the zero value of K,
// which is never counted.
type interner[K comparable] struct {
	handles map[K]handle
	items   slab[interned[K]]
}

type interned[K comparable] struct {
	value K
	users uint32
}

// acquire adds a user to the value.
func (in *interner[K]) acquire(value K) handle {
	if value == *new(K) {
		return 0
	}
	h := in.handles[value]
	if h != 0 {
		in.items.at(h).users++
		return h
	}
	if in.handles == nil {
		in.handles = map[K]handle{}
	}
	h, item := in.items.alloc()
	*item = interned[K]{value, 1}
	in.handles[value] = h
	return h
}

// acquireLike is acquire for a value that is probably that of likely, which spares the search.
func (in *interner[K]) acquireLike(likely handle, value K) handle {
	if likely != 0 && in.get(likely) == value {
		in.retain(likely)
		return likely
	}
	return in.acquire(value)
}

// retain adds a user to a value that has one.
func (in *interner[K]) retain(h handle) {
	if h != 0 {
		in.items.at(h).users++
	}
}

// release removes a user; with the last one the value is forgotten.
func (in *interner[K]) release(h handle) {
	if h == 0 {
		return
	}
	item := in.items.at(h)
	if item.users--; item.users == 0 {
		delete(in.handles, item.value)
		in.items.release(h)
	}
}

// find returns the handle of a value in use, 0 when nobody uses it.
func (in *interner[K]) find(value K) handle { return in.handles[value] }

// get returns the value of a handle in use.
func (in *interner[K]) get(h handle) K {
	if h == 0 {
		return *new(K)
	}
	return in.items.at(h).value
}
