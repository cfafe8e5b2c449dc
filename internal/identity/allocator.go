package identity

import "hash/fnv"

// Allocator gives numbers to label sets and counts their users. The zero value is ready.
//
// A reserved set always has its reserved number. Any other set has a local number from its first
// Acquire to its last Release, and two sets never share one. Its number is PreferredNumber, a
// function of the labels alone, so that a restart finds the numbers that are in the kernel; only when
// another live set has that number already it is the next free one.
type Allocator struct {
	byLabels map[Labels]*allocation
	byNumber map[Number]*allocation
}

type allocation struct {
	number Number
	labels Labels
	users  int
}

// Acquire adds a user to the labels and returns their number.
func (a *Allocator) Acquire(labels Labels) Number {
	if number, ok := Reserved(labels); ok {
		return number
	}
	if live := a.byLabels[labels]; live != nil {
		live.users++
		return live.number
	}
	live := &allocation{number: a.free(PreferredNumber(labels)), labels: labels, users: 1}
	if a.byLabels == nil {
		a.byLabels, a.byNumber = map[Labels]*allocation{}, map[Number]*allocation{}
	}
	a.byLabels[labels], a.byNumber[live.number] = live, live
	return live.number
}

// Release removes a user from the number; with the last one a local number is free again.
// Reserved numbers, and numbers that nobody uses, are left alone.
func (a *Allocator) Release(number Number) {
	live := a.byNumber[number]
	if live == nil {
		return
	}
	if live.users--; live.users == 0 {
		delete(a.byLabels, live.labels)
		delete(a.byNumber, number)
	}
}

// Labels returns the labels of a live local number.
func (a *Allocator) Labels(number Number) (labels Labels, ok bool) {
	if live := a.byNumber[number]; live != nil {
		return live.labels, true
	}
	return Labels{}, false
}

// Len returns how many local numbers are in use.
func (a *Allocator) Len() int { return len(a.byNumber) }

// PreferredNumber returns the local number that labels have unless another live set took it first:
// the FNV-1a hash of the labels, folded into the local scope.
func PreferredNumber(labels Labels) Number {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(labels.joined)) // a hash.Hash never returns an error
	sum := hash.Sum32()
	return LocalMin | Number(sum^sum>>24)&(LocalMin-1)
}

// free returns the first number from preferred on, in the local scope and round its end, that no
// live set has. There is one: 16,777,216 label sets do not fit in memory beside their prefixes.
func (a *Allocator) free(preferred Number) Number {
	for a.byNumber[preferred] != nil {
		preferred = LocalMin | (preferred+1)&(LocalMin-1)
	}
	return preferred
}
