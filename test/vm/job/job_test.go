package job

import "testing"

func TestCode(t *testing.T) {
	for code := range InitFailed + 1 {
		if got, ok := Code(int(Byte(code))<<1 | 1); got != code || !ok {
			t.Errorf("Code after Byte(%d) = %d, %v", code, got, ok)
		}
	}
	// What qemu exits with when the guest reboots or panics (0), when it cannot start (1), or when a
	// signal ends it (Go says -1).
	for _, qemu := range []int{-1, 0, 1, 2, 3, 127, 255} {
		if code, ok := Code(qemu); ok != (qemu == 127) {
			t.Errorf("Code(%d) = %d, %v", qemu, code, ok)
		}
	}
}
