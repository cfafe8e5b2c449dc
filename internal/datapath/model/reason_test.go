package model_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"warren/internal/datapath/model"
)

var snakeCase = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

func TestReasonsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for i, r := range model.Reasons() {
		if int(r) != i+1 {
			t.Errorf("%v has number %d, want %d: no holes", r, r, i+1)
		}
		if !snakeCase.MatchString(r.String()) || seen[r.String()] {
			t.Errorf("name %q is not snake_case or is used twice", r)
		}
		seen[r.String()] = true
		if text := r.Description(); text == "" || strings.ContainsAny(text, "\n\"\\") || strings.HasSuffix(text, ".") {
			t.Errorf("%v: description %q is not one plain line without a full stop", r, text)
		}
		if len(r.Programs()) == 0 {
			t.Errorf("%v: no program gives it", r)
		}
	}
	if n := len(seen); n >= model.MaxReason {
		t.Errorf("%d reasons, the counters have room for %d", n, model.MaxReason)
	}
}

func TestUnknownReason(t *testing.T) {
	for _, r := range []model.Reason{0, model.MaxReason - 1, 255} {
		if got, want := r.String(), fmt.Sprintf("reason(%d)", r); got != want {
			t.Errorf("name %q, want %q", got, want)
		}
		if r.Description() == "" || r.Programs() != nil || r.PerPeer() {
			t.Errorf("reason(%d) has properties", r)
		}
	}
	if got := model.Program(9).String(); got != "program(9)" {
		t.Errorf("name of an unknown program %q", got)
	}
}
