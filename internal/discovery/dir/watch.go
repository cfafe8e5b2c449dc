package dir

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"warren/internal/discovery"
)

// notifier is a watch on one folder. Its channels are nil when there is none, and then never ready.
type notifier struct {
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
}

// openNotifier asks the kernel to report changes of the folder.
func openNotifier(path string) (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return notifier{}, err
	}
	if err := w.Add(path); err != nil {
		return notifier{}, errors.Join(err, w.Close())
	}
	return notifier{events: w.Events, errors: w.Errors, close: w.Close}, nil
}

// follower keeps a notifier on whatever folder is at the path now.
type follower struct {
	open func(path string) (notifier, error)
	notifier
	folder identity // of the folder that is watched; zero for none
}

// follow moves the watch to the folder at the path, when it is not there already. A folder that cannot
// be watched but read is reported: it is still read from time to time.
func (f *follower) follow(path string) []discovery.Problem {
	now := identify(path)
	if f.close != nil && f.folder == now {
		return nil
	}
	f.stop()
	if now == (identity{}) {
		return nil // the scan says what is wrong
	}
	n, err := f.open(path)
	if err != nil {
		return []discovery.Problem{unwatched(path, err)}
	}
	f.notifier, f.folder = n, now
	return nil
}

// stop ends the watch. What the kernel reports of a folder that is no longer at the path helps nobody.
func (f *follower) stop() {
	if f.close != nil {
		_ = f.close()
	}
	f.notifier, f.folder = notifier{}, identity{}
}

// note takes an event. When the folder itself went away, its watch is dead, even if a folder with the
// same inode takes its place.
func (f *follower) note(event fsnotify.Event, path string) {
	if event.Name == path && (event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)) {
		f.stop()
	}
}

func unwatched(path string, err error) discovery.Problem {
	remedy := "repair it; until then the folder is read every second"
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENOSPC) {
		remedy = "raise fs.inotify.max_user_instances and max_user_watches (sysctl); until then the folder is read every second"
	}
	return discovery.Problem{Where: path, Message: fmt.Sprintf("changes are not reported: %v", err), Remedy: remedy}
}
