package userspace

import (
	"context"
	"fmt"
	"log/slog"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
)

// Options of Run. Device and Logger are needed.
type Options struct {
	// Device is the name of the TUN device, at most 15 bytes.
	Device string
	// MTU of the device in bytes; 0 is WireGuard's default of 1420. It may be changed on the link.
	MTU int
	// Logger gets what the engine has to say, never a key.
	Logger *slog.Logger
	// Profile is the file that gets a CPU profile, for `go tool pprof`, of the next ProfileTime whenever SIGUSR1
	// comes; empty ignores the signal.
	Profile string
	// Ready is called once, when the device is there and the socket answers; nil for nobody.
	Ready func()
}

// Run makes the TUN device and serves its configuration socket. It returns nil when the device was
// deleted, when ctx ends, and on SIGTERM or SIGINT; device and socket are gone by then. SIGHUP is
// ignored, since the process has to outlive the session it was started from.
//
// It is meant to be all that its process does. Error: the device or the socket is taken.
func Run(ctx context.Context, o Options) error {
	signal.Ignore(unix.SIGHUP)
	if err := checkName(o.Device); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	var profiler sync.WaitGroup
	profiler.Go(func() { profileOnSignal(ctx, o.Profile, o.Logger) })
	defer profiler.Wait()
	defer stop()

	if o.MTU == 0 {
		o.MTU = device.DefaultMTU
	}
	tun, err := createLink(o.Device, o.MTU)
	if err != nil {
		return err
	}
	engine := device.NewDevice(tun, &bind{}, engineLogger(o.Logger, time.Now))
	defer engine.Close() // and the link
	if err := engine.Up(); err != nil {
		return fmt.Errorf("open the UDP sockets of %s: %w", o.Device, err)
	}
	socket, err := listen(socketPath(o.Device), engine.IpcHandle)
	if err != nil {
		return err
	}
	defer socket.close()
	o.Logger.Info("tunnel is up", "device", o.Device, "mtu", o.MTU, "socket", socket.path)
	if o.Ready != nil {
		o.Ready()
	}
	wait(ctx, o, engine, socket)
	return nil
}

// wait returns when there is nothing left to do.
func wait(ctx context.Context, o Options, engine *device.Device, socket *socket) {
	check, waiting := time.NewTicker(socketCheck), time.NewTicker(waitingCheck)
	defer check.Stop()
	defer waiting.Stop()
	for {
		select {
		case <-ctx.Done():
			o.Logger.Info("tunnel ends: asked to", "device", o.Device)
			return
		case <-engine.Wait():
			o.Logger.Info("tunnel ends: device deleted", "device", o.Device)
			return
		case <-check.C:
			if err := socket.restore(); err != nil {
				o.Logger.Warn("tunnel cannot be configured: its socket is gone", "device", o.Device, "error", err)
			}
		case <-waiting.C:
			if err := dropWaiting(engine, time.Now()); err != nil {
				o.Logger.Warn("packets for peers that do not answer are kept", "device", o.Device, "error", err)
			}
		}
	}
}

// checkName accepts what the kernel accepts as the name of a link, which is also safe in a path.
func checkName(name string) error {
	if name == "" || len(name) >= unix.IFNAMSIZ || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r%") {
		return fmt.Errorf("device name %q: 1 to 15 bytes, without '/', ':', '%%' and white space", name)
	}
	return nil
}
