package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Arrival is a probe of a peer that came through the tunnel.
type Arrival struct {
	// Time since boot at which it came (CLOCK_MONOTONIC).
	Time time.Duration
	// Length of the whole IP packet in bytes.
	Length int
	// Data is the beginning of the packet, from the IP header: at most 128 bytes.
	Data []byte
}

// Arrivals reads the probes, one reader at a time.
type Arrivals struct{ ring *ringbuf.Reader }

// Arrivals returns the probes that arrived and arrive. The first ones may be old: they came while
// nobody read. The kernel keeps some 1,700 of them and drops what comes then.
func (d *Datapath) Arrivals() (*Arrivals, error) {
	ring, err := ringbuf.NewReader(d.maps[mapArrivals])
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", mapArrivals, err)
	}
	return &Arrivals{ring}, nil
}

// Read waits for the next probe. After Close it returns os.ErrClosed.
func (a *Arrivals) Read() (Arrival, error) {
	record, err := a.ring.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return Arrival{}, os.ErrClosed
	}
	if err != nil {
		return Arrival{}, fmt.Errorf("read a probe: %w", err)
	}
	return arrivalOf(record.RawSample)
}

// Close ends a Read that waits.
func (a *Arrivals) Close() error { return a.ring.Close() }

// arrivalOf reads struct arrival.
func arrivalOf(record []byte) (Arrival, error) {
	const header, size = 16, 16 + 128
	if len(record) < size {
		return Arrival{}, fmt.Errorf("a probe's record has %d bytes instead of %d", len(record), size)
	}
	copied := min(binary.NativeEndian.Uint32(record[12:]), size-header)
	return Arrival{
		Time:   time.Duration(binary.NativeEndian.Uint64(record)),
		Length: int(binary.NativeEndian.Uint32(record[8:])),
		Data:   record[header : header+copied],
	}, nil
}

// FirstFragment returns the size in bytes, with the IP header, of the last first fragment of a WireGuard
// datagram that came from a machine's address, and since boot (CLOCK_MONOTONIC) when. Whoever cut the datagram, a
// router or the sender, made it as large as its link allows, rounded down to 8 bytes of payload. Anybody on the
// path can forge it: it is a reason to measure, and no measurement.
func (d *Datapath) FirstFragment(source netip.Addr) (size int, at time.Duration, ok bool, err error) {
	return firstFragment(d.maps[mapFragments], source)
}

func firstFragment(m *ebpf.Map, source netip.Addr) (size int, at time.Duration, ok bool, err error) {
	var fragment pathFragment
	err = m.Lookup(addressOf(source), &fragment)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("look up the first fragment from %s: %w", source, err)
	}
	return int(fragment.Size), time.Duration(fragment.At), true, nil
}
