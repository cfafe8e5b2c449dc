package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWipedFolder: all records vanish at once, as after an accident with the folder. The mesh stays, with an
// alarm, also when the agent starts anew; it goes when an operator says so, and comes back with the records.
func TestWipedFolder(t *testing.T) {
	t.Parallel()
	c := up(t, "wiped", "--nodes", "3", "--pods", "1")
	others := []string{"n2", "n3"}
	for _, name := range others {
		c.must("agent", "kill", name) // they would write their records again
	}
	wipe := func() {
		records, err := filepath.Glob(filepath.Join(filepath.Dir(c.open().RecordPath("n1")), "*.yaml"))
		if err != nil || len(records) != 3 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		for _, record := range records {
			if err := os.Remove(record); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := func() bool { return strings.Contains(problems(c, "n1"), "the records of 2 nodes vanished together") }

	wipe()
	eventually(t, 10*time.Second, "the agent says that nodes are held back", held)
	if got := c.peers("n1"); !slices.Equal(got, others) {
		t.Errorf("n1 has the peers %v", got)
	}
	c.mustVerify(2*4*2*3, "--from", "n1")

	c.must("agent", "restart", "n1")
	eventually(t, 10*time.Second, "the agent still holds them back after a restart", held)
	if got := c.peers("n1"); !slices.Equal(got, others) {
		t.Errorf("after a restart n1 has the peers %v", got)
	}
	if got := strings.Count(c.mustExec("n1", warren, "nodes"), " held "); got != len(others) {
		t.Errorf("after a restart %d nodes are listed as held", got)
	}

	if got := c.mustExec("n1", warren, "nodes", "forget"); got != "default/n2 default/n3\n" {
		t.Errorf("warren nodes forget printed %q", got)
	}
	eventually(t, 10*time.Second, "the peers are gone", func() bool { return len(c.peers("n1")) == 0 })
	if held() {
		t.Error("the problem is still there")
	}
	for _, name := range others {
		c.must("agent", "start", name)
	}
	eventually(t, 10*time.Second, "the peers are back", func() bool { return len(c.peers("n1")) == 2 })
	c.mustVerify(6 * 4 * 2 * 3)
}
