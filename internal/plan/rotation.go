package plan

import (
	"hash/fnv"
	"slices"
	"time"

	"warren/internal/cluster"
)

// RotationStage is how far the replacement of this node's key is.
type RotationStage uint8

// The stages.
const (
	// Moving: both keys are published, and the peers move to the new one.
	Moving RotationStage = iota
	// Withdrawn: the new key is published alone; the old one still decrypts what is under way.
	Withdrawn
	// Replaced: the old key may be deleted.
	Replaced
)

var rotationStages = [...]string{Moving: "moving", Withdrawn: "withdrawn", Replaced: "replaced"}

// String returns the stage in a word.
func (s RotationStage) String() string { return rotationStages[s] }

const (
	// rotationSettles is how long nobody has to use the old key before it is withdrawn: longer than any packet
	// is under way.
	rotationSettles = 2 * time.Second
	// rotationLingers is how long the old key decrypts after that, for a peer that has just been started and
	// began with the old key.
	rotationLingers = 5 * time.Second
	// rotationLate is when peers that have not moved are a problem.
	rotationLate = 10 * time.Minute
	// intervalJitter is by which part of it a rotation interval is longer or shorter at most.
	intervalJitter = 0.1
)

// KeyUse is how one peer and this node use the old and the new key between them.
type KeyUse struct {
	Node cluster.NodeID
	// Answers: the peer has answered through the new key.
	Answers bool
	// Sends: this node sends to the peer by the old key.
	Sends bool
	// Receives: the peer sends by the old key, as far as is known.
	Receives bool
}

func (u KeyUse) moved() bool { return u.Answers && !u.Sends && !u.Receives }

// Rotation replaces this node's key, as a function of what the peers do and of time:
//
//	a second key is made           nobody uses the old key for 2 s        5 s
//	 │  Moving                           │  Withdrawn                      │  Replaced
//	 ├───────────────────────────────────┼─────────────────────────────────┼──────────►
//	 │ both are published; each peer     │ the new key is published alone; │ the old one is
//	 │ begins to send by the new one     │ the peers let go of the old one │ deleted
//	 │ when that answers, and so does    │
//	 │ this node towards it              │
//	 └─ 10 min: who has not is named, and waited for
//
// Who receives has both keys from before the first packet comes by the new one until after the last one by
// the old one, so that a sender may change whenever it likes. Nothing has to be remembered but the two keys: one
// that is interrupted begins with Moving again, and finds that everybody has moved.
type Rotation struct {
	began   time.Time
	since   time.Time // of Withdrawn; before that, since when nobody uses the old key, zero: somebody does
	stage   RotationStage
	waiting []cluster.NodeID
	moved   []cluster.NodeID
}

// NewRotation returns one whose second key was made then.
func NewRotation(began time.Time) *Rotation { return &Rotation{began: began} }

// Observe takes in how all peers use the keys now. It reports whether another stage has begun.
func (r *Rotation) Observe(now time.Time, uses []KeyUse) bool {
	before := r.stage
	switch r.stage {
	case Moving:
		r.sort(uses)
		switch {
		case len(r.waiting) > 0:
			r.since = time.Time{}
		case r.since.IsZero():
			r.since = now
		case now.Sub(r.since) >= rotationSettles:
			r.stage, r.since = Withdrawn, now
		}
	case Withdrawn:
		if now.Sub(r.since) >= rotationLingers {
			r.stage = Replaced
		}
	}
	return r.stage != before
}

func (r *Rotation) sort(uses []KeyUse) {
	r.waiting, r.moved = nil, nil
	for _, use := range uses {
		if use.moved() {
			r.moved = append(r.moved, use.Node)
		} else {
			r.waiting = append(r.waiting, use.Node)
		}
	}
	slices.SortFunc(r.waiting, cluster.NodeID.Compare)
	slices.SortFunc(r.moved, cluster.NodeID.Compare)
}

// Stage returns the stage.
func (r *Rotation) Stage() RotationStage { return r.stage }

// Began returns when the new key was made.
func (r *Rotation) Began() time.Time { return r.began }

// Waiting returns, in order, the peers that have not moved to the new key.
func (r *Rotation) Waiting() []cluster.NodeID { return r.waiting }

// Moved returns, in order, the peers that have moved to the new key.
func (r *Rotation) Moved() []cluster.NodeID { return r.moved }

// Late returns, in order, the peers that have had time enough to move.
func (r *Rotation) Late(now time.Time) []cluster.NodeID {
	if now.Sub(r.began) < rotationLate {
		return nil
	}
	return r.waiting
}

// NextRotation returns when a node's key that was made then is to be replaced. It is up to a tenth of the interval
// earlier or later, so that the nodes of a cluster take turns.
func NextRotation(made time.Time, interval time.Duration, id cluster.NodeID) time.Time {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id.String()))
	share := 1 + intervalJitter*(float64(hash.Sum32())/(1<<31)-1)
	return made.Add(time.Duration(share * float64(interval)))
}
