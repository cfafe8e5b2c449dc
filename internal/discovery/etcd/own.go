package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

const (
	// rewrite is how long what was written is left alone before it is written again.
	rewrite = time.Second
	// rewriteSlowly is the same after etcd refused it, and while another machine writes the key too, which is for
	// rivalry after it was seen to.
	rewriteSlowly = 10 * time.Second
	rivalry       = time.Minute
)

// has is what the own key says; the zero value is no key.
type has struct {
	text  []byte
	lease int64
}

// own is what the own key is to say, and what became of it. Its methods may be called from different goroutines.
type own struct {
	key  string // the key
	self cluster.NodeID
	poke chan struct{} // has something when there may be something to do

	mu        sync.Mutex
	node      *cluster.Node // what the key is to say; nil when it is not ours to keep
	withdraw  bool          // the key is to say that this machine has left
	done      bool          // it was so once
	placed    bool          // it was so since it was last to say something else
	fault     error         // why it could not be written last
	tried     time.Time     // when it was tried to write it
	rival     cluster.PublicKey
	rivalSeen time.Time // zero for never
}

// errPending: nobody has tried yet.
var errPending = errors.New("etcd does not have it yet")

// errForeign: the key has the record of another machine.
var errForeign = errors.New("the key has the record of a machine with another key; remove it with etcdctl if it should go")

// want makes node what the key says. It returns why it has never been so; nil once it was, whatever node said.
func (o *own) want(node cluster.Node) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.withdraw {
		o.withdraw, o.done = false, false
	}
	if o.node == nil || !record.Same(*o.node, node) {
		o.node, o.placed, o.tried = &node, false, time.Time{}
	}
	o.wake()
	return o.undone()
}

// leave makes the key say that this machine has left. It returns why it does not say so yet.
func (o *own) leave() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.withdraw {
		o.withdraw, o.done, o.fault, o.tried = true, false, nil, time.Time{}
	}
	o.wake()
	return o.undone()
}

func (o *own) wake() {
	select {
	case o.poke <- struct{}{}:
	default:
	}
}

func (o *own) undone() error {
	switch {
	case o.done:
		return nil
	case o.fault != nil:
		return o.fault
	}
	return errPending
}

// task is what is to be written to the own key. The zero value is nothing.
type task struct {
	text  string
	leave bool          // the text says that this machine has left
	after time.Duration // it is to be done so much later
}

// next returns what is to be done about the own key as it is now, given the lease that it is to have.
func (o *own) next(now time.Time, have has, lease int64) task {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.withdraw && !o.done:
		return o.nextLeaving(now, have)
	case o.withdraw || o.node == nil:
		return task{}
	}
	text := o.text(now, have)
	if lease != 0 && have.lease == lease && bytes.Equal(have.text, text) {
		o.done, o.placed, o.fault = true, true, nil
		return task{}
	}
	return task{text: string(text), after: o.wait(now)}
}

func (o *own) nextLeaving(now time.Time, have has) task {
	current, err := record.Unmarshal(o.key, o.self.Name, have.text)
	switch {
	case isWithdrawn(have.text):
		o.done, o.fault = true, nil
		return task{}
	case err == nil && !o.ours(current):
		o.fault = errForeign
		return task{}
	}
	return task{text: withdrawn + "\n", leave: true, after: o.wait(now)}
}

// text returns what the key is to say: what it says, when that differs only in being older.
func (o *own) text(now time.Time, have has) []byte {
	current, err := record.Unmarshal(o.key, o.self.Name, have.text)
	if err == nil && o.placed && !o.ours(current) {
		theirs, _ := current.CurrentKey()
		o.rival, o.rivalSeen = theirs.Public, now
	}
	if err == nil && record.SameButOlder(current, *o.node) {
		return have.text
	}
	return record.Marshal(*o.node)
}

// ours reports whether a record is this machine's. Until something was published, the name decides.
func (o *own) ours(node cluster.Node) bool {
	if node.ID != o.self || o.node == nil {
		return node.ID == o.self
	}
	theirs, _ := node.CurrentKey()
	for _, key := range o.node.Keys {
		if key.Public == theirs.Public {
			return true
		}
	}
	return false
}

func (o *own) wait(now time.Time) time.Duration {
	pause := rewrite
	if o.fault != nil || o.rivalled(now) {
		pause = rewriteSlowly
	}
	return max(0, pause-now.Sub(o.tried))
}

func (o *own) rivalled(now time.Time) bool {
	return !o.rivalSeen.IsZero() && now.Sub(o.rivalSeen) < rivalry
}

// wrote notes that it was tried to write the key.
func (o *own) wrote(now time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried, o.fault = now, err
}

// problems returns what is wrong with the own key.
func (o *own) problems(now time.Time) []discovery.Problem {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []discovery.Problem
	if o.fault != nil {
		list = append(list, unwritten(o.key, o.fault))
	}
	if o.rivalled(now) {
		list = append(list, discovery.Problem{
			Where:   o.key,
			Message: fmt.Sprintf("another agent writes this machine's record, with key %s…", o.rival.Short()),
			Remedy:  fmt.Sprintf("if another machine is called %s too, give one of them another name", o.self.Name),
		})
	}
	return list
}
