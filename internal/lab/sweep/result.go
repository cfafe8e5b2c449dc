package sweep

import (
	"fmt"
	"maps"
	"slices"

	"warren/internal/lab/proof"
)

// Result is what became of the sizes of one row; the field names are stable.
type Result struct {
	proof.Row
	// DF: sent with "don't fragment", as applications set it that look for the path's MTU themselves
	// (IP_PMTUDISC_DO). Always false for TCP.
	DF bool `json:"df"`
	// Delivered came back whole.
	Delivered Sizes `json:"delivered"`
	// Told were refused, and the sender was told what fits instead.
	Told []Told `json:"told"`
	// Lost neither came back nor was the sender told: the black hole.
	Lost Sizes `json:"lost"`
	// Untried were not sent any more, after others had been lost that smaller ones do not survive either.
	Untried Sizes `json:"untried"`
	// OK: none lost, none untried, and whatever the sender was told to send instead was delivered.
	OK bool `json:"ok"`
	// Problem says what is wrong with a row that is not OK.
	Problem string `json:"problem,omitempty"`
}

// Told are sizes for which send(2) failed with EMSGSIZE.
type Told struct {
	// MTU that the kernel knew of then (IP_MTU), in bytes: of its own device, or of the path.
	MTU   int   `json:"mtu"`
	Sizes Sizes `json:"sizes"`
}

// outcome is what became of each size while it is being found out.
type outcome struct {
	delivered map[int]bool
	told      map[int]int // size → MTU
	tried     map[int]bool
	failure   error // the last one of sending other than EMSGSIZE
}

func newOutcome() *outcome {
	return &outcome{delivered: map[int]bool{}, told: map[int]int{}, tried: map[int]bool{}}
}

// pending are those of the sizes of which nothing is known yet.
func (o *outcome) pending(sizes Sizes) Sizes {
	return slices.DeleteFunc(slices.Clone(sizes), func(size int) bool { return o.delivered[size] || o.told[size] > 0 })
}

// advised are the sizes that senders were told to send instead and that have not been tried yet.
func (o *outcome) advised() Sizes {
	mtus := newSizes(slices.Collect(maps.Values(o.told)))
	return slices.DeleteFunc(mtus, func(mtu int) bool { return mtu < MinSize || o.tried[mtu] })
}

// result judges the outcome of the sizes that were asked for and of those that were advised.
func (o *outcome) result(row proof.Row, df bool, sizes Sizes) Result {
	r := Result{Row: row, DF: df, Told: []Told{}}
	told := map[int][]int{}
	for _, size := range newSizes(slices.Concat(sizes, slices.Collect(maps.Keys(o.tried)))) {
		switch mtu, wasTold := o.told[size]; {
		case o.delivered[size]:
			r.Delivered = append(r.Delivered, size)
		case wasTold && mtu >= MinSize:
			told[mtu] = append(told[mtu], size)
		case o.tried[size]:
			r.Lost = append(r.Lost, size)
		default:
			r.Untried = append(r.Untried, size)
		}
	}
	for _, mtu := range slices.Sorted(maps.Keys(told)) {
		r.Told = append(r.Told, Told{MTU: mtu, Sizes: told[mtu]})
	}
	r.Problem = r.problem(o.failure)
	r.OK = r.Problem == ""
	return r
}

func (r Result) problem(failure error) string {
	why := "and nobody was told"
	if failure != nil {
		why = fmt.Sprintf("the last error was: %v", failure)
	}
	switch {
	case len(r.Lost) > 0 && len(r.Untried) > 0:
		return fmt.Sprintf("lost %s, %s; not tried after that: %s", r.Lost, why, r.Untried)
	case len(r.Lost) > 0:
		return fmt.Sprintf("lost %s, %s", r.Lost, why)
	case len(r.Untried) > 0:
		return fmt.Sprintf("not tried: %s; %s", r.Untried, why)
	}
	return ""
}
