package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/probe"
)

// leaving is the way out of the cluster, without a lost packet:
//
//	announced   the record says so; this node encrypts on until each peer accepts clear packets from it
//	withdrawn   the record is gone, and this node decrypts on until each peer has let go of it
//	done        nothing comes through the tunnel any more
//
// Each of the first two ends at its deadline as well: a peer that is dead cannot answer.
type leaving struct {
	stage    string
	since    time.Duration // when the record was withdrawn
	asked    time.Duration // when the peers were asked last
	deadline time.Time     // of the stage
	patience time.Duration // for each stage
	late     []string      // peers that a stage did not wait for any longer
	before   cluster.Mode
}

const defaultPatience = 30 * time.Second

// beginLeave announces that this node leaves. A second one changes nothing.
func (a *agent) beginLeave(ctx context.Context, patience time.Duration) error {
	if a.leave != nil {
		return nil
	}
	a.leave = &leaving{
		stage: api.LeaveAnnounced, deadline: time.Now().Add(patience), patience: patience, before: a.Config.Mode,
	}
	a.Config.Mode = cluster.ModeObserve
	a.Log.Info("leaving the cluster", "patience", patience)
	return a.enact(ctx)
}

// cancelLeave stays in the cluster after all.
func (a *agent) cancelLeave(ctx context.Context) error {
	if a.leave == nil {
		return nil
	}
	a.Config.Mode, a.leave = a.leave.before, nil
	a.Log.Info("staying in the cluster")
	return a.enact(ctx)
}

// advanceLeave goes on to the next stage when the present one is over.
func (a *agent) advanceLeave() {
	l := a.leave
	if l == nil || l.stage == api.LeaveDone {
		return
	}
	if l.stage == api.LeaveWithdrawn && monotonic()-l.asked >= askPause {
		a.askAll()
	}
	waiting := a.waitingFor()
	if len(waiting) > 0 && time.Now().Before(l.deadline) {
		return
	}
	l.late = append(l.late, waiting...)
	l.deadline = time.Now().Add(l.patience)
	if l.stage == api.LeaveAnnounced {
		l.stage, l.since = api.LeaveWithdrawn, monotonic()
		a.view.complete = false // the record goes with the next round
	} else {
		l.stage = api.LeaveDone
	}
	a.Log.Info("leaving", "stage", l.stage, "not_waited_for", waiting)
}

// askPause is how often peers are asked whether they are still there.
const askPause = 500 * time.Millisecond

// askAll asks every peer at once.
func (a *agent) askAll() {
	now := monotonic()
	a.leave.asked = now
	for c := range a.probing.peers {
		a.probing.do(c, func(peer *probe.Peer) { peer.Ask(now) })
	}
}

// waitingFor returns the peers, by name, that the stage waits for.
func (a *agent) waitingFor() []string {
	now, names := monotonic(), []string{}
	for _, record := range a.world.Admission().Peers {
		key, _ := a.world.KeyInUse(record.ID)
		holdsOn := a.world.Routes().Paths[key.Public].Send
		if a.leave.stage == api.LeaveWithdrawn {
			replied, asked := a.lastReply(key.Public, now)
			holdsOn = asked && now-max(replied, a.leave.since) < silentAfter
		}
		if holdsOn {
			names = append(names, record.ID.Name)
		}
	}
	slices.Sort(names)
	return names
}

// capabilities are what the record says of this node besides what everybody can do.
func (a *agent) capabilities() []string {
	if a.leave != nil {
		return []string{cluster.CapabilityLeaving}
	}
	return nil
}

func (a *agent) leaveStatus() api.Leave {
	if a.leave == nil {
		return api.Leave{Waiting: []string{}, Late: []string{}}
	}
	status := api.Leave{Stage: a.leave.stage, Waiting: []string{}, Late: orEmpty(a.leave.late)}
	if a.leave.stage != api.LeaveDone {
		status.Waiting = a.waitingFor()
	}
	return status
}

func (a *agent) postLeave(r *http.Request) (api.Leave, error) {
	asked := api.LeaveRequest{PatienceSeconds: defaultPatience.Seconds()}
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 4096)).Decode(&asked); err != nil {
		return api.Leave{}, fmt.Errorf("%w: read the request: %w", errQuestion, err)
	}
	err := a.beginLeave(r.Context(), time.Duration(asked.PatienceSeconds*float64(time.Second)))
	return a.leaveStatus(), err
}

func (a *agent) deleteLeave(r *http.Request) (api.Leave, error) {
	err := a.cancelLeave(r.Context())
	return a.leaveStatus(), err
}
