package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery/durable"
	"warren/internal/plan"
	"warren/internal/wireguard"
)

// ownKey is a key of this node.
type ownKey struct {
	private cluster.PrivateKey
	public  cluster.PublicKey
	epoch   uint32
	made    time.Time // its file was written
}

// ownKeys are the keys of this node in the state directory, one in a file of its own: private.key has epoch 1,
// private.2.key epoch 2. A rotation begins when a file comes and is over when one goes, and both happen in one
// step; nothing else has to be remembered.
type ownKeys struct{ dir string }

const keyFileEpoch1 = "private.key"

func (k ownKeys) path(epoch uint32) string {
	name := keyFileEpoch1
	if epoch != 1 {
		name = fmt.Sprintf("private.%d.key", epoch)
	}
	return filepath.Join(k.dir, name)
}

// paths returns the files that there are, by epoch.
func (k ownKeys) paths() (map[uint32]string, error) {
	entries, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for private keys: %w", err)
	}
	found := map[uint32]string{}
	for _, entry := range entries {
		if epoch, ok := epochOf(entry.Name()); ok {
			found[epoch] = k.path(epoch)
		}
	}
	return found, nil
}

// epochOf returns the epoch of the key in a file of that name.
func epochOf(name string) (epoch uint32, ok bool) {
	if name == keyFileEpoch1 {
		return 1, true
	}
	text, prefixed := strings.CutPrefix(name, "private.")
	text, suffixed := strings.CutSuffix(text, ".key")
	number, err := strconv.ParseUint(text, 10, 32)
	return uint32(number), prefixed && suffixed && err == nil && number > 1 && strconv.FormatUint(number, 10) == text
}

// load returns the keys that count, oldest first: one, or two while the older one is being replaced. The first
// one is made where there is none.
func (k ownKeys) load() ([]ownKey, error) {
	paths, err := k.paths()
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		key, err := k.make(1)
		return []ownKey{key}, err
	}
	var all cluster.Node
	byEpoch := map[uint32]ownKey{}
	for epoch, path := range paths {
		private, err := wireguard.LoadKey(path)
		if err != nil {
			return nil, err
		}
		if byEpoch[epoch], err = ownKeyOf(private, epoch, path); err != nil {
			return nil, err
		}
		all.Keys = append(all.Keys, cluster.Key{Public: private.Public(), Epoch: epoch})
	}
	var keys []ownKey
	for _, key := range slices.Backward(plan.LiveKeys(&all)) {
		keys = append(keys, byEpoch[key.Epoch])
	}
	return keys, nil
}

// make makes the key of an epoch; one that is there already is taken.
func (k ownKeys) make(epoch uint32) (ownKey, error) {
	path := k.path(epoch)
	private, _, err := wireguard.LoadOrCreateKey(path)
	if err != nil {
		return ownKey{}, err
	}
	return ownKeyOf(private, epoch, path)
}

func ownKeyOf(private cluster.PrivateKey, epoch uint32, path string) (ownKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return ownKey{}, fmt.Errorf("ask for the age of a private key: %w", err)
	}
	return ownKey{private: private, public: private.Public(), epoch: epoch, made: info.ModTime()}, nil
}

// remove deletes the keys before an epoch, all of them.
func (k ownKeys) remove(before uint32) error {
	paths, err := k.paths()
	if err != nil {
		return err
	}
	for epoch, path := range paths {
		if epoch >= before {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete a private key that was replaced: %w", err)
		}
	}
	return durable.SyncFolder(k.dir)
}

func (a *agent) ownKeys() ownKeys { return ownKeys{a.Config.StateDir} }

// newest returns the key that this node would have alone.
func (a *agent) newest() ownKey { return a.keys[len(a.keys)-1] }

// published returns the keys in this node's record, oldest first.
func (a *agent) published() []ownKey {
	if a.rotation != nil && a.rotation.Stage() != plan.Moving {
		return a.keys[len(a.keys)-1:]
	}
	return a.keys
}

// ownKeyIn returns the own key that a slot is for.
func (a *agent) ownKeyIn(slot plan.Slot) (ownKey, bool) {
	i := slices.IndexFunc(a.keys, func(k ownKey) bool { return slot.Own(k.epoch) })
	if i < 0 {
		return ownKey{}, false
	}
	return a.keys[i], true
}
