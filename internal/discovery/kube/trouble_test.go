package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTroubles: what is not answered is one problem since the first failure, what is refused one for each resource, and
// both end with an answer.
func TestTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		tr := troubles{server: "https://10.0.0.1:6443", changed: func() { changes++ }, now: map[string]trouble{}}
		says := func(want ...string) {
			t.Helper()
			var got []string
			for _, p := range tr.problems() {
				got = append(got, p.Where+": "+p.Message)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		}
		tr.note("pods", nil)
		says()
		since := time.Now().UTC().Format(time.RFC3339)
		tr.note("nodes", errors.New("connection refused"))
		time.Sleep(time.Minute)
		tr.note("pods", errors.New("no route to host"))
		tr.note("nodes", errors.New("no route to host"))
		says("https://10.0.0.1:6443: API server not reachable since " + since + ": connection refused")
		if changes != 2 {
			t.Errorf("%d changes", changes)
		}
		tr.note("nodes", nil)
		tr.note("pods", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role")))
		says("pods: pods is forbidden: no role")
		tr.note("warrennodes", apierrors.NewNotFound(schema.GroupResource{Resource: "warrennodes"}, ""))
		says(`pods: pods is forbidden: no role`, `warrennodes: warrennodes "" not found`)
		tr.note("pods", nil)
		tr.note("warrennodes", nil)
		says()
	})
}

// TestAnswer: a failure is heard of and leads to a complete list, and what the reflector has to know reaches it.
func TestAnswer(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tooLarge := apierrors.NewTimeoutError("too large", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for _, test := range []struct {
		name          string
		ctx           context.Context
		err           error
		heard, passed bool
	}{
		{"an answer", t.Context(), nil, false, true},
		{"connection refused", t.Context(), errors.New("connection refused"), true, false},
		{"too many requests", t.Context(), apierrors.NewTooManyRequests("later", 1), true, false},
		{"internal error", t.Context(), apierrors.NewInternalError(errors.New("etcd")), true, false},
		{"expired", t.Context(), apierrors.NewResourceExpired("too old"), false, true},
		{"gone", t.Context(), &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Message: "too old"}}, false, true},
		{"from another history", t.Context(), tooLarge, false, true},
		{"the end of Run", gone, context.Canceled, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var heard error
			err := answer(test.ctx, test.err, func(err error) { heard = err })
			if (heard != nil) != test.heard || (err == test.err) != test.passed {
				t.Errorf("heard %v, returned %v", heard, err)
			}
			if test.err != nil && !strings.Contains(fmt.Sprint(err), test.err.Error()) {
				t.Errorf("%v does not say %v", err, test.err)
			}
		})
	}
}
