package proof

import (
	"fmt"
	"net/netip"

	"warren/internal/lab/wire"
)

// Result is a row with what was seen of it; the field names are stable.
type Result struct {
	Row
	// Delivered: the answer came back with the row's marker.
	Delivered bool `json:"delivered"`
	// MarkerFrames carried the row's marker where it could be read.
	MarkerFrames int `json:"marker_frames"`
	// ClearFrames belong to the row, went between nodes, and are neither WireGuard nor the link's own.
	ClearFrames int `json:"clear_frames"`
	// WireGuardFrames went between the two nodes while the row ran.
	WireGuardFrames int `json:"wireguard_frames"`
	// Source and Destination are the addresses that talked.
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	// OK: delivered, nothing to be read, and WireGuard seen in both directions.
	OK bool `json:"ok"`
	// Problem says what is wrong with a row that is not OK.
	Problem string `json:"problem,omitempty"`

	wireGuardOut, wireGuardBack int
	example                     string // a frame in clear
	failure                     error  // why it was not delivered
}

// exchange is what the traffic of a row looked like from its ends.
type exchange struct {
	row    Row
	marker wire.Marker
	// opening and closing are in the frames in clear right before and after.
	opening, closing wire.Marker
	// flow from the source to the destination, as the kernel chose it.
	flow    wire.Flow
	failure error // nil when delivered
}

// Measurement is everything that one run of all rows brought.
type Measurement struct {
	exchanges []exchange
	frames    []wire.Frame
	// nodes by their addresses on the wire.
	nodes map[netip.Addr]string
	// void says why the capture proves nothing; "" when it does.
	void string
}

// tally is a Measurement, counted.
type tally struct {
	results []Result
	// stray are frames in clear between nodes that belong to no row.
	stray        int
	strayExample string
	// totals over all frames
	clear, markers, wireGuard int
}

// count attributes every frame to its row, in the order in which they were captured. It is pure.
func (m Measurement) count() tally {
	c := newCounter(m)
	for _, frame := range m.frames {
		c.markers(frame)
		switch frame.Kind {
		case wire.Clear:
			c.clear(frame)
		case wire.WireGuard:
			c.wireGuard(frame)
		}
	}
	for i := range c.tally.results {
		c.tally.results[i].judge()
	}
	return c.tally
}

// counter finds the row of a frame.
type counter struct {
	measurement Measurement
	tally       tally
	byMarker    map[wire.Marker]int
	byFlow      map[wire.Flow]int
	// running is the row of each pair whose opening was the last seen.
	running map[pair]int
	opening map[wire.Marker]int
	closing map[wire.Marker]int
}

func newCounter(m Measurement) *counter {
	c := &counter{measurement: m, byMarker: map[wire.Marker]int{}, byFlow: map[wire.Flow]int{},
		running: map[pair]int{}, opening: map[wire.Marker]int{}, closing: map[wire.Marker]int{}}
	for i, e := range m.exchanges {
		c.tally.results = append(c.tally.results, Result{
			Row: e.row, Delivered: e.failure == nil, failure: e.failure,
			Source: e.flow.Source.Addr(), Destination: e.row.destination.Address,
		})
		c.byMarker[e.marker] = i
		c.byFlow[e.flow], c.byFlow[e.flow.Reverse()] = i, i
		c.opening[e.opening], c.closing[e.closing] = i, i
	}
	return c
}

// markers counts what could be read, in frames of any kind, and follows which rows run.
func (c *counter) markers(frame wire.Frame) {
	for _, marker := range frame.Markers {
		if i, ok := c.byMarker[marker]; ok {
			c.tally.results[i].MarkerFrames++
			c.tally.markers++
		}
		if i, ok := c.opening[marker]; ok {
			c.running[c.tally.results[i].pair()] = i
		}
		if i, ok := c.closing[marker]; ok {
			delete(c.running, c.tally.results[i].pair())
		}
	}
}

func (c *counter) clear(frame wire.Frame) {
	c.tally.clear++
	i, ok := c.rowOf(frame)
	if !ok {
		c.tally.stray++
		c.tally.strayExample = first(c.tally.strayExample, describe(frame))
		return
	}
	result := &c.tally.results[i]
	result.ClearFrames++
	result.example = first(result.example, describe(frame))
}

// rowOf goes by marker, since NAT and tunnels change addresses, and then by addresses and ports,
// since a SYN has no payload.
func (c *counter) rowOf(frame wire.Frame) (int, bool) {
	for _, marker := range frame.Markers {
		if i, ok := c.byMarker[marker]; ok {
			return i, true
		}
	}
	i, ok := c.byFlow[frame.Flow]
	return i, ok
}

// wireGuard goes by the two nodes and by which of their rows was running.
func (c *counter) wireGuard(frame wire.Frame) {
	c.tally.wireGuard++
	from, to := c.measurement.nodes[frame.Flow.Source.Addr()], c.measurement.nodes[frame.Flow.Destination.Addr()]
	i, ok := c.running[Row{From: from, To: to}.pair()]
	if !ok {
		return
	}
	result := &c.tally.results[i]
	result.WireGuardFrames++
	if from == result.From {
		result.wireGuardOut++
	} else {
		result.wireGuardBack++
	}
}

// judge fills in OK and Problem.
func (r *Result) judge() {
	r.Problem = r.problem()
	r.OK = r.Problem == ""
}

func (r *Result) problem() string {
	switch {
	case r.MarkerFrames > 0:
		return fmt.Sprintf("its payload could be read in %d frames on the wire, such as %s", r.MarkerFrames, first(r.example, "one between other machines"))
	case r.ClearFrames > 0:
		return fmt.Sprintf("%d of its frames went between nodes in clear, such as %s", r.ClearFrames, r.example)
	case !r.Delivered && r.wireGuardOut > 0 && r.wireGuardBack == 0:
		return fmt.Sprintf("no answer (%v): %s sent %d WireGuard frames, %s sent none back", r.failure, r.From, r.wireGuardOut, r.To)
	case !r.Delivered:
		return fmt.Sprintf("no answer (%v); WireGuard frames: %d from %s, %d from %s", r.failure, r.wireGuardOut, r.From, r.wireGuardBack, r.To)
	case r.wireGuardOut == 0 || r.wireGuardBack == 0:
		return fmt.Sprintf("delivered, but WireGuard frames do not account for it: %d from %s, %d from %s", r.wireGuardOut, r.From, r.wireGuardBack, r.To)
	}
	return ""
}

// describe prints a frame for people.
func describe(f wire.Frame) string {
	return fmt.Sprintf("%s (sent by %s, %d bytes)", f.Flow, f.Port, f.Length)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
