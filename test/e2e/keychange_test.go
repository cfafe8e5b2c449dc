package e2e

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"warren/internal/cluster"
)

// backTime is how long a node that was rebooted may be away.
const backTime = 5 * time.Second

// TestKeyChange: a known node turns up with a key that its old key did not announce.
func TestKeyChange(t *testing.T) {
	t.Parallel()
	c := up(t, "keychange", "--nodes", "2", "--pods", "1")
	keyOf := func() string {
		for _, peer := range c.status("n1").Peers {
			if peer.Node == "n2" && peer.Encrypting && peer.State == "confirmed" {
				return peer.PublicKey
			}
		}
		return ""
	}
	held := func() bool { return strings.Contains(problems(c, "n1"), "its key has changed to") }
	eventually(t, 10*time.Second, "n1 encrypts to n2", func() bool { return keyOf() != "" })
	before := keyOf()

	t.Run("a forged record does not count, and nobody is cut off", func(t *testing.T) {
		c := c.in(t)
		c.must("agent", "kill", "n2") // it would write its record again
		record := c.open().RecordPath("n2")
		text, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		forger, err := cluster.NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		write(t, record, bytes.Replace(text, []byte(before), []byte(forger.Public().String()), 1))
		eventually(t, 10*time.Second, "the alarm", held)
		time.Sleep(3 * time.Second) // longer than a real change takes
		if !held() {
			t.Error("the forged key was accepted")
		}
		c.mustVerify(2 * 4 * 2 * 3)
		c.must("agent", "start", "n2")
		eventually(t, 10*time.Second, "the end of the alarm", func() bool { return !held() && keyOf() == before })
	})
	t.Run("a machine that lost its disk is back", func(t *testing.T) {
		c := c.in(t)
		c.must("reboot", "n2", "--lose-disk")
		took := eventually(t, 30*time.Second, "n1 encrypts to the new key", func() bool { key := keyOf(); return key != "" && key != before })
		t.Logf("back %v after the machine was there", took)
		if took > backTime {
			t.Errorf("it took %v, more than %v", took, backTime)
		}
		if held() {
			t.Error("the alarm is still there")
		}
		c.mustVerify(2 * 4 * 2 * 3)
	})
}
