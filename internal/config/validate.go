package config

import (
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

// The bounds of values.
const (
	minRescan, maxRescan = time.Second, 5 * time.Minute
	minLease, maxLease   = 5 * time.Second, time.Hour
	minResync, maxResync = time.Second, 30 * time.Second // drift is healed within 30 s

	maxPort = 65535 - 3 // there are four

	minMTU, maxMTU = 1280, 65535 // IPv6 needs 1280 (RFC 8200 §5)

	minRotation, maxRotation = time.Hour, 3650 * 24 * time.Hour // 0 is none

	minHoldWait, maxHoldWait = time.Second, 30 * 24 * time.Hour

	minEntries   = 16
	maxAddresses = 1 << 22
	maxPrefixes  = 1 << 20

	// maxSocketPath is what fits sockaddr_un besides the final zero (unix(7)).
	maxSocketPath = 107
)

// SocketName is the agent's socket in the run-dir.
const SocketName = "agent.sock"

// Validate reports every value that cannot work, each with where it was set, its key and the remedy.
// The error is yamldoc.Problems.
func (c Config) Validate() error { return c.problems().Err() }

func (c Config) problems() yamldoc.Problems {
	var all yamldoc.Problems
	for _, r := range rules {
		all = append(all, c.apply(r)...)
	}
	return all
}

func (c Config) problemsOf(key string) yamldoc.Problems {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.key == key })
	return c.apply(rules[i])
}

// apply checks the value of one key.
func (c Config) apply(r rule) yamldoc.Problems {
	var found yamldoc.Problems
	say := func(part string, err error) {
		p := yamldoc.Explain(err)
		p.Where, p.Key = c.where(r.key, part)
		found = append(found, p)
	}
	if r.words != nil {
		c.checkWord(r, say)
	}
	if r.check != nil {
		r.check(c, say)
	}
	return found
}

// where tells who set a value, the flag, the line of the file or nobody (""), and how to call it there:
// a flag needs no key beside its name, except for one element of a list.
func (c Config) where(key, part string) (where, name string) {
	if flag, ok := c.flags[key]; ok {
		if part == "" {
			return flag, ""
		}
		return flag, key + part
	}
	if c.doc != nil && c.doc.Has(key) {
		return c.doc.Where(key + part), key + part
	}
	return "", key + part
}

func (c Config) checkWord(r rule, say report) {
	leaves := yamldoc.Leaves(&c)
	i := slices.IndexFunc(leaves, func(leaf yamldoc.Leaf) bool { return leaf.Key == r.key })
	if got := yamldoc.Text(leaves[i].Value); !slices.Contains(r.words, got) {
		say("", fmt.Errorf("%q is not a choice; write %s", got, strings.Join(r.words, " or ")))
	}
}

func checkCluster(c Config, say report) {
	if err := cluster.ValidName(c.Cluster); err != nil {
		say("", fmt.Errorf("%w; write one such as %s", err, cluster.DefaultCluster))
	}
}

func checkNode(c Config, say report) {
	if c.Node == "" {
		return
	}
	if err := cluster.ValidName(c.Node); err != nil {
		say("", fmt.Errorf("%w; write one such as n1, or leave it out for the host's name", err))
	}
}

func checkAddresses(c Config, say report) { c.checkOwned("addresses", say) }

func checkPrefixes(c Config, say report) { c.checkOwned("prefixes", say) }

// checkOwned holds the node's addresses and prefixes to the rules of the record that will carry them.
func (c Config) checkOwned(key string, say report) {
	record := cluster.Node{Addresses: c.Addresses, Prefixes: c.Prefixes}
	for _, p := range yamldoc.ExplainAll(record.Validate()) {
		if part, ok := strings.CutPrefix(p.Key, key); ok && part != "" { // the whole list may be empty here
			if p.Remedy == "" {
				p.Remedy = "leave it out"
			}
			say(part, errors.New(p.Message+"; "+p.Remedy))
		}
	}
}

// checkDevice applies the kernel's rules for names (dev_valid_name in net/core/dev.c), and those of
// sysctl, which has its own meaning for two of them.
func checkDevice(c Config, say report) {
	name := c.Device
	switch {
	case name == "" || len(name) > 14:
		say("", fmt.Errorf("%q has %d characters; write 1 to 14, such as warren0, since a second device gets one more", name, len(name)))
	case slices.Contains([]string{".", "..", "all", "default"}, name):
		say("", fmt.Errorf("%q means something else to the kernel; choose another, such as warren0", name))
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%", r) }):
		say("", fmt.Errorf("%q has a character that device names cannot have; choose another, such as warren0", name))
	}
}

func checkPort(c Config, say report) {
	if c.Port == 0 || c.Port > maxPort {
		say("", fmt.Errorf("%d is not the first of four ports; write one from 1 to %d, such as %d", c.Port, maxPort, cluster.DefaultPort))
	}
}

func checkRotationInterval(c Config, say report) {
	if c.RotationInterval.Duration != 0 {
		between(minRotation, maxRotation, func(c Config) Duration { return c.RotationInterval })(c, say)
	}
}

func checkMark(c Config, say report) {
	switch m := c.Mark; {
	case m.Mask == 0:
		say("", fmt.Errorf("%s has an empty mask, which every packet matches; write one such as 0x10/0x10", m))
	case m.Value == 0:
		say("", fmt.Errorf("%s is what unmarked packets carry; write one such as 0x10/0x10", m))
	case m.Value&^m.Mask != 0:
		say("", fmt.Errorf("%s has bits outside its mask; write %s, or widen the mask", m, Mark{m.Value & m.Mask, m.Mask}))
	}
}

func checkMTU(c Config, say report) {
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		say("", fmt.Errorf("%d is out of range; write 0 for the underlay's, or %d to %d", c.MTU, minMTU, maxMTU))
	}
}

func checkHoldShare(c Config, say report) {
	if c.Hold.Share < 0 || c.Hold.Share > 100 {
		say("", fmt.Errorf("%d is not a share; write 1 to 100 percent, or 0 for never", c.Hold.Share))
	}
}

func checkUnderlay(c Config, say report) {
	for i, pattern := range c.Underlay {
		part := fmt.Sprintf("[%d]", i)
		switch matches, err := path.Match(pattern, c.Device); {
		case err != nil || pattern == "":
			say(part, fmt.Errorf("%q is not a pattern; write one such as eth0 or eth*", pattern))
		case matches:
			say(part, fmt.Errorf("%q matches %s, the WireGuard device itself; narrow it", pattern, c.Device))
		}
	}
}

func checkRunDir(c Config, say report) {
	if socket := filepath.Join(c.RunDir, SocketName); len(socket) > maxSocketPath {
		say("", fmt.Errorf("%s has %d characters, a socket at most %d; choose a shorter folder", socket, len(socket), maxSocketPath))
	}
	absolute(func(c Config) string { return c.RunDir })(c, say)
}

func checkMetricsAddress(c Config, say report) {
	if c.MetricsAddress == "" {
		return
	}
	_, port, err := net.SplitHostPort(c.MetricsAddress)
	if n, errPort := strconv.ParseUint(port, 10, 16); err != nil || errPort != nil || n == 0 {
		say("", fmt.Errorf(`%q is not host:port; write one such as 127.0.0.1:9880, or "" for none`, c.MetricsAddress))
	}
}

func absolute(get func(Config) string) func(Config, report) {
	return func(c Config, say report) {
		if dir := get(c); !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			say("", fmt.Errorf("%q is not the full path of a folder; write one that starts with /", dir))
		}
	}
}

// optionalFile lets the path of a file be empty.
func optionalFile(get func(Config) string) func(Config, report) {
	return func(c Config, say report) {
		if file := get(c); file != "" && !filepath.IsAbs(file) {
			say("", fmt.Errorf("%q is not the full path of a file; write one that starts with /, or leave it out", file))
		}
	}
}

func between(least, most time.Duration, get func(Config) Duration) func(Config, report) {
	return func(c Config, say report) {
		if d := get(c); d.Duration < least || d.Duration > most {
			say("", fmt.Errorf("%s is out of range; write %s to %s", d, least, most))
		}
	}
}

func sized(most uint32, get func(Config) uint32) func(Config, report) {
	return func(c Config, say report) {
		if n := get(c); n < minEntries || n > most {
			say("", fmt.Errorf("%d is out of range; write %d to %d", n, minEntries, most))
		}
	}
}
