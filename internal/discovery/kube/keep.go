package kube

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

const (
	// pace is how long what was written is left alone before it is written again.
	pace = time.Second
	// firstRetry doubles with every failure in a row, up to lastRetry.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// underWay is how long it is no news that a record is not there yet.
	underWay = 5 * time.Second
	// A rival is forgotten when it was not seen for rivalry. From the second time on the record is written
	// again only after firstTruce, which doubles up to lastTruce.
	rivalry               = 15 * time.Minute
	firstTruce, lastTruce = 10 * time.Second, 5 * time.Minute
)

// own is what the API says that concerns the own record.
type own struct {
	read      bool  // everything was read once
	entry     entry // zero when there is none
	node      node
	nodeThere bool
}

// keeping is how the own record is kept as it was published. It is a value: look and wrote make new ones.
type keeping struct {
	wanted *cluster.Node // nil when the record is not ours to keep
	since  time.Time     // when it was missing first
	kept   bool          // the API had it when it was last looked at

	tried    time.Time // when it was last written
	failures int       // in a row
	fault    error     // of the last one
	rival    rival
}

// rival is another agent that was seen to write this machine's record, with a key of its own. Two that
// believe to be the same machine overwrite each other for ever; slowly, and not silently.
type rival struct {
	key   cluster.PublicKey
	seen  time.Time // zero for never
	times int
}

// want makes node the record that is kept. One that the API has, and that differs only in being older, will
// do.
func (k keeping) want(node cluster.Node, seen own, now time.Time) keeping {
	if says := seen.entry.slot.Says(); says != nil && record.SameButOlder(*says, node) {
		node = *says
	}
	if k.wanted == nil || !record.Same(*k.wanted, node) {
		k.wanted, k.since, k.kept = &node, now, false
	}
	return k.look(seen, now)
}

// look takes in what the API has.
func (k keeping) look(seen own, now time.Time) keeping {
	if k.wanted == nil {
		return keeping{}
	}
	had := k.kept
	k.kept = seen.has(*k.wanted)
	switch {
	case k.kept:
		k.failures, k.fault = 0, nil
	case had:
		k.since = now
	}
	if says := seen.entry.slot.Says(); had && !k.kept && says != nil && !shareKey(*says, *k.wanted) {
		key, _ := says.CurrentKey()
		k.rival = rival{key: key.Public, seen: now, times: k.rival.times + 1}
	}
	if now.Sub(k.rival.seen) >= rivalry {
		k.rival = rival{}
	}
	return k
}

// has reports whether the record is there as it should be, and belongs to the Node.
func (o own) has(wanted cluster.Node) bool {
	says := o.entry.slot.Says()
	return says != nil && record.Same(*says, wanted) && slices.Equal(o.entry.owners, []types.UID{o.node.uid})
}

// shareKey reports whether two records have a key in common, which only one machine's have.
func shareKey(a, b cluster.Node) bool {
	return slices.ContainsFunc(a.Keys, func(x cluster.Key) bool {
		return slices.ContainsFunc(b.Keys, func(y cluster.Key) bool { return x.Public == y.Public })
	})
}

// wrote takes in how writing went.
func (k keeping) wrote(err error, now time.Time) keeping {
	k.tried, k.fault = now, err
	if err != nil {
		k.failures++
	} else {
		k.failures = 0
	}
	return k
}

// due returns how long the record is to be left alone: 0 when it is to be written now, and never (false) as
// long as nothing changes.
func (k keeping) due(seen own, now time.Time) (time.Duration, bool) {
	if k.wanted == nil || k.kept || !seen.read || !seen.nodeThere {
		return 0, false
	}
	return max(0, k.tried.Add(k.pause()).Sub(now)), true
}

func (k keeping) pause() time.Duration {
	switch {
	case k.failures > 0:
		return doubled(firstRetry, k.failures-1, lastRetry)
	case k.rival.times > 1:
		return doubled(firstTruce, k.rival.times-2, lastTruce)
	}
	return pace
}

func doubled(first time.Duration, times int, most time.Duration) time.Duration {
	return min(first<<min(times, 20), most)
}

// err says why the record is not there.
func (k keeping) err(seen own, now time.Time) error {
	switch {
	case k.kept:
		return nil
	case k.fault != nil:
		return k.fault
	case !seen.read:
		return errors.New("the API server has not said yet what there is")
	case !seen.nodeThere:
		return errors.New("there is no Node that it would belong to")
	case k.rival.times > 1:
		return errors.New("another agent writes it")
	case now.Sub(k.since) >= underWay:
		return errors.New("it was written, and the API server does not show it")
	}
	return nil // it is being written
}

// faults returns the rival, once it is one.
func (k keeping) faults(self cluster.NodeID) []discovery.Problem {
	if k.rival.times < 2 {
		return nil
	}
	return []discovery.Problem{{
		Where:   kindNode + " " + self.Name,
		Message: fmt.Sprintf("another agent writes this machine's record, with key %s…", k.rival.key.Short()),
		Remedy:  fmt.Sprintf("if another machine is called %s too, give one of them another name", self.Name),
	}}
}
