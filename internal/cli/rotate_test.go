package cli

import (
	"testing"

	"warren/internal/api"
)

func TestRotationLine(t *testing.T) {
	for _, test := range []struct {
		name string
		in   api.Rotation
		want string
	}{
		{"one key", api.Rotation{Epoch: 3}, "epoch 3"},
		{"some have moved", api.Rotation{Epoch: 2, Stage: api.RotationMoving, Moved: []string{"n2"}, Waiting: []string{"n3", "n4"}}, "to epoch 2: 1 of 3 peers have moved, waiting for n3 n4"},
		{"all have moved", api.Rotation{Epoch: 2, Stage: api.RotationMoving, Moved: []string{"n2", "n3"}}, "to epoch 2: 2 of 2 peers have moved"},
		{"the old key goes", api.Rotation{Epoch: 2, Stage: api.RotationWithdrawn}, "to epoch 2: the old key is withdrawn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := rotationLine(test.in); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
