package kube

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
	"warren/internal/lab/netns"
)

// eventually asks again until the answer is yes.
func eventually(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// kubectl returns what kubectl prints as the administrator.
func kubectl(t *testing.T, plane *control.Plane, arguments ...string) string {
	t.Helper()
	printed, err := plane.Kubectl(t.Context(), "", arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(printed)
}

// TestPlaneServes: the API server publishes its address, and knows who talks to it.
func TestPlaneServes(t *testing.T) {
	plane := controltest.Shared(t)
	eventually(t, 30*time.Second, "the endpoint of default/kubernetes is the plane's address", func() bool {
		return kubectl(t, plane, "get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[*]}") == controltest.Address.String()
	})
	tests := []struct {
		name, verb string
		client     control.Client
		want       string
	}{
		{name: "a node may read its own object", verb: "get nodes/n1", client: control.Client{User: "system:node:n1", Groups: []string{"system:nodes"}}, want: "yes"},
		{name: "a stranger may not", verb: "get nodes/n1", client: control.Client{User: "stranger"}, want: "no"},
		{name: "an administrator may do anything", verb: "delete nodes", client: control.Client{User: "boss", Groups: []string{"system:masters"}}, want: "yes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config, err := plane.Kubeconfig(test.client)
			if err != nil {
				t.Fatal(err)
			}
			arguments := append([]string{"--kubeconfig=" + config, "auth", "can-i", "-q"}, strings.Fields(test.verb)...)
			if _, err := plane.Kubectl(t.Context(), "", arguments...); (err == nil) != (test.want == "yes") {
				t.Errorf("%s: %v, want %s", test.verb, err, test.want)
			}
		})
	}
}

// TestPlaneExposed: the API server answers in the test's own namespace, with a certificate that is good there.
func TestPlaneExposed(t *testing.T) {
	plane := controltest.Shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	at, err := plane.Expose(ctx)
	if err != nil {
		t.Fatal(err)
	}
	config, err := plane.Kubeconfig(control.Client{User: "admin", Groups: []string{"system:masters"}, Server: at, Path: filepath.Join(t.TempDir(), "config")})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kubectlHere(t, plane, config, "get", "--raw", "/readyz"); err != nil || got != "ok" {
		t.Errorf("readyz is %q (%v)", got, err)
	}
	cancel()
	if _, err := kubectlHere(t, plane, config, "get", "--raw", "/readyz"); err == nil {
		t.Error("it still answers after the end of the context")
	}
}

// TestBoundToken: a token bound to a Node says so, which is what the admission policy goes by, and dies with the Node.
func TestBoundToken(t *testing.T) {
	plane := controltest.Shared(t)
	kubectl(t, plane, "create", "namespace", "bound")
	kubectl(t, plane, "create", "serviceaccount", "agent", "-n", "bound")
	createNode(t, plane, "bound-1")
	token := kubectl(t, plane, "create", "token", "agent", "-n", "bound", "--bound-object-kind=Node", "--bound-object-name=bound-1", "--duration=24h")
	config, err := plane.Kubeconfig(control.Client{User: "bound-1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	got := kubectl(t, plane, "--kubeconfig="+config, "auth", "whoami", "-o", `jsonpath={.status.userInfo.username} {.status.userInfo.extra.authentication\.kubernetes\.io/node-name[0]}`)
	if want := "system:serviceaccount:bound:agent bound-1"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
	kubectl(t, plane, "delete", "node", "bound-1")
	eventually(t, 60*time.Second, "the token of a deleted node is refused", func() bool {
		_, err := plane.Kubectl(t.Context(), "", "--kubeconfig="+config, "auth", "whoami")
		return err != nil
	})
}

func createNode(t *testing.T, plane *control.Plane, name string) {
	t.Helper()
	if _, err := plane.Kubectl(t.Context(), `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`"}}`, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func nodes(t *testing.T, plane *control.Plane) []string {
	t.Helper()
	return strings.Fields(kubectl(t, plane, "get", "nodes", "-o", "name"))
}

// TestPlaneLives: killed, stopped, restored and wiped, from another program's point of view each time.
func TestPlaneLives(t *testing.T) {
	ctx, started := t.Context(), controltest.Own(t)
	plane, err := control.Open(started.Options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	createNode(t, plane, "kept")
	must(plane.KillComponent(ctx, control.APIServer))
	if plane.Ready(ctx) == nil || plane.PID(control.APIServer) != 0 {
		t.Error("the API server is there after it was killed")
	}
	must(plane.StartComponent(ctx, control.APIServer))
	if got := nodes(t, plane); !slices.Equal(got, []string{"node/kept"}) {
		t.Errorf("nodes after a crash: %v", got)
	}

	snapshot := filepath.Join(t.TempDir(), "snapshot")
	must(plane.Snapshot(ctx, snapshot))
	eventually(t, 60*time.Second, "the API server has found etcd again", func() bool { return plane.Ready(ctx) == nil })
	createNode(t, plane, "late")
	must(plane.Restore(ctx, snapshot))
	if got := nodes(t, plane); !slices.Equal(got, []string{"node/kept"}) {
		t.Errorf("nodes after the snapshot was restored: %v", got)
	}
	must(plane.Restore(ctx, ""))
	if got := nodes(t, plane); len(got) > 0 {
		t.Errorf("nodes after etcd was wiped: %v", got)
	}
	must(plane.Stop(ctx))
	must(plane.Stop(ctx))
	if plane.PID(control.APIServer) != 0 || plane.PID(control.Etcd) != 0 {
		t.Error("something runs after Stop")
	}
}

// TestPlaneManages: with the managers, ServiceAccounts appear by themselves and nodes get their prefixes.
func TestPlaneManages(t *testing.T) {
	plane := controltest.Own(t)
	options := plane.Options
	options.Managers, options.Pods = true, []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	plane, err := control.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	createNode(t, plane, "n1")
	eventually(t, 60*time.Second, "the node has a prefix, and the namespace its account", func() bool {
		prefix := kubectl(t, plane, "get", "node", "n1", "-o", "jsonpath={.spec.podCIDR}")
		_, err := plane.Kubectl(t.Context(), "", "get", "serviceaccount", "default")
		return strings.HasPrefix(prefix, "10.42.") && err == nil
	})
}

// TestPlaneLeavesNothing: what a test of its own had is gone with it.
func TestPlaneLeavesNothing(t *testing.T) {
	var options control.Options
	t.Run("a test", func(t *testing.T) { options = controltest.Own(t).Options })
	if options.Dir == "" {
		t.Skip("needs what the test within it needs")
	}
	if left := leftovers(options); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// hangVariable makes this test program hang with a plane of its own, and names the file to describe it in.
const hangVariable = "WARREN_TEST_HANG"

// TestPlaneOfKilledTest: what a test had is gone also when the test program was killed.
func TestPlaneOfKilledTest(t *testing.T) {
	if path := os.Getenv(hangVariable); path != "" {
		text, err := json.Marshal(controltest.Own(t).Options)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	controltest.Need(t)
	path := filepath.Join(t.TempDir(), "options.json")
	program := exec.Command(os.Args[0], "-test.run=^TestPlaneOfKilledTest$")
	program.Env = append(os.Environ(), hangVariable+"="+path)
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	var options control.Options
	eventually(t, 2*time.Minute, "the other program has a plane", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &options) == nil
	})
	if left := leftovers(options); len(left) != 4 {
		t.Errorf("there are %v, want a folder, a namespace, an etcd and an API server", left)
	}
	_ = program.Process.Kill()
	_ = program.Wait()
	eventually(t, time.Minute, "everything is gone", func() bool { return len(leftovers(options)) == 0 })
}

// leftovers are what there is of a plane, looked for by name and place.
func leftovers(options control.Options) []string {
	var left []string
	for _, path := range []string{options.Dir, netns.Path(options.Namespace)} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			left = append(left, path)
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		if program, arguments, _ := strings.Cut(string(line), "\x00"); strings.Contains(arguments, "="+options.Dir+"/") {
			left = append(left, program)
		}
	}
	return left
}

// kubectlHere runs kubectl in the test's own namespace.
func kubectlHere(t *testing.T, plane *control.Plane, config string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(plane.Options.Binaries, "kubectl"), append([]string{"--kubeconfig=" + config}, arguments...)...)
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}
