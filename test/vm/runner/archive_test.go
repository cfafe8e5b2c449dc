package main

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArchive(t *testing.T) {
	var out bytes.Buffer
	a := newArchive(&out)
	a.Device("/dev/console", 5, 1)
	a.File("/bin/tool", 0o755, []byte("content"))
	a.File("/bin/tool", 0o644, []byte("is there already"))
	a.Dir("/bin/")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	// Magic, inode, mode, uid, gid, links, time, size, device twice, length of the name, checksum.
	want := []string{
		"070701 00000001 000041ed 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000004 00000000 dev",
		"070701 00000002 00002180 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000005 00000001 0000000c 00000000 dev/console",
		"070701 00000003 000041ed 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000004 00000000 bin",
		"070701 00000004 000081ed 00000000 00000000 00000001 00000000 00000007 00000000 00000000 00000000 00000000 00000009 00000000 bin/tool content",
		"070701 00000005 00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 0000000b 00000000 TRAILER!!!",
	}
	if diff := cmp.Diff(want, entries(t, out.Bytes())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// entries reads an archive the way the kernel does, and shows each entry as one line.
func entries(t *testing.T, data []byte) []string {
	t.Helper()
	const header = 110
	var lines []string
	next := func(length int) string {
		padded := (length + 3) &^ 3
		if padded > len(data) {
			t.Fatalf("%d bytes are left, %d wanted", len(data), padded)
		}
		part := string(data[:length])
		data = data[padded:]
		return part
	}
	for len(data) > 0 {
		fields := []string{string(data[:6])}
		for at := 6; at < header; at += 8 {
			fields = append(fields, string(data[at:at+8]))
		}
		name := next(header + number(t, fields[12]))[header:]
		fields = append(fields, strings.TrimSuffix(name, "\x00"))
		if content := next(number(t, fields[7])); content != "" {
			fields = append(fields, content)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return lines
}

func number(t *testing.T, hex string) int {
	t.Helper()
	value, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

// full takes so many bytes and no more.
type full int

func (f *full) Write(data []byte) (int, error) {
	if len(data) > int(*f) {
		return 0, errors.New("the disk is full")
	}
	*f -= full(len(data))
	return len(data), nil
}

func TestArchiveKeepsFirstError(t *testing.T) {
	space := full(100_000)
	a := newArchive(&space)
	for _, name := range []string{"/a", "/b", "/c"} {
		a.File(name, 0o644, make([]byte, 60_000))
	}
	if err := a.Close(); err == nil || err.Error() != "the disk is full" {
		t.Errorf("Close: %v", err)
	}
}
