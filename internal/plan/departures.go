package plan

import (
	"maps"
	"slices"
	"time"

	"warren/internal/cluster"
)

// HoldRule says when records that vanish are believed to be gone.
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
}

// Departures are the nodes whose records have vanished and that are still peers: machines that go one by
// one have left, while all that go at once are more likely a folder that was emptied by mistake. The
// zero value is not usable, see NewDepartures.
type Departures struct {
	rule  HoldRule
	first time.Time // when the first of gone vanished
	gone  map[cluster.NodeID]bool
	held  bool
}

// NewDepartures returns a set without departures.
func NewDepartures(rule HoldRule) *Departures {
	return &Departures{rule: rule, gone: map[cluster.NodeID]bool{}}
}

// Gone notes that the node's record has vanished.
func (d *Departures) Gone(id cluster.NodeID, now time.Time) {
	if len(d.gone) == 0 {
		d.first = now
	}
	d.gone[id] = true
}

// Back notes that the node's record is there.
func (d *Departures) Back(id cluster.NodeID) {
	delete(d.gone, id)
	d.held = d.held && len(d.gone) > 0
}

// Next returns when Due has something to judge; ok is false when nothing has vanished.
func (d *Departures) Next() (at time.Time, ok bool) {
	wait := d.rule.Settle
	if d.held {
		wait = d.rule.Wait
	}
	return d.first.Add(wait), len(d.gone) > 0
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
	return d.Release()
}

func (d *Departures) many(peers int) bool {
	return d.rule.Share > 0 && len(d.gone) >= 2 && len(d.gone)*100 >= d.rule.Share*peers
}

// Release returns all, held back or not, as an operator who knows that they are gone decides.
func (d *Departures) Release() []cluster.NodeID {
	ids := d.ids()
	clear(d.gone)
	d.held = false
	return ids
}

// Held returns, in order, the nodes that are held back, and until when.
func (d *Departures) Held() (ids []cluster.NodeID, until time.Time) {
	if !d.held {
		return nil, time.Time{}
	}
	return d.ids(), d.first.Add(d.rule.Wait)
}

func (d *Departures) ids() []cluster.NodeID {
	return slices.SortedFunc(maps.Keys(d.gone), cluster.NodeID.Compare)
}
