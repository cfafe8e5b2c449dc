package e2e

import (
	"cmp"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestAgentsAreKilled kills agents of a cluster in strict mode at random, one at a time and all at once, and starts them again,
// some of them with other programs (another setting is another program). Nothing is lost, and nothing is in clear.
// WARREN_KILL_TIME is how long.
func TestAgentsAreKilled(t *testing.T) {
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("WARREN_KILL_TIME"), "20s"))
	if err != nil {
		t.Fatal(err)
	}
	c := up(t, "kills", "--nodes", "3", "--pods", "1", "--mode", "strict")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := watch(t, c)
	all, kills := []string{"n1", "n2", "n3"}, 0
	for start := time.Now(); time.Since(start) < limit; kills++ {
		victims := all
		if random.IntN(3) > 0 {
			victims = all[random.IntN(len(all)):][:1]
		}
		c.must("agent", append([]string{"kill"}, victims...)...)
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		c.must("agent", append([]string{"start"}, victims...)...)
		if random.IntN(3) == 0 {
			c.mustExec(victims[0], warren, "mode", "set", "permissive")
			c.mustExec(victims[0], warren, "mode", "reset")
		}
	}
	t.Logf("%d times", kills)
	w.finish(t)
	c.mustVerify(6 * 4 * 2 * 3)
}
