package agent

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/probe"
)

const (
	// rotationStep is how often a rotation looks at the peers.
	rotationStep = 200 * time.Millisecond
	// rotationPause is the least time until another one is begun, also after one that could not be.
	rotationPause = time.Minute
)

var errLeaving = errors.New("this node is leaving the cluster")

// beginRotation makes a new key; the next round publishes it beside the present one.
func (a *agent) beginRotation() error {
	if a.leave != nil {
		return errLeaving
	}
	if a.rotation != nil {
		return nil
	}
	old := a.newest()
	key, err := a.ownKeys().make(old.epoch + 1)
	if err != nil {
		return err
	}
	a.keys, a.rotation = append(a.keys, key), plan.NewRotation(key.made)
	a.view.complete = false
	a.Log.Info("replacing this node's key", "old_key", old.public, "public_key", key.public, "epoch", key.epoch)
	return nil
}

// rotationDue returns when there is something to do about this node's key.
func (a *agent) rotationDue() time.Time {
	switch interval := a.Config.RotationInterval.Duration; {
	case a.rotation != nil:
		return a.rotated.Add(rotationStep)
	case interval == 0 || a.leave != nil || !a.synced:
		return time.Now().Add(time.Hour)
	default:
		due, earliest := plan.NextRotation(a.newest().made, interval, a.id), a.rotated.Add(rotationPause)
		if due.Before(earliest) {
			return earliest
		}
		return due
	}
}

// advanceRotation goes on with the replacement of this node's key, or begins one that is due.
func (a *agent) advanceRotation(now time.Time) {
	if now.Before(a.rotationDue()) {
		return
	}
	a.rotated = now
	var err error
	if a.rotation == nil {
		err = a.beginRotation()
	} else if a.view.complete {
		err = a.observeRotation(now)
	}
	a.showRotation(now, err)
}

// observeRotation enters the next stage when its time has come.
func (a *agent) observeRotation(now time.Time) error {
	if a.rotation.Observe(now, a.keyUses()) {
		a.view.complete = false // the record changes, or the devices
		a.Log.Info("replacing this node's key", "stage", a.rotation.Stage().String(), "public_key", a.newest().public)
	}
	if a.rotation.Stage() != plan.Replaced {
		return nil
	}
	if err := a.ownKeys().remove(a.newest().epoch); err != nil {
		return err // until it can be done: another agent would begin with the old key again
	}
	a.keys, a.rotation = a.keys[len(a.keys)-1:], nil
	return nil
}

// keyUses tells how this node and each peer use this node's keys between them.
func (a *agent) keyUses() []plan.KeyUse {
	now, routes := monotonic(), a.world.Routes()
	var uses []plan.KeyUse
	for _, record := range a.world.Admission().Peers {
		use := plan.KeyUse{Node: record.ID}
		key, _ := a.world.KeyInUse(record.ID)
		if path := routes.Paths[key.Public]; path.Send {
			use.Sends = !path.Slot.Own(a.newest().epoch)
		}
		use.Answers, use.Receives = a.heardThrough(record, now)
		uses = append(uses, use)
	}
	return uses
}

// heardThrough reports whether the peer answers through this node's newest key, and whether it may send by the
// older one: it says so, or has said nothing at all.
func (a *agent) heardThrough(record *plan.Record, now time.Duration) (answers, sendsByOld bool) {
	uses, heard, sendsByNew := false, true, false
	for _, key := range plan.LiveKeys(&record.Node) {
		for _, own := range a.keys {
			state := a.stateOf(channel{plan.SlotOf(own.epoch, key.Epoch), key.Public}, now)
			if own.epoch == a.newest().epoch {
				answers = answers || state.Phase == probe.Confirmed && state.Heard
				sendsByNew = sendsByNew || state.Heard && state.Peer.Encrypting
			} else {
				uses, heard = uses || state.Peer.Encrypting, heard && state.Heard
			}
		}
	}
	return answers, !sendsByNew && (uses || !heard)
}

// showRotation names the peers that do not move to the new key, and what could not be done.
func (a *agent) showRotation(now time.Time, err error) {
	var found []api.Problem
	if err != nil {
		found = append(found, api.Problem{Where: a.Config.StateDir, Message: err.Error(), Remedy: "make the state directory writable"})
	}
	if late := a.lateForKey(now); len(late) > 0 {
		found = append(found, api.Problem{
			Where:   "key rotation",
			Message: "do not use the new key of this node: " + strings.Join(abbreviated(names(late), 5), ", ") + "; the old one stays",
			Remedy:  "start their agents and let UDP through to the four ports of each node; remove the record of a machine that is gone",
		})
	}
	a.problems.set("rotation", found, now, a.Log)
}

func (a *agent) lateForKey(now time.Time) []cluster.NodeID {
	if a.rotation == nil {
		return nil
	}
	return a.rotation.Late(now)
}

func names(ids []cluster.NodeID) []string {
	list := make([]string, 0, len(ids))
	for _, id := range ids {
		list = append(list, id.Name)
	}
	return list
}

func (a *agent) rotationStatus() api.Rotation {
	newest := a.newest()
	status := api.Rotation{Epoch: newest.epoch, Made: newest.made.UTC(), Keys: []api.Key{}, Moved: []string{}, Waiting: []string{}, Late: []string{}}
	for _, key := range a.world.Self().Keys {
		status.Keys = append(status.Keys, api.Key{Public: key.Public.String(), Epoch: key.Epoch, Port: key.Port})
	}
	if a.rotation != nil {
		status.Stage = a.rotation.Stage().String()
		status.Moved, status.Waiting, status.Late = names(a.rotation.Moved()), names(a.rotation.Waiting()), names(a.rotation.Late(time.Now()))
	}
	return status
}

func (a *agent) postRotation(*http.Request) (api.Rotation, error) {
	err := a.beginRotation()
	return a.rotationStatus(), err
}
