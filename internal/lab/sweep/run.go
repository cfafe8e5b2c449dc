package sweep

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"warren/internal/lab"
	"warren/internal/lab/proof"
)

// ErrNothing says that there is no row to sweep, or no size.
var ErrNothing = errors.New("nothing to sweep: fewer than two nodes, or a filter that accepts no row")

// rowsAtOnce is how many rows are gone through at a time: together they must not overrun what a batch does not.
const rowsAtOnce = 4

// Options are what is swept.
type Options struct {
	// Filter selects rows; the zero value selects all.
	Filter proof.Filter
	// Sizes of the IP packet in bytes, headers included; of TCP, the bytes of one write. Empty is DefaultSizes.
	Sizes Sizes
	// DF selects UDP and ICMP with ("yes") or without ("no") "don't fragment"; empty is both.
	DF []string
	// Progress is told about every step; nil is silence.
	Progress func(step string)
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// sizes are those asked for, or the default.
func (o Options) sizes() (Sizes, error) {
	if len(o.Sizes) > 0 {
		return newSizes(o.Sizes), nil
	}
	return ParseSizes(DefaultSizes)
}

// wants reports whether datagrams are sent so. TCP has no say in it.
func (o Options) wants(df bool) bool {
	name := "no"
	if df {
		name = "yes"
	}
	return len(o.DF) == 0 || slices.Contains(o.DF, name)
}

// Report is what a sweep found; the field names are stable.
type Report struct {
	// OK: every row is.
	OK    bool     `json:"ok"`
	Lab   string   `json:"lab"`
	Sizes Sizes    `json:"sizes"`
	Rows  []Result `json:"rows"`
}

// question is one row, asked with or without "don't fragment".
type question struct {
	row proof.Row
	df  bool
}

// Run sends every size in every row of the lab, datagrams with and without "don't fragment", and tells what became
// of it. An error says that it could not be run; what it found is in the report.
func Run(ctx context.Context, l *lab.Lab, options Options) (Report, error) {
	report := Report{Lab: l.Spec.Name, Rows: []Result{}}
	rows := proof.Rows(l.Topology, options.Filter)
	questions := questions(rows, options)
	sizes, err := options.sizes()
	if err != nil {
		return report, err
	}
	if len(questions) == 0 {
		return report, ErrNothing
	}
	report.Sizes = sizes
	options.progress("lab %s: %d sizes in each of %d rows", l.Spec.Name, len(sizes), len(questions))
	report.Rows, err = askAll(ctx, rows, questions, sizes)
	if err != nil {
		return report, fmt.Errorf("sweep lab %s: %w", l.Spec.Name, err)
	}
	report.OK = !slices.ContainsFunc(report.Rows, func(r Result) bool { return !r.OK })
	return report, nil
}

func questions(rows []proof.Row, options Options) []question {
	var all []question
	for _, row := range rows {
		if row.Protocol == "tcp" {
			all = append(all, question{row: row})
			continue
		}
		for _, df := range []bool{false, true} {
			if options.wants(df) {
				all = append(all, question{row, df})
			}
		}
	}
	return all
}

// askAll answers the questions in their order, some at a time.
func askAll(ctx context.Context, rows []proof.Row, questions []question, sizes Sizes) ([]Result, error) {
	servers, err := startReflectors(rows)
	if err != nil {
		return nil, fmt.Errorf("answer at the other end: %w", err)
	}
	defer servers.Close()
	results := make([]Result, len(questions))
	var running errgroup.Group
	running.SetLimit(rowsAtOnce)
	for i, q := range questions {
		running.Go(func() (err error) {
			_, to := q.row.Ends()
			if results[i], err = q.ask(ctx, servers.ports[to.Address], sizes); err != nil {
				return fmt.Errorf("%s: %w", q.row, err)
			}
			return nil
		})
	}
	return results, errors.Join(running.Wait(), ctx.Err())
}

// ask sends all sizes to a reflector. Every question has bytes of its own, so that nothing else passes for an answer.
func (q question) ask(ctx context.Context, port uint16, sizes Sizes) (Result, error) {
	body := make([]byte, 1<<16)
	_, _ = rand.Read(body) // never fails (crypto/rand)
	if q.row.Protocol == "tcp" {
		s := &stream{row: q.row, port: port, body: body, outcome: newOutcome()}
		s.run(ctx, sizes)
		return s.outcome.result(q.row, false, sizes), nil
	}
	d, err := dialDatagrams(q.row, q.df, port, body)
	if err != nil {
		return Result{}, err
	}
	defer d.socket.Close()
	d.run(ctx, sizes)
	return d.outcome.result(q.row, q.df, sizes), nil
}
