package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// ErrIncomplete says that the capture missed something, so nothing can be concluded from it.
var ErrIncomplete = errors.New("the capture is incomplete")

const (
	receiveBuffer = 64 << 20  // bytes of frames that may wait to be read
	largestFrame  = 256 << 10 // more than a GSO packet of the kernel's
	mostFrames    = 2_000_000 // kept in memory, some 200 bytes each
)

// Options say what a capture looks for.
type Options struct {
	Cluster Cluster
	// Magic is the beginning of all markers of this run.
	Magic [MagicLen]byte
}

// Capture is a running capture of all that enters the switches. Every frame is seen once at each, at the port
// by which it came.
type Capture struct {
	file    *os.File
	ports   map[int]string // by device index
	options Options
	done    chan struct{}

	mutex  sync.Mutex
	frames []Frame
	seen   map[Marker][]string // the ports by which frames with a marker came
	err    error               // why it is incomplete
}

// Listen starts a capture in the switches' namespace. Every device there but the bridges and lo is a
// port. From its return on, no frame is missed unnoticed.
func Listen(namespace string, bridges []string, options Options) (*Capture, error) {
	c := &Capture{options: options, done: make(chan struct{}), seen: map[Marker][]string{}}
	if err := netns.Do(namespace, func() error { return c.open(bridges) }); err != nil {
		return nil, fmt.Errorf("capture in namespace %s: %w", namespace, err)
	}
	go c.read()
	return c, nil
}

func (c *Capture) open(bridges []string) error {
	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the ports: %w", err)
	}
	c.ports = map[int]string{}
	for _, device := range devices {
		if device.Name != "lo" && !slices.Contains(bridges, device.Name) {
			c.ports[device.Index] = device.Name
		}
	}
	// Protocol 0 receives nothing yet: the options come first.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	c.file = os.NewFile(uintptr(fd), "packet socket")
	if err := configure(fd); err != nil {
		_ = c.file.Close()
		return err
	}
	return nil
}

func configure(fd int) error {
	for _, option := range []struct {
		name              string
		level, opt, value int
	}{
		{"the receive buffer", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer},
		{"incoming only", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.opt, option.value); err != nil {
			return fmt.Errorf("set %s of the packet socket: %w", option.name, err)
		}
	}
	everything := &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL)}
	if err := unix.Bind(fd, everything); err != nil {
		return fmt.Errorf("bind the packet socket: %w", err)
	}
	return nil
}

func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// read takes frames until Close, and then what is still waiting.
func (c *Capture) read() {
	defer close(c.done)
	connection, err := c.file.SyscallConn()
	if err != nil {
		c.fail(err)
		return
	}
	buffer := make([]byte, largestFrame)
	for {
		var received error
		err := connection.Read(func(fd uintptr) bool {
			received = c.receive(int(fd), buffer)
			return !errors.Is(received, unix.EAGAIN)
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err = errors.Join(err, received); err != nil {
			c.fail(err)
			return
		}
	}
	_ = connection.Control(func(fd uintptr) {
		for c.receive(int(fd), buffer) == nil {
		}
	})
}

// receive takes one frame; EAGAIN when none waits.
func (c *Capture) receive(fd int, buffer []byte) error {
	n, _, flags, from, err := unix.Recvmsg(fd, buffer, nil, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	if flags&unix.MSG_TRUNC != 0 {
		c.fail(fmt.Errorf("a frame of more than %d bytes", largestFrame))
	}
	c.keep(buffer[:n], from)
	return nil
}

func (c *Capture) keep(raw []byte, from unix.Sockaddr) {
	link, ok := from.(*unix.SockaddrLinklayer)
	if !ok {
		return
	}
	port, ok := c.ports[link.Ifindex]
	if !ok {
		return // the bridge itself, which repeats what its ports received
	}
	frame := inspect(raw, c.options.Cluster, c.options.Magic)
	frame.Port = port
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.frames) == mostFrames {
		c.err = fmt.Errorf("more than %d frames", mostFrames)
		return
	}
	c.frames = append(c.frames, frame)
	for _, marker := range frame.Markers {
		if !slices.Contains(c.seen[marker], port) {
			c.seen[marker] = append(c.seen[marker], port)
		}
	}
}

func (c *Capture) fail(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// Saw returns the ports by which frames with the marker have come so far, sorted.
func (c *Capture) Saw(marker Marker) []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Sorted(slices.Values(c.seen[marker]))
}

// Close ends the capture and returns the frames in the order in which they came, fragments settled.
// ErrIncomplete when one was lost.
func (c *Capture) Close() ([]Frame, error) {
	statistics, err := c.statistics()
	_ = c.file.SetReadDeadline(time.Unix(1, 0))
	<-c.done
	_ = c.file.Close()
	switch {
	case c.err != nil:
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, c.err)
	case err != nil:
		return nil, fmt.Errorf("%w: ask for lost frames: %w", ErrIncomplete, err)
	case statistics.Drops > 0:
		return nil, fmt.Errorf("%w: the kernel dropped %d of %d frames for want of buffer", ErrIncomplete, statistics.Drops, statistics.Packets)
	}
	Settle(c.frames)
	return c.frames, nil
}

func (c *Capture) statistics() (statistics *unix.TpacketStats, err error) {
	connection, err := c.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := connection.Control(func(fd uintptr) {
		statistics, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	return statistics, errors.Join(controlErr, err)
}
