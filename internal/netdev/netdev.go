package netdev

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// requestTimeout bounds one netlink request. The kernel answers at once or holds the rtnl
	// lock for somebody else; nothing legitimate holds it for so long.
	requestTimeout = 10 * time.Second
	// dumpAttempts is how often a dump is repeated that a concurrent change interrupted
	// (NLM_F_DUMP_INTR) before its error is returned.
	dumpAttempts = 5
)

// Netdev talks rtnetlink with one network namespace: the one that the thread was in which called
// Open. It is safe for concurrent use, from any thread.
type Netdev struct {
	handle *netlink.Handle
}

// Open connects to rtnetlink. It asks for that one family only, so that it works on kernels whose
// other netlink families (nfnetlink, xfrm) are modules that nobody loaded.
func Open() (*Netdev, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	if err := handle.SetSocketTimeout(requestTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("set the rtnetlink timeout: %w", err)
	}
	return &Netdev{handle: handle}, nil
}

// Close releases the netlink socket. Devices and filters stay as they are, and so do watches.
func (n *Netdev) Close() { n.handle.Close() }

// dump repeats a listing until no concurrent change interrupted it: an interrupted one may lack
// entries that were there all the time, which would look like their removal.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	var (
		items []T
		err   error
	)
	for range dumpAttempts {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return items, err
		}
	}
	return nil, err
}
