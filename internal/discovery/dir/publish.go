package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/durable"
	"warren/internal/discovery/record"
)

// ownRecord is what this machine wants to have in the folder, and what became of it.
type ownRecord struct {
	mu      sync.Mutex
	node    *cluster.Node // what the file is to say; nil when it is not ours to keep
	written time.Time     // when it was last tried to write it
	fault   *discovery.Problem
	rival   rival
}

// rival is another machine that was seen to write this machine's record. Two that believe to be the
// same overwrite each other for ever; slowly, and not silently.
type rival struct {
	key  cluster.PublicKey
	seen time.Time // zero for never
}

// rivalry is for how many rescans a rival is reported after it was last seen.
const rivalry = 6

// Publish implements discovery.Publisher. A record in the folder that differs only in being older is
// left as it is.
func (d *Dir) Publish(ctx context.Context, node cluster.Node) error {
	wanted, err := d.publishable(ctx, node)
	if err != nil {
		return fmt.Errorf("publish the record of %s: %w", node.ID, err)
	}
	d.own.mu.Lock()
	defer d.own.mu.Unlock()
	if current, err := d.readOwn(); err == nil && record.SameButOlder(current, wanted) {
		wanted = current
	}
	d.own.node = &wanted
	if err := d.ensure(); err != nil {
		return fmt.Errorf("publish the record of %s: %w", node.ID, err)
	}
	return nil
}

// publishable returns node as the file will say it, or why it cannot be published.
func (d *Dir) publishable(ctx context.Context, node cluster.Node) (cluster.Node, error) {
	switch {
	case ctx.Err() != nil:
		return cluster.Node{}, ctx.Err()
	case node.ID != d.self:
		return cluster.Node{}, fmt.Errorf("this machine is %s", d.self)
	case d.ownFile() == APIServerFile:
		return cluster.Node{}, errors.New("the name is reserved; give the machine another one")
	}
	return record.Unmarshal(d.ownPath(), d.self.Name, record.Marshal(node)) // nothing is written that would not be read
}

// ensure writes the record unless the file says it already. The lock is held.
func (d *Dir) ensure() error {
	if current, err := d.readOwn(); err == nil && record.Same(current, *d.own.node) {
		return nil
	}
	d.own.written = time.Now()
	return durable.Replace(d.ownPath(), record.Marshal(*d.own.node), 0o644)
}

// Withdraw implements discovery.Publisher. A record with a key that is not this machine's is left, and
// an error.
func (d *Dir) Withdraw(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("withdraw the record of %s: %w", d.self, err)
	}
	d.own.mu.Lock()
	defer d.own.mu.Unlock()
	if err := d.withdraw(); err != nil {
		return fmt.Errorf("withdraw the record of %s: %w", d.self, err)
	}
	d.own.node, d.own.fault, d.own.rival = nil, nil, rival{}
	return nil
}

func (d *Dir) withdraw() error {
	if d.ownFile() == "" {
		return errors.New("no machine was named")
	}
	current, err := d.readOwn()
	if err == nil && !d.isOurs(current) {
		return fmt.Errorf("%s is that of %s with another key; remove it by hand if it should go", d.ownPath(), current.ID)
	}
	// A file of our name that is no record can only be what became of ours.
	if err := os.Remove(d.ownPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncFolder(d.path)
}

// isOurs reports whether a record is this machine's. Until something was published, the name decides.
func (d *Dir) isOurs(node cluster.Node) bool {
	if node.ID != d.self || d.own.node == nil {
		return node.ID == d.self
	}
	theirs, _ := node.CurrentKey()
	for _, key := range d.own.node.Keys {
		if key.Public == theirs.Public {
			return true
		}
	}
	return false
}

// keep writes the own record again when the folder does not have it as it was published. It returns
// what is wrong around it, and whether the folder has it.
func (d *Dir) keep(snap snapshot) (faults []discovery.Problem, kept bool) {
	o := &d.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.node == nil || snap.lost != nil {
		return nil, true
	}
	now := time.Now()
	current, err := d.readOwn() // not from snap: Publish may have written since
	kept = err == nil && record.Same(current, *o.node)
	if err == nil && !d.isOurs(current) {
		key, _ := current.CurrentKey()
		o.rival = rival{key: key.Public, seen: now}
	}
	if kept {
		o.fault = nil
	} else if now.Sub(o.written) >= d.patience(now) {
		o.fault = d.unwritten(d.ensure())
	}
	return d.ownFaults(now), kept
}

// patience is how long what was written is left alone before it is written again.
func (d *Dir) patience(now time.Time) time.Duration {
	if d.rivalled(now) {
		return d.rescan
	}
	return retry
}

func (d *Dir) rivalled(now time.Time) bool {
	return !d.own.rival.seen.IsZero() && now.Sub(d.own.rival.seen) < rivalry*d.rescan
}

func (d *Dir) ownFaults(now time.Time) []discovery.Problem {
	var faults []discovery.Problem
	if d.own.fault != nil {
		faults = append(faults, *d.own.fault)
	}
	if d.rivalled(now) {
		faults = append(faults, discovery.Problem{
			Where:   d.ownPath(),
			Message: fmt.Sprintf("another agent writes this machine's record, with key %s…", d.own.rival.key.Short()),
			Remedy:  fmt.Sprintf("if another machine is called %s too, give one of them another name", d.self.Name),
		})
	}
	return faults
}

func (d *Dir) unwritten(err error) *discovery.Problem {
	if err == nil {
		return nil
	}
	return &discovery.Problem{
		Where:   d.ownPath(),
		Message: "this machine's record cannot be written: " + cause(err).Error(),
		Remedy:  "let warren write to the folder; until then other machines do not have the record",
	}
}

// readOwn returns what the own file says.
func (d *Dir) readOwn() (cluster.Node, error) {
	data, err := readRegular(d.ownPath())
	if err != nil {
		return cluster.Node{}, err
	}
	return record.Unmarshal(d.ownPath(), d.self.Name, data)
}

func (d *Dir) ownPath() string { return filepath.Join(d.path, d.ownFile()) }
