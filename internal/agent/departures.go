package agent

import (
	"fmt"
	"strings"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/plan"
)

// settle is how long records that vanish are looked at before they are believed to be gone: a folder is
// emptied file by file, and a file may be replaced by removing it first.
const settle = 2 * time.Second

// holdRule is the rule of the configuration. Keys of etcd run out, which says nothing of their machines.
func holdRule(c config.Config) plan.HoldRule {
	return plan.HoldRule{Settle: settle, Share: c.Hold.Share, Wait: c.Hold.Wait.Duration, Silence: c.Discovery == config.DiscoveryEtcd}
}

// letGo removes the nodes whose records are believed to be gone, and says which are held back: in every turn of the
// loop, so that whoever changes the departures need not.
func (a *agent) letGo(now time.Time) {
	a.forget(a.departures.Due(now, len(a.world.Admission().Peers)))
	a.showHeld(now)
}

func (a *agent) forget(gone []cluster.NodeID) {
	changes := make([]plan.Change, 0, len(gone))
	for _, id := range gone {
		changes = append(changes, plan.Change{Delete: &id})
	}
	a.apply(changes...)
}

func (a *agent) showHeld(now time.Time) {
	held, until := a.departures.Held()
	var found []api.Problem
	if len(held) > 0 {
		found = []api.Problem{a.heldProblem(held, until)}
	}
	a.problems.set("departures", found, now, a.Log)
}

func (a *agent) heldProblem(held []cluster.NodeID, until time.Time) api.Problem {
	names := strings.Join(abbreviated(texts(held), 5), ", ")
	if holdRule(a.Config).Silence {
		return api.Problem{
			Where: "discovery",
			Message: fmt.Sprintf("keys ran out (%s), the agents of these nodes are away; each stays a peer until nothing has come from it for %s",
				names, a.Config.Hold.Wait),
			Remedy: "start the agents; if a machine is gone, say so to all: etcdctl put " + a.Config.Etcd.Prefix + "/nodes/NAME withdrawn",
		}
	}
	return api.Problem{
		Where:   "discovery",
		Message: fmt.Sprintf("the records of %d nodes vanished together (%s); they stay peers until %s", len(held), names, until.UTC().Format(time.RFC3339)),
		Remedy:  "bring the records back; if these machines are really gone, run warren nodes forget",
	}
}

// abbreviated returns at most n of the words and how many more there are.
func abbreviated(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(list[:n:n], fmt.Sprintf("and %d more", len(list)-n))
}
