package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"warren/internal/lab"
)

// ErrNothing says that the lab has no pair of nodes, or that no row passes the filter.
var ErrNothing = errors.New("no row to verify: fewer than two nodes, or a filter that accepts none")

// Sizes of the payload of one row in bytes. The smallest holds any marker whole wherever it is cut.
const (
	DefaultSize = 128
	MinSize     = 32
	MaxSize     = 60000
)

// Options are how a lab is verified.
type Options struct {
	// Filter selects rows; the zero value selects all.
	Filter Filter
	// Size of the payload in bytes, MinSize to MaxSize; 0 is DefaultSize.
	Size int
	// Timeout is how long the answer of a row may take; 0 is 5 seconds.
	Timeout time.Duration
	// Progress is told about every step; nil is silence.
	Progress func(step string)
}

func (o Options) size() int {
	if o.Size == 0 {
		return DefaultSize
	}
	return o.Size
}

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return 5 * time.Second
	}
	return o.Timeout
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Report is what a verification found; the field names are stable.
type Report struct {
	// OK: the control saw everything, every row was delivered, and nothing could be read.
	OK  bool   `json:"ok"`
	Lab string `json:"lab"`
	// Void says why nothing is proved, neither good nor bad; "" when something is.
	Void    string   `json:"void"`
	Control Control  `json:"control"`
	Rows    []Result `json:"rows"`
	// StrayClearFrames went between nodes in clear and belong to no row, such as
	// StrayExample.
	StrayClearFrames int    `json:"stray_clear_frames"`
	StrayExample     string `json:"stray_example,omitempty"`
	// Frames and WireGuardFrames were captured in all.
	Frames          int `json:"frames"`
	WireGuardFrames int `json:"wireguard_frames"`
}

// Control is what the same check saw with encryption off.
type Control struct {
	Rows         int `json:"rows"`
	Delivered    int `json:"delivered"`
	ClearFrames  int `json:"clear_frames"`
	MarkerFrames int `json:"marker_frames"`
}

// Verify runs the control in a lab of the same shape without encryption, made and removed for this,
// and then the same rows in the lab itself. An error says that the check could not be run; what it
// found is in the report.
func Verify(ctx context.Context, l *lab.Lab, options Options) (Report, error) {
	report := Report{Lab: l.Spec.Name, Rows: []Result{}}
	rows := Rows(l.Topology, options.Filter)
	if len(rows) == 0 {
		return report, ErrNothing
	}
	options.progress("control: %d rows in a lab of the same shape without encryption", len(rows))
	control, err := runControl(ctx, l.Spec, options)
	if err != nil {
		return report, fmt.Errorf("run the control: %w", err)
	}
	report.control(control)
	if report.Void != "" {
		return report, nil
	}
	options.progress("lab %s: the same %d rows", l.Spec.Name, len(rows))
	measured, err := Measure(ctx, l.Topology, options)
	if err != nil {
		return report, fmt.Errorf("verify lab %s: %w", l.Spec.Name, err)
	}
	report.measured(measured)
	return report, nil
}

// Compare judges what was measured by what the same rows looked like without encryption: the control. The name is the
// report's.
func Compare(name string, control, measured Measurement) Report {
	report := Report{Lab: name, Rows: []Result{}}
	report.control(control)
	if report.Void == "" {
		report.measured(measured)
	}
	return report
}

// runControl measures in a lab that nobody else has, and removes it whatever happens.
func runControl(ctx context.Context, spec lab.Spec, options Options) (m Measurement, err error) {
	spec.ControlOf, spec.Agent, spec.Kube = spec.Name, nil, nil
	spec.Name = fmt.Sprintf("control-%d", os.Getpid())
	if spec.Path != nil {
		// In clear, a silent router loses what a tunnel may well carry, and the control is there to be seen.
		spec.Path = &lab.Path{Node: spec.Path.Node, MTU: spec.Path.MTU}
	}
	l, err := lab.Up(ctx, spec, lab.Options{})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, lab.Down(context.WithoutCancel(ctx), spec.Name)) }()
	return Measure(ctx, l.Topology, options)
}

// control judges the control: it must see what the check itself must not.
func (r *Report) control(m Measurement) {
	t := m.count()
	r.Control = Control{Rows: len(t.results), ClearFrames: t.clear, MarkerFrames: t.markers}
	unseen := ""
	for _, result := range t.results {
		if result.Delivered {
			r.Control.Delivered++
		}
		if result.MarkerFrames == 0 || result.ClearFrames == 0 {
			unseen = first(unseen, result.Row.String())
		}
	}
	switch {
	case m.void != "":
		r.Void = "the control saw too little: " + m.void
	case r.Control.Delivered < r.Control.Rows:
		r.Void = fmt.Sprintf("the control delivered %d of %d rows: this machine loses packets even without encryption", r.Control.Delivered, r.Control.Rows)
	case unseen != "":
		r.Void = "the control did not see the clear text that it had sent in row " + unseen
	}
}

// measured judges the lab itself.
func (r *Report) measured(m Measurement) {
	t := m.count()
	r.Rows, r.Frames, r.WireGuardFrames = t.results, len(m.frames), t.wireGuard
	r.StrayClearFrames, r.StrayExample = t.stray, t.strayExample
	if m.void != "" {
		r.Void = "the capture saw too little: " + m.void
	}
	r.OK = r.Void == "" && t.stray == 0
	for _, result := range t.results {
		r.OK = r.OK && result.OK
	}
}

// String names the row for people.
func (r Row) String() string {
	return fmt.Sprintf("%s %s to %s, %s %s", r.Class, r.From, r.To, r.Family, r.Protocol)
}
