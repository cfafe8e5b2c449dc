package sweep

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseSizes(t *testing.T) {
	tests := []struct {
		name, text string
		want       Sizes
		problem    string
	}{
		{name: "one", text: "1500", want: Sizes{1500}},
		{name: "a range", text: "68-71", want: Sizes{68, 69, 70, 71}},
		{name: "a range with a step that misses the end", text: "100-200/60", want: Sizes{100, 160}},
		{name: "in any order, and twice", text: "100,70-72,71", want: Sizes{70, 71, 72, 100}},
		{name: "the limits", text: "68,65535", want: Sizes{68, 65535}},
		{name: "too small", text: "67", problem: `sizes "67": 68 to 65535 bytes, ascending, in steps of at least 1`},
		{name: "too large", text: "68-65536", problem: `sizes "68-65536": 68 to 65535 bytes, ascending, in steps of at least 1`},
		{name: "descending", text: "100-90", problem: `sizes "100-90": 68 to 65535 bytes, ascending, in steps of at least 1`},
		{name: "a step that leads nowhere", text: "68-90/0", problem: `sizes "68-90/0": 68 to 65535 bytes, ascending, in steps of at least 1`},
		{name: "a word", text: "68,many", problem: `sizes "many": "many" is not a number`},
		{name: "no end", text: "68-", problem: `sizes "68-": "" is not a number`},
		{name: "nothing", text: "", problem: `sizes "": "" is not a number`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseSizes(test.text)
			var problem string
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff(test.want, got) + cmp.Diff(test.problem, problem); diff != "" {
				t.Errorf("ParseSizes(%q) (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

// TestSizesInJSON: what is written is read again, whatever sizes there are, none included.
func TestSizesInJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := newSizes(rapid.SliceOf(rapid.OneOf(rapid.IntRange(MinSize, MinSize+20), rapid.IntRange(MinSize, MaxSize))).Draw(t, "sizes"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Sizes
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int(want), []int(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	})
}

func TestSizesText(t *testing.T) {
	tests := []struct {
		sizes Sizes
		want  string
	}{
		{nil, ""}, {Sizes{68}, "68"}, {Sizes{68, 69}, "68-69"}, {Sizes{68, 70, 71, 72, 1500}, "68,70-72,1500"},
	}
	for _, test := range tests {
		if got := test.sizes.String(); got != test.want {
			t.Errorf("%v is %q, want %q", []int(test.sizes), got, test.want)
		}
	}
}
