// Package dir is discovery by a folder: one YAML file per machine, NAME.yaml, that its agent writes and
// all others read. The folder is carried by whatever the cluster has: NFS, rsync, configuration
// management, or one machine with a laboratory on it.
//
//	d := dir.New(dir.Options{Path: "/etc/warren/nodes", Self: id})
//	go d.Run(ctx, emit)           // the caller owns the goroutine
//	err := d.Publish(ctx, node)   // this machine's own record
//
// # What is believed
//
// A file counts as long as it says what it should: a record of a known version, complete, without
// contradiction, of the machine that the file is named for. A file that does not is reported, and its
// machine keeps the last good record until the file is good again or is removed. A folder that cannot
// be read, or that was replaced by one without any other machine's record (an unmounted file system),
// changes nothing.
//
// The pieces: name.go says which file is whose; scan.go reads the folder into a value; state.go, pure, turns
// the last state and that value into the next state and events; watch.go says when to look; dir.go is the
// loop; publish.go keeps the own record. The format is package record's.
package dir
