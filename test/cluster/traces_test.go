package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// traces are the places of a node where Warren may leave something, as commands that print what is there.
var traces = map[string]string{
	"devices":       `ip -oneline link | awk -F '[:@] *' '$2 !~ /^veth/ { print $2 }'`,
	"routing rules": `ip rule; ip -6 rule`,
	"routes":        `for family in -4 -6; do ip $family route show table all | grep -v ' dev veth'; done | grep -i warren || true`,
	"filters":       `for device in $(ip -oneline link | awk -F '[:@] *' '{ print $2 }'); do tc qdisc show dev $device | grep -v noqueue; bpftool net show dev $device | grep -w prog_id; done || true`,
	"pins":          `find /sys/fs/bpf -mindepth 1`,
	"files":         `find / /run -xdev \( -path /var/lib/containerd -o -path /proc -o -path /sys \) -prune -o \( -iname '*warren*' -o -iname '*wireguard*' \) -print | grep -v '^/usr/' || true`,
	"processes":     `grep -l warren /proc/[0-9]*/comm || true`,
	"firewall":      `nft list ruleset 2>/dev/null | grep -i warren || true`,
	"settings":      `sysctl -a 2>/dev/null | grep -E '^net\.(ipv4|ipv6)\.(ip_forward|conf\.(all|default|eth0)\.)' | sort`,
}

// look prints what is in those places.
func (n *node) look(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for what, command := range traces {
		output, err := n.do("sh", "-c", command)
		if err != nil {
			t.Fatal(err)
		}
		found[what] = strings.TrimSpace(output)
	}
	return found
}

// lookAll looks at every node.
func (c *cluster) lookAll(t testing.TB) []map[string]string {
	t.Helper()
	var all []map[string]string
	for _, n := range c.nodes {
		all = append(all, n.look(t))
	}
	return all
}

// mustDiffer expects that Warren is seen where it certainly is, so that nothing seen means something.
func mustDiffer(t testing.TB, before, installed []map[string]string) {
	t.Helper()
	for i := range before {
		for _, what := range []string{"devices", "filters", "pins", "files", "processes"} {
			if before[i][what] == installed[i][what] {
				t.Errorf("%s: nothing of Warren is seen on node %d: %s", what, i+1, installed[i][what])
			}
		}
	}
}

// traceless waits until every node is as it was before.
func (c *cluster) traceless(t testing.TB, before []map[string]string) {
	t.Helper()
	eventually(t, patience, "nothing is left on the nodes", func() error {
		if diff := cmp.Diff(before, c.lookAll(t)); diff != "" {
			return differs(diff)
		}
		return nil
	})
}

// differs is a difference as an error.
type differs string

func (d differs) Error() string { return "(-before +after)\n" + string(d) }
