package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warren/internal/discovery"
)

// nodeStatus is the status of a WarrenNode.
type nodeStatus struct {
	Mode       string             `json:"mode"`
	MTU        int                `json:"mtu"`
	Version    string             `json:"version"`
	Peers      peersStatus        `json:"peers"`
	Conditions []metav1.Condition `json:"conditions"`
}

type peersStatus struct {
	Confirmed int `json:"confirmed"`
	Total     int `json:"total"`
	// Summary is "CONFIRMED/TOTAL", since kubectl's columns cannot join two fields.
	Summary string `json:"summary"`
}

// statusOf returns the status that says what is reported. A condition that did not change keeps the time of
// before.
func statusOf(r discovery.Report, config []discovery.Problem, before nodeStatus, now time.Time) nodeStatus {
	s := nodeStatus{
		Mode: r.Mode, MTU: r.MTU, Version: r.Version,
		Peers:      peersStatus{r.Confirmed, r.Peers, fmt.Sprintf("%d/%d", r.Confirmed, r.Peers)},
		Conditions: []metav1.Condition{ready(r), encrypted(r), rotating(r), accepted(slices.Concat(config, r.Refused))},
	}
	for i, c := range s.Conditions {
		s.Conditions[i].LastTransitionTime = transition(c, before.Conditions, now)
	}
	return s
}

// transition is when the condition came to be what it is.
func transition(c metav1.Condition, before []metav1.Condition, now time.Time) metav1.Time {
	for _, b := range before {
		if b.Type == c.Type && b.Status == c.Status {
			return b.LastTransitionTime
		}
	}
	return metav1.NewTime(now.UTC().Truncate(time.Second))
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: abridged(message)}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// abridged keeps a message within what the resource has room for.
func abridged(message string) string {
	const most = 4096
	if runes := []rune(message); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return message
}

func ready(r discovery.Report) metav1.Condition {
	if r.Ready {
		return condition("Ready", true, "Done", "the agent has done all that it knows of")
	}
	return condition("Ready", false, "Waiting", r.NotReady)
}

func encrypted(r discovery.Report) metav1.Condition {
	const kind = "Encrypted"
	missing := r.Peers - r.Confirmed
	switch {
	case r.Looking:
		c := condition(kind, false, "LookingForPeers", "no other machine is known so far")
		c.Status = metav1.ConditionUnknown
		return c
	case r.Peers == 0:
		return condition(kind, true, "NoPeers", "there is no other machine")
	case r.Mode == "observe":
		return condition(kind, false, "Observing", "the mode is observe, which changes nothing on the wire")
	case missing > 0:
		return condition(kind, false, "PeersUnconfirmed", fmt.Sprintf("%d of %d peers have not proved yet that they decrypt", missing, r.Peers))
	}
	return condition(kind, true, "AllPeersConfirmed", "what goes to every peer is encrypted")
}

func rotating(r discovery.Report) metav1.Condition {
	if r.KeyRotating {
		return condition("KeyRotating", true, "Replacing", "a key is being replaced")
	}
	return condition("KeyRotating", false, "Steady", "no key is being replaced")
}

func accepted(refused []discovery.Problem) metav1.Condition {
	if len(refused) == 0 {
		return condition("ConfigAccepted", true, "Accepted", "all that the WarrenConfig says counts, if there is one")
	}
	lines := make([]string, len(refused))
	for i, p := range refused {
		lines[i] = p.String()
	}
	return condition("ConfigAccepted", false, "Refused", strings.Join(lines, "\n"))
}

// readStatus reads a status. One that cannot be read is as good as none.
func readStatus(text json.RawMessage) nodeStatus {
	var s nodeStatus
	if len(text) == 0 || json.Unmarshal(text, &s) != nil {
		return nodeStatus{}
	}
	return s
}

// equal reports whether two statuses are written alike.
func (s nodeStatus) equal(other nodeStatus) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}

// reportPause is the least time between two writes of the status: all agents together write one in about
// 50 ms, however many they are, since each is sent to each of them.
func reportPause(peers int) time.Duration {
	return max(5*time.Second, reportShare(peers))
}

func reportShare(peers int) time.Duration { return time.Duration(peers) * 50 * time.Millisecond }
