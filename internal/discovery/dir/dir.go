package dir

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// DefaultRescan is how often the folder is read when it reports no change.
const DefaultRescan = 10 * time.Second

const (
	// settle is how long changes are gathered before the folder is read: files come in bursts.
	settle = 50 * time.Millisecond
	// retry is how often a folder is looked for that is gone or not watched.
	retry = time.Second
)

// Options of a Dir.
type Options struct {
	// Path is the folder.
	Path string
	// Self names this machine, for Publish and Withdraw. Zero: only read.
	Self cluster.NodeID
	// Rescan is how often the folder is read when it reports no change. Zero: DefaultRescan.
	Rescan time.Duration
	// Create makes the folder, with its parents, if it is missing when Run starts. Later it is never
	// made: a folder that goes missing is a loss.
	Create bool
}

// Dir is one folder of records. Its methods may be called from different goroutines.
type Dir struct {
	path   string
	self   cluster.NodeID
	rescan time.Duration
	create bool
	own    ownRecord
	open   func(path string) (notifier, error)
}

var (
	_ discovery.Source    = (*Dir)(nil)
	_ discovery.Publisher = (*Dir)(nil)
)

// New returns a Dir without touching the folder.
func New(o Options) *Dir {
	if o.Rescan == 0 {
		o.Rescan = DefaultRescan
	}
	return &Dir{path: filepath.Clean(o.Path), self: o.Self, rescan: o.Rescan, create: o.Create, open: openNotifier}
}

// Run implements discovery.Source. It has no error that ends it: whatever is wrong with the folder may be
// put right, and is a problem until then.
func (d *Dir) Run(ctx context.Context, emit func(discovery.Event)) error {
	uncreated := d.createFolder()
	watch := follower{open: d.open}
	defer watch.stop()
	believed := state{own: d.ownFile()}
	for {
		faults := watch.follow(d.path)
		snap := scan(d.path)
		ownFaults, kept := d.keep(snap)
		snap.faults = append(faults, ownFaults...)
		if snap.lost != nil {
			snap.faults = append(snap.faults, uncreated...)
		}
		var events []discovery.Event
		believed, events = believed.next(snap)
		for _, event := range events {
			emit(event)
		}
		if !d.wait(ctx, &watch, d.pause(snap, watch.folder, kept)) {
			return nil
		}
	}
}

func (d *Dir) createFolder() []discovery.Problem {
	if !d.create {
		return nil
	}
	err := os.MkdirAll(d.path, 0o755)
	if err == nil {
		return nil
	}
	return []discovery.Problem{{
		Where:   d.path,
		Message: "the folder cannot be created: " + err.Error(),
		Remedy:  "create it",
	}}
}

// pause is how long the folder may stay unread: less when something is to be tried again.
func (d *Dir) pause(snap snapshot, watched identity, kept bool) time.Duration {
	if snap.lost != nil || snap.folder != watched || !kept {
		return min(d.rescan, retry)
	}
	return d.rescan
}

// wait returns when the folder is to be read again, after pause at the latest; false when the work is
// over.
func (d *Dir) wait(ctx context.Context, watch *follower, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case event := <-watch.events:
		watch.note(event, d.path)
	case <-watch.errors:
		watch.stop() // events may be missing; the next reading misses nothing
	}
	return gather(ctx, watch, d.path)
}

// gather takes events until settle is over, and never longer: a folder that changes all the time is
// read all the same.
func gather(ctx context.Context, watch *follower, path string) bool {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case event := <-watch.events:
			watch.note(event, path)
		case <-watch.errors:
			watch.stop()
		}
	}
}

func (d *Dir) ownFile() string {
	if d.self == (cluster.NodeID{}) {
		return ""
	}
	return FileName(d.self)
}
