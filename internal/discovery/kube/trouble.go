package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warren/internal/discovery"
)

// troubles are the failures of reading, by resource, until it succeeds.
type troubles struct {
	server  string // its address
	changed func()

	mu  sync.Mutex
	now map[string]trouble
}

// trouble is the first of failures of one kind in a row.
type trouble struct {
	since time.Time
	err   error
	kind  metav1.StatusReason // of what is refused; "" for what is not answered
}

// note takes in how a request for a resource went.
func (t *troubles) note(resource string, err error) {
	if t.take(resource, err) {
		t.changed()
	}
}

// take reports whether that is news.
func (t *troubles) take(resource string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	had, has := t.now[resource]
	if err == nil {
		delete(t.now, resource)
		return has
	}
	next := trouble{since: time.Now(), err: err}
	if _, refused := refusal(resource, err); refused {
		next.kind = apierrors.ReasonForError(err)
	}
	if has && had.kind == next.kind {
		return false
	}
	t.now[resource] = next
	return true
}

// problems returns one problem for what the API server refuses of a resource, and one for all that was not
// answered.
func (t *troubles) problems() []discovery.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []discovery.Problem
	var away *trouble
	for _, resource := range slices.Sorted(maps.Keys(t.now)) {
		trouble := t.now[resource]
		if p, refused := refusal(resource, trouble.err); refused {
			list = append(list, p)
		} else if away == nil || trouble.since.Before(away.since) {
			away = &trouble
		}
	}
	if away != nil {
		list = append(list, discovery.Problem{
			Where:   t.server,
			Message: fmt.Sprintf("API server not reachable since %s: %v", away.since.UTC().Format(time.RFC3339), cause(away.err)),
			Remedy:  "restore the API server, or the way to it; what it said last counts meanwhile",
		})
	}
	return list
}

// cause returns what is left of an error of package http without the call and the address, which Where has.
func cause(err error) error {
	var call *url.Error
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}

// refusal explains an answer that more of the same requests will not change.
func refusal(resource string, err error) (discovery.Problem, bool) {
	p := discovery.Problem{Where: resource, Message: err.Error()}
	switch {
	case apierrors.IsForbidden(err):
		p.Remedy = "let the agent read them: apply Warren's ClusterRole and its binding"
	case apierrors.IsUnauthorized(err):
		p.Remedy = "the API server does not know this agent: renew its token, certificate or kubeconfig"
	case apierrors.IsNotFound(err):
		p.Remedy = "apply Warren's CustomResourceDefinitions"
	default:
		return discovery.Problem{}, false
	}
	return p, true
}
