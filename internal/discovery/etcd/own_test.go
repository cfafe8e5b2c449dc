package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"warren/internal/cluster"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

func newOwn() *own {
	return &own{key: testLayout.node(self), self: self, poke: make(chan struct{}, 1)}
}

// TestTasks: what is to be done about the own key in each situation, long after it was written last.
func TestTasks(t *testing.T) {
	node, other, later := recordtest.Sample("n1", 1), recordtest.Sample("n1", 2), recordtest.Sample("n1", 1)
	later.Issued = later.Issued.Add(time.Hour)
	text, left := string(record.Marshal(node)), "withdrawn\n"
	want := func(node cluster.Node) func(*own) { return func(o *own) { _ = o.want(node) } }
	leave := func(o *own) { _ = o.leave() }
	then := func(steps ...func(*own)) func(*own) {
		return func(o *own) {
			for _, step := range steps {
				step(o)
			}
		}
	}
	write, bye, nothing := task{text: text}, task{text: left, leave: true}, task{}
	for _, test := range []struct {
		name   string
		before func(*own)
		have   has
		lease  int64
		want   task
		done   bool
	}{
		{name: "nothing was published", before: func(*own) {}, have: has{[]byte("x"), 0}, want: nothing},
		{name: "no key yet", before: want(node), want: write},
		{name: "the key is as it should be", before: want(node), have: has{[]byte(text), 7}, lease: 7, want: nothing, done: true},
		{name: "it has the lease of an earlier agent", before: want(node), have: has{[]byte(text), 6}, lease: 7, want: write},
		{name: "it has no lease", before: want(node), have: has{[]byte(text), 0}, lease: 0, want: write},
		{name: "it is older, and says the same", before: want(later), have: has{[]byte(text), 7}, lease: 7, want: nothing, done: true},
		{name: "somebody has altered it", before: want(node), have: has{[]byte("garbage"), 7}, lease: 7, want: write},
		{name: "somebody says that this machine has left", before: want(node), have: has{[]byte(left), 0}, lease: 7, want: write},
		{name: "this machine leaves", before: then(want(node), leave), have: has{[]byte(text), 7}, lease: 7, want: bye},
		{name: "it leaves without a key", before: leave, want: bye},
		{name: "it has left", before: leave, have: has{[]byte(left), 9}, want: nothing, done: true},
		{name: "it leaves, and the key is another's", before: then(want(node), leave), have: has{record.Marshal(other), 7}, lease: 7, want: nothing},
		{name: "it leaves, and does not know its key", before: leave, have: has{record.Marshal(other), 7}, want: bye},
		{name: "it stays after all", before: then(want(node), leave, want(node)), have: has{[]byte(left), 9}, lease: 7, want: write},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOwn()
			test.before(o)
			if diff := cmp.Diff(test.want, o.next(time.Now(), test.have, test.lease), cmp.AllowUnexported(task{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if o.done != test.done {
				t.Errorf("done: %t", o.done)
			}
		})
	}
}

// TestPatience: how long what was written is left alone.
func TestPatience(t *testing.T) {
	node, rival := recordtest.Sample("n1", 1), record.Marshal(recordtest.Sample("n1", 2))
	start := time.Now()
	for _, test := range []struct {
		name string
		have has
		err  error
		at   time.Duration
		want time.Duration
	}{
		{"somebody deleted it at once", has{}, nil, 300 * time.Millisecond, 700 * time.Millisecond},
		{"somebody deleted it later", has{}, nil, 3 * time.Second, 0},
		{"etcd refused it", has{}, rpctypes.ErrPermissionDenied, time.Second, 9 * time.Second},
		{"another machine writes it", has{rival, 5}, nil, time.Second, 9 * time.Second},
		{"another machine writes it, and it is time", has{rival, 5}, nil, 10 * time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOwn()
			_ = o.want(node)
			o.next(start, has{record.Marshal(node), 7}, 7)
			o.wrote(start, test.err)
			if got := o.next(start.Add(test.at), test.have, 7).after; got != test.want {
				t.Errorf("written after %v, want %v", got, test.want)
			}
		})
	}
}

// TestNewsAreNotPutOff: what is new is written at once, however lately the key was written.
func TestNewsAreNotPutOff(t *testing.T) {
	o, now := newOwn(), time.Now()
	_ = o.want(recordtest.Sample("n1", 1))
	o.wrote(now, nil)
	next := recordtest.Sample("n1", 2)
	_ = o.want(next)
	if got := o.next(now, has{says("n1", 1), 7}, 7); got != (task{text: string(record.Marshal(next))}) {
		t.Errorf("after %v:\n%s", got.after, got.text)
	}
}

// TestSaidOfTheOwnKey: what a caller and an operator are told.
func TestSaidOfTheOwnKey(t *testing.T) {
	o, now := newOwn(), time.Now()
	node := recordtest.Sample("n1", 1)
	if err := o.want(node); !errors.Is(err, errPending) {
		t.Errorf("published before anybody wrote: %v", err)
	}
	o.wrote(now, rpctypes.ErrPermissionDenied)
	if err := o.want(node); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("refused: %v", err)
	}
	earlier := has{record.Marshal(recordtest.Sample("n1", 2)), 5}
	o.next(now, earlier, 7)
	if said := o.problems(now); len(said) > 1 {
		t.Errorf("an earlier key of this machine is taken for a rival's: %v", said)
	}
	o.next(now, has{record.Marshal(node), 7}, 7)
	o.wrote(now, rpctypes.ErrPermissionDenied)
	o.next(now, earlier, 7)
	var said []string
	for _, p := range o.problems(now) {
		said = append(said, p.String())
	}
	if diff := cmp.Diff([]string{
		"/warren/v1/nodes/n1: this machine's record cannot be written: permission denied; let a role of this node's user do it: " +
			"etcdctl role grant-permission ROLE readwrite /warren/v1/nodes/n1; until it can, other machines do not have it",
		"/warren/v1/nodes/n1: another agent writes this machine's record, with key AgICAgIC…; if another machine is called n1 too, give one of them another name",
	}, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o.next(now, has{record.Marshal(node), 7}, 7)
	if err := o.want(recordtest.Sample("n1", 3)); err != nil {
		t.Errorf("it was there once, and changes: %v", err)
	}
	if left := o.problems(now.Add(2 * rivalry)); len(left) > 0 {
		t.Errorf("problems left: %v", left)
	}
}
