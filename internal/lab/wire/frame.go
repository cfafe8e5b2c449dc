package wire

import (
	"bytes"
	"net/netip"
)

// Frame is what is kept of a captured frame.
type Frame struct {
	// Port of the switch by which it came: the node that sent it.
	Port string
	Kind Kind
	// Flow is the innermost one: inside VXLAN that of the frame carried.
	Flow Flow
	// Length in bytes.
	Length int
	// Markers that occur anywhere in its bytes, each once, in order.
	Markers []Marker
	// pieces are the fragmented datagrams that it carries a piece of, outermost first.
	pieces []piece
}

// piece is one fragment of a datagram.
type piece struct {
	datagram datagram
	head     bool // has the ports
	outer    bool // decides what the frame is
}

type datagram struct {
	source, destination netip.Addr
	id                  uint32
}

// Settle gives later fragments the flow of their datagram, and tells every Piece what it is a piece
// of. A piece without a first fragment is clear.
func Settle(frames []Frame) {
	heads := map[datagram]Frame{}
	for _, frame := range frames {
		for _, p := range frame.pieces {
			if p.head {
				heads[p.datagram] = frame
			}
		}
	}
	for i := range frames {
		frames[i].settle(heads)
	}
}

func (f *Frame) settle(heads map[datagram]Frame) {
	for _, p := range f.pieces {
		head, ok := heads[p.datagram]
		if !ok || p.head {
			continue
		}
		f.Flow = head.Flow
		if p.outer && f.Kind == Piece {
			f.Kind = head.Kind
		}
	}
	if f.Kind == Piece {
		f.Kind = Clear
	}
}

// Marker is what the payload of test traffic is made of: 8 bytes that all markers of a run share, so
// that one search finds them all, and 8 bytes of its own.
type Marker [16]byte

// MagicLen is the length of what the markers of one run have in common.
const MagicLen = 8

// Fill returns size bytes of the marker over and over. Any 31 successive bytes contain it whole, so
// fragmentation cannot hide it.
func (m Marker) Fill(size int) []byte {
	return bytes.Repeat(m[:], size/len(m)+1)[:size]
}

// FindMarkers returns the markers with the given beginning that occur in a frame, each once.
func FindMarkers(frame []byte, magic [MagicLen]byte) []Marker {
	var found []Marker
	seen := map[Marker]bool{}
	for {
		at := bytes.Index(frame, magic[:])
		if at < 0 || len(frame) < at+len(Marker{}) {
			return found
		}
		marker := Marker(frame[at:])
		if !seen[marker] {
			seen[marker] = true
			found = append(found, marker)
		}
		frame = frame[at+MagicLen:]
	}
}

// inspect turns the bytes of a frame into what is kept of it.
func inspect(raw []byte, cluster Cluster, magic [MagicLen]byte) Frame {
	packet := Decode(raw)
	frame := Frame{Kind: cluster.Judge(packet), Length: len(raw), Markers: FindMarkers(raw, magic)}
	for layer := &packet; layer != nil; layer = layer.Inner {
		frame.Flow = layer.Flow
		if layer.Fragment.IsPiece() {
			frame.pieces = append(frame.pieces, piece{
				datagram: datagram{layer.Flow.Source.Addr(), layer.Flow.Destination.Addr(), layer.Fragment.ID},
				head:     layer.Fragment.Offset == 0,
				outer:    layer == &packet,
			})
		}
	}
	return frame
}
