package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"warren/internal/api"
	"warren/internal/metrics"
)

const (
	// answerTimeout bounds how long a question waits for the loop, which may be in a long round.
	answerTimeout = 20 * time.Second
	// aliveTimeout is how long the loop may take before /healthz calls it stuck.
	aliveTimeout = 10 * time.Second
	headTimeout  = 5 * time.Second
	closeTimeout = 2 * time.Second
)

var errNoAnswer = errors.New("the agent's loop does not answer")

// servers are the local API on the unix socket and metrics and health over HTTP.
type servers struct {
	local, web *http.Server
	listeners  []net.Listener
	log        func(msg string, args ...any)
}

func (a *agent) listen() (*servers, error) {
	s := &servers{local: &http.Server{Handler: a.localMux(), ReadHeaderTimeout: headTimeout}, log: a.Log.Info}
	socket := filepath.Join(a.Config.RunDir, api.SocketName)
	local, err := listenUnix(socket)
	if err != nil {
		return nil, err
	}
	s.listeners = []net.Listener{local}
	if a.Config.MetricsAddress == "" {
		return s, nil
	}
	web, err := net.Listen("tcp", a.Config.MetricsAddress)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("serve metrics and health: %w; metrics-address in the configuration names another address, or \"\" for none", err)
	}
	s.web = &http.Server{Handler: a.webMux(), ReadHeaderTimeout: headTimeout}
	s.listeners = append(s.listeners, web)
	return s, nil
}

// listenUnix listens on the socket, for root only. The lock on the run directory says that whoever left
// a file there is gone.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("serve the local API: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve the local API: %w", err)
	}
	// The directory is 0700, so that nobody slipped in before.
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("serve the local API: %w", err)
	}
	return listener, nil
}

// serve answers until ctx ends.
func (s *servers) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, server := range []*http.Server{s.local, s.web} {
		if server == nil {
			continue
		}
		group.Go(func() error {
			s.log("listening", "address", s.listeners[i].Addr().String())
			if err := server.Serve(s.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			if server.Shutdown(grace) != nil {
				_ = server.Close()
			}
			return nil
		})
	}
	return group.Wait()
}

func (s *servers) close() {
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
}

func (a *agent) localMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", answer(a, func(*http.Request) (api.Status, error) { return a.status() }))
	mux.HandleFunc("GET /v1/nodes", answer(a, func(*http.Request) ([]api.Node, error) { return a.nodes(), nil }))
	mux.HandleFunc("GET /v1/ipcache", answer(a, func(r *http.Request) ([]api.Entry, error) {
		filter, err := api.ParseFilter(r.URL.Query())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errQuestion, err)
		}
		return a.entries(filter), nil
	}))
	mux.HandleFunc("GET /v1/ipcache/{address}", answer(a, func(r *http.Request) (api.EntryDetail, error) {
		addr, err := netip.ParseAddr(r.PathValue("address"))
		if err != nil {
			return api.EntryDetail{}, fmt.Errorf("%w: %q is not an IP address", errQuestion, r.PathValue("address"))
		}
		return a.entry(addr)
	}))
	mux.HandleFunc("GET /v1/ipcache/watch", a.watch)
	mux.HandleFunc("GET /v1/conflicts", answer(a, func(*http.Request) ([]api.Conflict, error) { return a.conflicts(), nil }))
	mux.HandleFunc("GET /v1/explain", answer(a, func(r *http.Request) (api.Explanation, error) {
		question, err := questionOf(r)
		if err != nil {
			return api.Explanation{}, err
		}
		return a.explain(question)
	}))
	mux.HandleFunc("GET /v1/mode", answer(a, func(*http.Request) (api.Mode, error) { return a.mode(), nil }))
	mux.HandleFunc("PUT /v1/mode", answer(a, a.putMode))
	mux.HandleFunc("DELETE /v1/mode", answer(a, a.deleteMode))
	mux.HandleFunc("GET /v1/leave", answer(a, func(*http.Request) (api.Leave, error) { return a.leaveStatus(), nil }))
	mux.HandleFunc("POST /v1/leave", answer(a, a.postLeave))
	mux.HandleFunc("DELETE /v1/leave", answer(a, a.deleteLeave))
	mux.HandleFunc("POST /v1/nodes/forget", answer(a, a.forgetNodes))
	return mux
}

func (a *agent) webMux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(a.snapshot))
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	return mux
}

// healthz is true while the loop works: a round that hangs for aliveTimeout fails it.
func (a *agent) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), aliveTimeout)
	defer cancel()
	if err := a.ask(ctx, func() {}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// readyz is true when the node encrypts as configured; otherwise it lists what is missing.
func (a *agent) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), aliveTimeout)
	defer cancel()
	var missing []string
	if err := a.ask(ctx, func() { missing = a.notReady() }); err != nil {
		missing = []string{err.Error()}
	}
	if len(missing) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, what := range missing {
		fmt.Fprintln(w, what)
	}
}

// ask runs the question in the loop, between two rounds, and waits for it.
func (a *agent) ask(ctx context.Context, question func()) error {
	done := make(chan struct{})
	select {
	case a.questions <- func() { defer close(done); question() }:
		<-done
		return nil
	case <-ctx.Done():
		return errNoAnswer
	}
}

// answer makes a handler of a question: 404 for what is not known, 503 when the loop is silent.
func answer[T any](a *agent, question func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		var value T
		var err error
		if askErr := a.ask(ctx, func() { value, err = question(r) }); askErr != nil {
			writeJSON(w, http.StatusServiceUnavailable, api.Failure{Error: askErr.Error()})
			return
		}
		switch {
		case errors.Is(err, api.ErrNotFound):
			writeJSON(w, http.StatusNotFound, api.Failure{Error: err.Error()})
		case errors.Is(err, errQuestion):
			writeJSON(w, http.StatusBadRequest, api.Failure{Error: err.Error()})
		case err != nil:
			writeJSON(w, http.StatusInternalServerError, api.Failure{Error: err.Error()})
		default:
			writeJSON(w, http.StatusOK, value)
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the asker is gone when this fails
}
