package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warren/internal/lab/control"
)

// TestKubeIdle: agents with nothing to say write nothing to the API server, not even that they are there. What counts is the
// API server's own audit log. WARREN_IDLE_TIME is how long it is looked at.
func TestKubeIdle(t *testing.T) {
	t.Parallel()
	span, err := time.ParseDuration(cmp.Or(os.Getenv("WARREN_IDLE_TIME"), "10s"))
	if err != nil {
		t.Fatal(err)
	}
	c := upKube(t, "kidle", "--pods", "1", "--mode", "strict")
	log := startAudit(t, c.control())
	for _, node := range c.open().Topology.Nodes {
		eventually(t, time.Minute, "the record of "+node.Name+" says that all is well", func() bool { return c.reported(node.Name) == "strict 2/2 True True" })
	}
	log.skip(t)
	before := c.apiBytes()
	time.Sleep(span)
	seen, after := log.requests(t), c.apiBytes()
	for _, node := range c.open().Topology.Nodes {
		requests := seen[node.Name]
		t.Logf("%s idle for %v: %s; %s", node.Name, span, requests, after[node.Name].since(before[node.Name]))
		if n := requests.writes(); n != 0 {
			t.Errorf("%s wrote %d times", node.Name, n)
		}
	}
	// The log would have shown a write.
	c.mustExec("n1", warren, "mode", "set", "permissive")
	eventually(t, time.Minute, "a write is in the audit log", func() bool { return log.requests(t)["n1"].writes() > 0 })
}

// reported is what a node's record says of it: mode, peers that are encrypted to, whether it is ready and encrypts.
func (c *testLab) reported(node string) string {
	c.t.Helper()
	return c.kubectl("get", "warrennode", node, "-o", `jsonpath={.status.mode} {.status.peers.summary}`+
		` {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Encrypted")].status}`)
}

// audit is the log of an API server in which every request has a line as it comes in.
type audit struct {
	path string
	seen int // bytes that do not count any more
}

const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["ResponseStarted","ResponseComplete"],"rules":[{"level":"Metadata"}]}`

// startAudit starts the API server anew, with an audit log.
func startAudit(t *testing.T, plane *control.Plane) *audit {
	t.Helper()
	policy, log := filepath.Join(plane.Options.Dir, "audit-policy.json"), filepath.Join(plane.Options.Dir, "audit.log")
	write(t, policy, []byte(auditPolicy))
	restartAPIServer(t, plane, "--audit-policy-file="+policy, "--audit-log-path="+log)
	return &audit{path: log}
}

// skip forgets what came in so far.
func (a *audit) skip(t *testing.T) { a.seen += len(a.read(t)) }

// read returns the lines that count; the last one may be half.
func (a *audit) read(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(a.path)
	if err != nil {
		t.Fatal(err)
	}
	text = text[a.seen:]
	return text[:bytes.LastIndexByte(text, '\n')+1]
}

// requests are how many requests the agent of each node has sent.
func (a *audit) requests(t *testing.T) map[string]requests {
	t.Helper()
	seen := map[string]requests{}
	for line := range bytes.Lines(a.read(t)) {
		var event struct {
			Verb string
			User struct {
				Username string
				Extra    map[string][]string
			}
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		node := event.User.Extra["authentication.kubernetes.io/node-name"]
		if event.User.Username != "system:serviceaccount:warren-system:warren" || len(node) != 1 {
			continue
		}
		if seen[node[0]] == nil {
			seen[node[0]] = requests{}
		}
		seen[node[0]][request{event.Verb, strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")}]++
	}
	return seen
}

// request is what is asked for: "patch", "warrennodes/status".
type request struct{ verb, resource string }

// requests count those of an agent.
type requests map[request]int

func (r requests) writes() (n int) {
	for request, times := range r {
		if !slices.Contains([]string{"get", "list", "watch"}, request.verb) {
			n += times
		}
	}
	return n
}

// String is "2 requests (watch nodes 1, watch pods 1)".
func (r requests) String() string {
	total, parts := 0, []string{}
	for _, request := range slices.SortedFunc(maps.Keys(r), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource, b.resource))
	}) {
		total += r[request]
		parts = append(parts, fmt.Sprintf("%s %s %d", request.verb, request.resource, r[request]))
	}
	return fmt.Sprintf("%d requests (%s), %d of them writes", total, strings.Join(parts, ", "), r.writes())
}

// traffic is what an agent's connections to the API server have carried, in bytes of TCP's payload, TLS included. A
// connection is named by its own end.
type traffic map[string]struct{ sent, received int }

var (
	tcpSent     = regexp.MustCompile(`\bbytes_sent:(\d+)`)
	tcpReceived = regexp.MustCompile(`\bbytes_received:(\d+)`)
)

// apiBytes asks the kernel of every node about its agent's connections.
func (c *testLab) apiBytes() map[string]traffic {
	c.t.Helper()
	needTool(c.t, "ss")
	all := map[string]traffic{}
	for _, node := range c.open().Topology.Nodes {
		carried := traffic{}
		output := c.mustExec(node.Name, "ss", "--tcp", "--info", "--numeric", "--processes", "--oneline", "--no-header", "dst", c.control().Server().String())
		for line := range strings.Lines(output) {
			if f := strings.Fields(line); strings.Contains(line, fmt.Sprintf("pid=%d,", c.pid(node.Name))) && len(f) > 3 {
				carried[f[3]] = struct{ sent, received int }{number(tcpSent, line), number(tcpReceived, line)}
			}
		}
		all[node.Name] = carried
	}
	return all
}

// number is the one that the expression finds, 0 where there is none.
func number(expression *regexp.Regexp, line string) (n int) {
	if found := expression.FindStringSubmatch(line); found != nil {
		n, _ = strconv.Atoi(found[1])
	}
	return n
}

// since is what was carried since then, as text.
func (b traffic) since(before traffic) string {
	sent, received := 0, 0
	for end, carried := range b {
		sent, received = sent+carried.sent-before[end].sent, received+carried.received-before[end].received
	}
	return fmt.Sprintf("%d bytes sent, %d received", sent, received)
}
