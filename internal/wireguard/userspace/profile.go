package userspace

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
)

// ProfileTime is how long a CPU profile of the tunnel process takes.
const ProfileTime = 10 * time.Second

// profileOnSignal writes a CPU profile of the next ProfileTime to a file each time SIGUSR1 comes, until ctx
// ends. Another SIGUSR1 meanwhile changes nothing. Without a path the signal is ignored.
func profileOnSignal(ctx context.Context, path string, log *slog.Logger) {
	if path == "" {
		signal.Ignore(unix.SIGUSR1)
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
		}
		log.Info("profiling", "for", ProfileTime, "file", path)
		if err := profile(ctx, path); err != nil {
			log.Warn("no profile", "error", err)
		} else {
			log.Info("profile is written", "file", path)
		}
		select {
		case <-asked: // came meanwhile
		default:
		}
	}
}

// profile writes beside path and renames: who finds the file has the whole of it.
func profile(ctx context.Context, path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails when all went well: it has moved
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_ = sleep(ctx, ProfileTime) // an early end is a short profile
	pprof.StopCPUProfile()
	return os.Rename(file.Name(), path)
}
