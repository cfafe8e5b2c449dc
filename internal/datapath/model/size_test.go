package model

import "testing"

func TestFit(t *testing.T) {
	tests := []struct {
		name     string
		size     int
		segments Segments
		limit    int
		want     Reason
	}{
		{"as large as the tunnel", 1440, Segments{}, 1440, ReasonRedirected},
		{"one byte more", 1441, Segments{}, 1440, ReasonOversize},
		{"nobody said what fits", 65535, Segments{}, 0, ReasonRedirected},
		{"segments that fit", 60000, Segments{Size: 1388, Headers: 52, TCP: true}, 1440, ReasonRedirected},
		{"segments of one byte more", 60000, Segments{Size: 1389, Headers: 52, TCP: true}, 1440, ReasonRecut},
		{"segments in an overlay", 60000, Segments{Size: 1398, Headers: 102, TCP: true}, 1440, ReasonRecut},
		{"no room but for headers", 60000, Segments{Size: 1000, Headers: 1440, TCP: true}, 1440, ReasonOversize},
		{"datagrams that fit", 60000, Segments{Size: 1412, Headers: 28}, 1440, ReasonRedirected},
		{"datagrams of one byte more", 60000, Segments{Size: 1413, Headers: 28}, 1440, ReasonOversize},
	}
	for _, test := range tests {
		if got := fit(test.size, test.segments, test.limit); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
