package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"warren/internal/api"
	"warren/internal/ipcache"
)

// watchBuffer is how many changes a watcher may be behind before it is cut off: it can ask again and
// gets the entries anew, which is cheaper than to keep all that it has missed.
const watchBuffer = 4096

// watchers follow the IPCache. The loop owns them.
type watchers map[chan api.Delta]struct{}

// send gives the changes to every watcher, and ends those that are too far behind.
func (w watchers) send(deltas []ipcache.Delta, now time.Time) {
	if len(w) == 0 {
		return
	}
	for _, delta := range deltas {
		line := deltaStatus(delta, now)
		for watcher := range w {
			select {
			case watcher <- line:
			default:
				w.end(watcher)
			}
		}
	}
}

func (w watchers) end(watcher chan api.Delta) {
	if _, ok := w[watcher]; ok {
		delete(w, watcher)
		close(watcher)
	}
}

func deltaStatus(delta ipcache.Delta, now time.Time) api.Delta {
	status := api.Delta{Time: now.UTC(), Prefix: delta.Prefix}
	if delta.Old != nil {
		old := entryStatus(delta.Prefix, *delta.Old)
		status.Old = &old
	}
	if delta.New != nil {
		entry := entryStatus(delta.Prefix, *delta.New)
		status.New = &entry
	}
	return status
}

// watch streams the entries and then the changes, one JSON object a line.
func (a *agent) watch(w http.ResponseWriter, r *http.Request) {
	watcher := make(chan api.Delta, watchBuffer)
	var first []api.Delta
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	err := a.ask(ctx, func() {
		for prefix, entry := range a.world.Cache().All() {
			first = append(first, newDelta(prefix, entry))
		}
		a.watchers[watcher] = struct{}{}
	})
	if err != nil {
		writeJSON(w, http.StatusServiceUnavailable, api.Failure{Error: err.Error()})
		return
	}
	defer a.unwatch(watcher)
	encoder := json.NewEncoder(w)
	for _, delta := range first {
		if encoder.Encode(delta) != nil {
			return
		}
	}
	follow(r.Context(), w, watcher)
}

func newDelta(prefix netip.Prefix, entry ipcache.Entry) api.Delta {
	return deltaStatus(ipcache.Delta{Prefix: prefix, New: &entry}, time.Now())
}

// follow writes changes until the asker leaves or is cut off.
func follow(ctx context.Context, w http.ResponseWriter, changes <-chan api.Delta) {
	encoder, flusher := json.NewEncoder(w), http.NewResponseController(w)
	for {
		if flusher.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case delta, open := <-changes:
			if !open || encoder.Encode(delta) != nil {
				return
			}
		}
	}
}

func (a *agent) unwatch(watcher chan api.Delta) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_ = a.ask(ctx, func() { a.watchers.end(watcher) }) // when the loop has ended, so has the watcher
}
