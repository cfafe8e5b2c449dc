package plan

// Bytes that WireGuard adds to a packet, besides the padding to 16 bytes.
const (
	ipv4Header      = 20
	ipv6Header      = 40
	udpHeader       = 8
	wireGuardHeader = 32 // type, receiver, counter, tag
	padding         = 16
	// minMTU is the least that IPv6 works with (RFC 8200 §5).
	minMTU = 1280
)

// InnerMTU returns the largest packet, in bytes, whose encrypted form fits into the underlay's MTU:
// 1440 for 1500 bytes over IPv4, 1408 over IPv6. It is at least 1280, since IPv6 stops below.
func InnerMTU(underlay int, overIPv6 bool) int {
	inner := (underlay - Overhead(overIPv6)) / padding * padding
	return max(inner, minMTU)
}

// Overhead returns the bytes that a packet grows by on the underlay, besides the padding.
func Overhead(overIPv6 bool) int {
	if overIPv6 {
		return ipv6Header + udpHeader + wireGuardHeader
	}
	return ipv4Header + udpHeader + wireGuardHeader
}
