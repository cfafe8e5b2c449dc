package e2e

import (
	"os"
	"slices"
	"testing"
	"time"
)

// joinTime is how long the others may take to encrypt with a node that has published its record.
const joinTime = 2 * time.Second

// TestMembership: a node joins, leaves, comes back as another machine of the same name; a record goes.
func TestMembership(t *testing.T) {
	t.Parallel()
	c := up(t, "members", "--nodes", "3", "--pods", "1")
	others := []string{"n1", "n2", "n3"}
	knows := func(name string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(others, func(other string) bool { return !slices.Contains(c.peers(other), name) })
		}
	}
	forgot := func(name string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(others, func(other string) bool { return slices.Contains(c.peers(other), name) })
		}
	}

	t.Run("a node joins", func(t *testing.T) {
		c := c.in(t)
		published := make(chan time.Time, 1)
		record := c.open().RecordPath("n4")
		go func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if fileExists(record) {
					published <- time.Now()
					return
				}
			}
		}()
		installed := make(chan time.Time, 1)
		go func() {
			eventuallyQuietly(time.Minute, knows("n4"))
			installed <- time.Now()
		}()
		if got := c.must("join"); got != "n4\n" {
			t.Errorf("join printed %q", got)
		}
		took := (<-installed).Sub(<-published)
		t.Logf("every other node had the peer %v after its record was there", took)
		if took > joinTime {
			t.Errorf("it took %v until every other node had the peer, more than %v", took, joinTime)
		}
		c.mustVerify(3*4*2*3, "--from", "n4")
		c.mustVerify(3*4*2*3, "--to", "n4")
	})
	t.Run("it leaves", func(t *testing.T) {
		c := c.in(t)
		c.must("leave", "n4")
		eventually(t, 10*time.Second, "every other node has dropped the peer", forgot("n4"))
		c.mustVerify(allRows)
	})
	t.Run("another machine takes its place", func(t *testing.T) {
		c := c.in(t)
		c.must("join")
		c.mustVerify(3*4*2*3, "--to", "n4")
	})
	t.Run("a record goes", func(t *testing.T) {
		c := c.in(t)
		c.must("agent", "kill", "n4") // otherwise it would write its record again
		if err := os.Remove(c.open().RecordPath("n4")); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "every other node has dropped the peer", forgot("n4"))
	})
	t.Run("and comes back", func(t *testing.T) {
		c := c.in(t)
		c.must("agent", "start", "n4")
		eventually(t, 10*time.Second, "every other node has the peer", knows("n4"))
		c.mustVerify(12 * 4 * 2 * 3)
	})
}

func eventuallyQuietly(limit time.Duration, condition func() bool) {
	for deadline := time.Now().Add(limit); !condition() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}
