package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
)

// agentOn answers on a socket of its own as the handler does, until the test ends.
func agentOn(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), SocketName)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return Dial(socket)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	answer := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, test := range []struct {
		name   string
		client *Client
		is     error
		says   string
	}{
		{"no socket", Dial(filepath.Join(t.TempDir(), SocketName)), ErrNotRunning, "--run-dir"},
		{"unknown to the agent", agentOn(t, answer(http.StatusNotFound, `{"error":"192.0.2.1 is in no prefix"}`)), ErrNotFound, "192.0.2.1 is in no prefix"},
		{"refused with a reason", agentOn(t, answer(http.StatusBadRequest, `{"error":"mode \"x\" is not a choice"}`)), nil, `mode "x" is not a choice`},
		{"refused without one", agentOn(t, answer(http.StatusServiceUnavailable, "")), nil, "503"},
		{"half an answer", agentOn(t, answer(http.StatusOK, `{"mode":`)), nil, "read the agent's answer to /v1/mode"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.client.Mode(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v; want one that says %q and is %v", err, test.says, test.is)
			}
		})
	}
}

func TestRequestsCarryWhatIsAsked(t *testing.T) {
	var got []string
	client := agentOn(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body))
		_, _ = io.WriteString(w, "{}")
	})
	_, errMode := client.SetMode(t.Context(), "strict")
	_, errLeave := client.Leave(t.Context(), 90*time.Second)
	_, errRotate := client.Rotate(t.Context())
	if err := errors.Join(errMode, errLeave, errRotate); err != nil {
		t.Fatal(err)
	}
	mode, _ := json.Marshal(Mode{Mode: "strict"})
	want := []string{"PUT /v1/mode " + string(mode), `POST /v1/leave {"patience_seconds":90}`, "POST /v1/rotation "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestWatchGoesOnWithoutEnd: a stream has no time limit, and ends with the agent, the caller's word or its context.
func TestWatchGoesOnWithoutEnd(t *testing.T) {
	client := agentOn(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_ = json.NewEncoder(w).Encode(Delta{})
		}
	})
	seen := 0
	if err := client.Watch(t.Context(), func(Delta) error { seen++; return nil }); !errors.Is(err, io.EOF) || seen != 3 {
		t.Errorf("%d changes, then %v; want 3, then EOF", seen, err)
	}
	enough := errors.New("enough")
	if err := client.Watch(t.Context(), func(Delta) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("ended by %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Watch(ctx, func(Delta) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("ended by %v", err)
	}
}

func TestFilterIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Filter{
			Node: rapid.StringMatching(`([a-z]{1,5}/)?[a-z]{0,5}`).Draw(t, "node"), Conflict: rapid.Bool().Draw(t, "conflict"),
			Source: cluster.Source(rapid.Uint8Range(0, uint8(cluster.SourceRestored)).Draw(t, "source")),
		}
		if rapid.Bool().Draw(t, "with identity") {
			identity := rapid.Uint32().Draw(t, "identity")
			want.Identity = &identity
		}
		query, err := url.ParseQuery(want.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFilter(query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	for _, bad := range []url.Values{{"source": {"nobody"}}, {"identity": {"-1"}}, {"identity": {"4294967296"}}} {
		if _, err := ParseFilter(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
