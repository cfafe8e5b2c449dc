package discovery

import (
	"errors"
	"fmt"
	"regexp"

	"warren/internal/cluster"
)

var (
	capability = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	software   = regexp.MustCompile(`^[!-~]{0,128}$`)
)

// CheckRecord is what every engine holds a record to: that the node is valid, and what the vocabulary leaves
// open and a record must not: two keys that are one, and text that would end up on somebody's terminal. The
// error is joined, of parts "field: message; remedy".
func CheckRecord(node cluster.Node) error {
	problems := []error{node.Validate()}
	say := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	first := map[cluster.PublicKey]uint32{}
	for i, key := range node.Keys {
		if epoch, dup := first[key.Public]; dup {
			say("keys[%d].public: epochs %d and %d have the same key; remove one", i, epoch, key.Epoch)
		}
		first[key.Public] = key.Epoch
	}
	if year := node.Issued.Year(); year < 1 || year > 9999 {
		say("issued: outside the years 1 to 9999; write the time at which the record was made")
	}
	for i, word := range node.Capabilities {
		if !capability.MatchString(word) {
			say("capabilities[%d]: %.70q is not a short word; use a-z, 0-9 and inside '-'", i, word)
		}
	}
	if !software.MatchString(node.Version) {
		say(`version: %.140q is not a version; use printable ASCII without spaces, or ""`, node.Version)
	}
	return errors.Join(problems...)
}
