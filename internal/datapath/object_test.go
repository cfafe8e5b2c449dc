package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
)

// mostSteps is a quarter of what the verifier takes before it gives up. Verifiers differ in the paths that they see:
// that of Linux 6.1 takes about twice as many steps as that of 6.12.
const mostSteps = 250_000

// TestVerifierEffort: with everything switched on, no program is anywhere near the verifier's limit.
func TestVerifierEffort(t *testing.T) {
	needRoot(t)
	config := testConfig()
	config.Mode, config.Exemptions, config.InnerMTU = cluster.ModeStrict, true, 1440
	for _, program := range model.Programs() {
		for _, l3 := range []bool{false, true} {
			v := variant{program: program, l3: l3}
			t.Run(v.name(), func(t *testing.T) {
				if steps := verifierSteps(t, v, config); steps > mostSteps {
					t.Errorf("the verifier takes %d steps, want at most %d", steps, mostSteps)
				} else {
					t.Logf("%d steps", steps)
				}
			})
		}
	}
}

func verifierSteps(t *testing.T, v variant, config model.Config) (steps int) {
	t.Helper()
	spec := embedded(t)
	for name, value := range v.variables(config, false) {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	program := spec.Programs[v.program.String()]
	spec.Programs = map[string]*ebpf.ProgramSpec{v.program.String(): program}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		t.Fatalf("%+v", err) // with the verifier's log
	}
	defer loaded.Close()
	log := loaded.Programs[v.program.String()].VerifierLog
	for rest := log; rest != ""; rest = rest[1:] {
		if n, _ := fmt.Sscanf(rest, "processed %d insns", &steps); n == 1 {
			return steps
		}
	}
	t.Fatalf("the verifier says nothing of its effort: %s", log)
	return 0
}
