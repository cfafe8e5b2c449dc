// Package record is the text in which machines show each other what they are, whatever carries it: a folder
// of files, or the keys of a store. It knows the format, and what is believed of a place that says something
// else than a record; it reads and writes nothing.
//
//	text := record.Marshal(node)
//	node, err := record.Unmarshal("/etc/warren/nodes/n1.yaml", "n1", text) // err: every problem, with its line
//
//	slot = slot.Read(where, "n1", text) // what the place says now, or last said that was good
//	events := now.EventsSince(before)   // what leads a consumer from one state to the next
package record
