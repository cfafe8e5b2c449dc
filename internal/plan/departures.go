package plan

import (
	"maps"
	"slices"
	"time"

	"warren/internal/cluster"
)

// HoldRule says when the machines of records that vanish are believed to be gone.
//
//	first one vanishes      judged                                 let go
//	──┬────────────────────────┬─────────────────────────────────────┬──►
//	  │◄─────── Settle ───────►│                                     │
//	  │ few: let go here ──────┘                                     │
//	  │◄─── many: held back, unless they come back or are released ──┤ Wait
type HoldRule struct {
	// Settle is how long to look at what vanishes before it is judged.
	Settle time.Duration
	// Share, in percent of the peers, is many; at least two are needed. 0 holds nothing back.
	Share int
	// Wait is how long many are held back.
	Wait time.Duration
	// Silence: records also vanish while their agents are away, and the machines go on encrypting. Each is held
	// back, however few they are, until nothing has come from it for Wait.
	Silence bool
}

// Departures are the nodes whose records have vanished and that are still peers: machines that go one by
// one have left, while all that go at once are more likely a folder that was emptied by mistake. The
// zero value is not usable, see NewDepartures.
type Departures struct {
	rule HoldRule
	gone map[cluster.NodeID]departure
	held bool
}

// departure is of one node.
type departure struct {
	vanished time.Time
	heard    time.Time // or vanished, when it was not heard since
}

func (d departure) vanishedAt() time.Time { return d.vanished }
func (d departure) heardAt() time.Time    { return d.heard }

// NewDepartures returns a set without departures.
func NewDepartures(rule HoldRule) *Departures {
	return &Departures{rule: rule, gone: map[cluster.NodeID]departure{}}
}

// Gone notes that the node's record has vanished.
func (d *Departures) Gone(id cluster.NodeID, now time.Time) {
	d.gone[id] = departure{now, now}
}

// Heard notes that something came from the node through the tunnel.
func (d *Departures) Heard(id cluster.NodeID, now time.Time) {
	if gone, ok := d.gone[id]; ok {
		d.gone[id] = departure{gone.vanished, now}
	}
}

// Back notes that the node is no longer waited for: its record is there again, or it has said that it left.
func (d *Departures) Back(id cluster.NodeID) {
	delete(d.gone, id)
	d.held = d.held && len(d.gone) > 0
}

// Next returns when Due has something to judge; ok is false when nothing has vanished.
func (d *Departures) Next() (at time.Time, ok bool) {
	switch {
	case len(d.gone) == 0:
		return time.Time{}, false
	case !d.held:
		return d.earliest(departure.vanishedAt).Add(d.rule.Settle), true
	case d.rule.Silence:
		return d.earliest(departure.heardAt).Add(d.rule.Wait), true
	}
	return d.earliest(departure.vanishedAt).Add(d.rule.Wait), true
}

func (d *Departures) earliest(moment func(departure) time.Time) (at time.Time) {
	for _, gone := range d.gone {
		if next := moment(gone); at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// Due returns, in order, the nodes that may go now, of so many peers including them.
func (d *Departures) Due(now time.Time, peers int) []cluster.NodeID {
	if at, ok := d.Next(); !ok || now.Before(at) {
		return nil
	}
	if !d.held && d.many(peers) {
		d.held = true
		return nil
	}
	return d.release(func(gone departure) bool {
		switch {
		case !d.held: // each is looked at for as long, whoever vanished before it
			return now.Sub(gone.vanished) >= d.rule.Settle
		case d.rule.Silence:
			return now.Sub(gone.heard) >= d.rule.Wait
		}
		return true
	})
}

func (d *Departures) many(peers int) bool {
	return d.rule.Silence || d.rule.Share > 0 && len(d.gone) >= 2 && len(d.gone)*100 >= d.rule.Share*peers
}

// Release returns all, held back or not, as an operator who knows that they are gone decides.
func (d *Departures) Release() []cluster.NodeID {
	return d.release(func(departure) bool { return true })
}

func (d *Departures) release(which func(departure) bool) []cluster.NodeID {
	var ids []cluster.NodeID
	for id, gone := range d.gone {
		if which(gone) {
			ids = append(ids, id)
			delete(d.gone, id)
		}
	}
	d.held = d.held && len(d.gone) > 0
	slices.SortFunc(ids, cluster.NodeID.Compare)
	return ids
}

// Held returns, in order, the nodes that are held back, and when the first of them will go, as far as is known.
func (d *Departures) Held() (ids []cluster.NodeID, until time.Time) {
	if !d.held {
		return nil, time.Time{}
	}
	until, _ = d.Next()
	return slices.SortedFunc(maps.Keys(d.gone), cluster.NodeID.Compare), until
}
