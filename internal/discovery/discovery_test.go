package discovery

import "testing"

func TestText(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Upsert.String(), "upsert"},
		{Problems.String(), "problems"},
		{Kind(0).String(), "kind(0)"},
		{Kind(9).String(), "kind(9)"},
		{Problem{Where: "/nodes/n1.yaml:3:1", Message: "unknown key", Remedy: "remove it"}.String(), "/nodes/n1.yaml:3:1: unknown key; remove it"},
	} {
		if tc.got != tc.want {
			t.Errorf("want %q, got %q", tc.want, tc.got)
		}
	}
}
