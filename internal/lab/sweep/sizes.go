package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of a size in bytes. The smallest is what IPv4 forwards whole in any case (RFC 791 §3.2); the largest is what
// fits into the length field of its header.
const (
	MinSize = 68
	MaxSize = 65535
)

// DefaultSizes are all up to a little over the usual MTU, and samples beyond.
const DefaultSizes = "68-1600,1601-65535/1641,65535"

// Sizes are sizes in bytes, ascending, each once. Their text is that of ParseSizes.
type Sizes []int

// newSizes sorts, and drops what is there twice.
func newSizes(sizes []int) Sizes { return slices.Compact(slices.Sorted(slices.Values(sizes))) }

// ParseSizes reads "68-1600,4000,2000-9000/500": sizes, ranges, ranges with a step, in any order.
func ParseSizes(text string) (Sizes, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, step, err := parseRange(part)
		if err != nil {
			return nil, fmt.Errorf("sizes %q: %w", part, err)
		}
		for size := first; size <= last; size += step {
			sizes = append(sizes, size)
		}
	}
	return newSizes(sizes), nil
}

func parseRange(text string) (first, last, step int, err error) {
	ends, steps, stepped := strings.Cut(text, "/")
	from, to, isRange := strings.Cut(ends, "-")
	if !isRange {
		to = from
	}
	if !stepped {
		steps = "1"
	}
	for _, number := range []struct {
		text   string
		target *int
	}{{from, &first}, {to, &last}, {steps, &step}} {
		if *number.target, err = strconv.Atoi(number.text); err != nil {
			return 0, 0, 0, fmt.Errorf("%q is not a number", number.text)
		}
	}
	if first < MinSize || last > MaxSize || first > last || step < 1 {
		return 0, 0, 0, fmt.Errorf("%d to %d bytes, ascending, in steps of at least 1", MinSize, MaxSize)
	}
	return first, last, step, nil
}

// String joins what is successive: "68-1440,1500".
func (s Sizes) String() string {
	var parts []string
	for i := 0; i < len(s); i++ {
		first := s[i]
		for i+1 < len(s) && s[i+1] == s[i]+1 {
			i++
		}
		part := strconv.Itoa(first)
		if s[i] > first {
			part += "-" + strconv.Itoa(s[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (s Sizes) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sizes) UnmarshalText(text []byte) (err error) {
	*s = nil
	if len(text) > 0 {
		*s, err = ParseSizes(string(text))
	}
	return err
}
